//! Benchmarks: the core alone, and the device beside the host device.

#[cfg(feature = "cuda")]
mod device;
mod step;

#[cfg(feature = "cuda")]
pub use device::{
    CheckReport, CopyReport, DeviceBench, DeviceBenchError, DeviceReport, StepCost, TablesReport,
};

pub use step::{StepBench, StepReport};
