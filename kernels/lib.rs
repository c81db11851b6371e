//! Launch lists and the devices that run them.
//!
//! A step's device work is a [`LaunchList`]: plain records, no handle, no borrow, no float.
//! [`HostDevice`] runs it on host memory and is the specification of every launch.

mod abi;
mod host;
mod launch;
pub mod tags;

pub use abi::{
    ABI_VERSION, FLAG_BOUND, FLAG_DUMMY, FLAG_LAST_CHUNK, FLAG_PREFILL, FLAG_SEED, Header,
    ON_DEVICE, PageCopy, RowMeta, TableDelta,
};
pub use host::{AccessError, HostDevice};
pub use launch::{Launch, LaunchList};
