//! Compiles the kernels for the device at hand, through NVRTC, straight to machine code: no PTX that
//! an older driver could refuse.

use super::CudaError;
use super::args::macros;
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString};

/// One file of kernels.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// File name.
    pub name: &'static str,
    /// Kernels in it.
    pub entries: &'static [&'static str],
    text: &'static str,
}

/// All kernels.
pub const SOURCES: [Source; 4] = [STEP, PAGES, TAGS, WHOLE_TABLES];

pub(super) const STEP: Source =
    Source { name: "step.cu", entries: &["step"], text: include_str!("step.cu") };
pub(super) const PAGES: Source = Source {
    name: "pages.cu",
    entries: &["copy_pages", "copy_pieces"],
    text: include_str!("pages.cu"),
};
pub(super) const TAGS: Source =
    Source { name: "tags.cu", entries: &["run_tags"], text: include_str!("tags.cu") };
pub(super) const WHOLE_TABLES: Source = Source {
    name: "whole_tables.cu",
    entries: &["convert_tables"],
    text: include_str!("whole_tables.cu"),
};

/// A compiled file.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Machine code for one architecture.
    pub cubin: Vec<u8>,
    /// What the compiler said; empty when it had nothing to say.
    pub log: String,
}

/// Compiles `source` for `architecture`, `sm_90` for example; `options` go to NVRTC as they are.
///
/// # Errors
/// When NVRTC is missing, or with its log.
pub fn compile(
    source: &Source,
    architecture: &str,
    options: &[&str],
) -> Result<Compiled, CudaError> {
    // SAFETY: loads the library and nothing else; its initialisers have no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoCompiler);
    }
    let mut all = macros();
    all.push(format!("--gpu-architecture={architecture}"));
    all.push("--std=c++17".to_owned());
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let program = Program::new(source)?;
    // SAFETY: the program is alive until the end of this function.
    let compiled = unsafe { result::compile_program(program.0, &all) };
    let log = program.log()?;
    if compiled.is_err() {
        return Err(CudaError::Compile { name: source.name, log });
    }
    Ok(Compiled { cubin: program.cubin()?, log })
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn new(source: &Source) -> Result<Self, CudaError> {
        let owned = |text: &str| CString::new(text).expect("sources and names have no NUL");
        let (text, name) = (owned(source.text), owned(source.name));
        let headers = [owned(include_str!("abi.h"))];
        let header_names = [c"abi.h".as_ptr()];
        let header_texts = headers.each_ref().map(|header| header.as_ptr());
        let mut program = std::ptr::null_mut();
        // SAFETY: all strings end in NUL and NVRTC copies them before it returns.
        let created = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                text.as_ptr(),
                name.as_ptr(),
                1,
                header_texts.as_ptr(),
                header_names.as_ptr(),
            )
        };
        created.result()?;
        Ok(Self(program))
    }

    fn log(&self) -> Result<String, CudaError> {
        // SAFETY: the program is alive as long as `self`.
        let log = unsafe { result::get_program_log(self.0) }?;
        let bytes: Vec<u8> = log.into_iter().map(|c| c.cast_unsigned()).collect();
        let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy);
        Ok(text.map_or(String::new(), |text| text.trim().to_owned()))
    }

    fn cubin(&self) -> Result<Vec<u8>, CudaError> {
        let mut bytes = 0;
        // SAFETY: the program is alive as long as `self`; it was compiled for a real architecture.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &raw mut bytes) }.result()?;
        let mut cubin = vec![0u8; bytes];
        // SAFETY: as above, and the buffer has the size that NVRTC asked for.
        unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()) }.result()?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by `new` and destroyed once. A failure leaks it, which harms nothing.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
