//! Every kernel compiles for every architecture without a warning, a spill or local memory. Needs
//! NVRTC and no GPU; see `.ci/kernels`.

use paceline_components::{Config, Geometry};
use paceline_kernels::cuda::{CudaDevice, CudaError, SOURCES, Source, compile};

#[test]
fn kernels_compile_without_warnings_spills_or_local_memory() {
    for source in &SOURCES {
        for architecture in ["sm_80", "sm_90", "sm_100"] {
            match compile(source, architecture, &["--ptxas-options=-v"]) {
                Err(error @ CudaError::NoCompiler) => return println!("skipped: {error}"),
                Err(error) => panic!("{architecture}: {error}"),
                Ok(compiled) => check(source, architecture, &compiled.log),
            }
        }
    }
}

/// The log has the assembler's report of each kernel and nothing else.
fn check(source: &Source, architecture: &str, log: &str) {
    let context = || format!("{} for {architecture}:\n{log}", source.name);
    let mut entries: Vec<&str> = log
        .lines()
        .filter_map(|l| l.split_once("entry function '")?.1.split('\'').next())
        .collect();
    entries.sort_unstable();
    assert_eq!(entries, source.entries, "{}", context());
    for line in log.lines() {
        assert!(line.starts_with("ptxas "), "a warning in {}", context());
        assert!(!line.to_lowercase().contains("warning"), "a warning in {}", context());
        assert!(!line.contains(" lmem"), "local memory in {}", context());
    }
    let clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
    let reports = log.lines().filter(|line| line.ends_with(clean)).count();
    assert_eq!(reports, entries.len(), "a spill or a stack frame in {}", context());
}

#[test]
fn what_does_not_compile_says_where() {
    let error = compile(&SOURCES[0], "sm_90", &["--define-macro=sizeof(x)=7"]);
    match error {
        Err(error @ CudaError::NoCompiler) => println!("skipped: {error}"),
        Err(CudaError::Compile { name, log }) => {
            assert!(name == "step.cu" && log.contains("abi.h("), "{log}");
        }
        other => panic!("a broken size compiles: {other:?}"),
    }
}

#[test]
fn without_cuda_there_is_an_error_that_says_what_is_missing() {
    let geometry = Geometry::new(&Config::small(4, &[None], 4)).unwrap();
    match CudaDevice::new(&geometry) {
        Ok(_) => println!("not shown: there is a GPU"),
        Err(error) => assert!(error.is_absent() && error.to_string().starts_with("no "), "{error}"),
    }
}
