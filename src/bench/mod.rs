//! Benchmarks of the core alone: no engine, no device.

mod step;

pub use step::{StepBench, StepReport};
