//! The device: whether it leaves the bytes that the host device leaves, and what it costs.

mod check;
mod copies;
mod random;
mod tables;

pub use check::CheckReport;
pub use copies::CopyReport;
pub use tables::{StepCost, TablesReport};

use crate::kernels::cuda::CudaError;
use serde::Serialize;
use std::fmt;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct DeviceBench {
    /// Compare with the host device.
    pub check: bool,
    /// Time submits and steps, against whole tables.
    pub tables: bool,
    /// Time copies of pages and pieces, against plain copies.
    pub copies: bool,
    /// Seed of everything random.
    pub seed: u64,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceBenchError {
    /// No device, or it failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A configuration of the benchmark is wrong for this build.
    #[error(transparent)]
    Config(#[from] crate::ConfigError),
    /// The devices differ.
    #[error("{what}: the devices differ at {at}")]
    Differ {
        /// What was run.
        what: String,
        /// The first difference.
        at: String,
    },
    /// A run went wrong before its devices could be compared.
    #[error("{0}")]
    Run(String),
}

/// What came out; parts that were not asked for are none or empty.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Name of the GPU.
    pub device: String,
    /// What was compared, all of it equal.
    pub check: Option<CheckReport>,
    /// Submits and steps.
    pub tables: Option<TablesReport>,
    /// Copies.
    pub copies: Vec<CopyReport>,
}

impl DeviceBench {
    /// Runs it; `allocations` reads the process's allocation counter.
    ///
    /// # Errors
    /// When there is no device, or the devices differ.
    pub fn run(&self, allocations: impl Fn() -> u64) -> Result<DeviceReport, DeviceBenchError> {
        let probe = crate::Geometry::new(&crate::Config::small(4, &[None], 4))?;
        Ok(DeviceReport {
            device: crate::kernels::cuda::CudaDevice::new(&probe)?.name()?,
            check: self.check.then(|| check::run(self.seed)).transpose()?,
            tables: self.tables.then(|| tables::run(allocations)).transpose()?,
            copies: if self.copies { copies::run(self.seed)? } else { Vec::new() },
        })
    }
}

/// The value below which a share of `values` lies.
fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        if let Some(check) = &self.check {
            writeln!(
                f,
                "same bytes as the host device: {} random steps, {} piece lists, {} tag lists, {} \
                 steps of {} runs with {} page copies",
                check.random_steps,
                check.piece_lists,
                check.tag_lists,
                check.run_steps,
                check.runs,
                check.run_copies
            )?;
        }
        if let Some(tables) = &self.tables {
            write!(f, "{tables}")?;
        }
        for copy in &self.copies {
            writeln!(f, "{copy}")?;
        }
        Ok(())
    }
}
