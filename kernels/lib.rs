//! Launch lists and the devices that run them.
//!
//! A step's device work is a [`LaunchList`]: plain records, no handle, no borrow, no float.
//! [`HostDevice`] runs it on host memory and is the specification of every launch; with the feature
//! `cuda`, `cuda::CudaDevice` runs it on a GPU and must leave the same bytes.

mod abi;
#[cfg(feature = "cuda")]
pub mod cuda;
mod host;
mod launch;
pub mod tags;

pub use abi::{
    ABI_VERSION, FLAG_BOUND, FLAG_DUMMY, FLAG_LAST_CHUNK, FLAG_PREFILL, FLAG_SEED, Header,
    ON_DEVICE, PageCopy, PieceCopy, RowMeta, TAG_CHECK, TAG_SCRATCH, TAG_WRITE, TableDelta, TagRun,
};
pub use host::{AccessError, HostDevice};
pub use launch::{Launch, LaunchList, Layout};
