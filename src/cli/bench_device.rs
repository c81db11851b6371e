//! `paceline bench device`.

use clap::{Args, ValueEnum};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct Device {
    /// What to do [default: everything].
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Compare and measure nothing: `--part check`.
    #[arg(long, conflicts_with = "part")]
    check_only: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Random launch lists and whole runs leave the same bytes on both devices.
    Check,
    /// Submits and steps, against whole tables.
    Tables,
    /// Copies of pages and pieces, against plain copies.
    Copies,
}

/// No CUDA in this binary or on this machine.
const NO_CUDA: u8 = 3;

impl Device {
    #[cfg(not(feature = "cuda"))]
    pub fn run(self) -> anyhow::Result<ExitCode> {
        eprintln!("no CUDA: this binary was built without the feature `cuda`");
        Ok(ExitCode::from(NO_CUDA))
    }

    #[cfg(feature = "cuda")]
    pub fn run(self) -> anyhow::Result<ExitCode> {
        use paceline::bench::{DeviceBench, DeviceBenchError};
        let has = |part| {
            if self.check_only {
                part == Part::Check
            } else {
                self.part.is_empty() || self.part.contains(&part)
            }
        };
        let bench = DeviceBench {
            check: has(Part::Check),
            tables: has(Part::Tables),
            copies: has(Part::Copies),
            seed: self.seed,
        };
        match bench.run(|| crate::ALLOCATOR.stats().allocations as u64) {
            Ok(report) if self.json => println!("{}", serde_json::to_string(&report)?),
            Ok(report) => print!("{report}"),
            Err(DeviceBenchError::Cuda(error)) if error.is_absent() => {
                eprintln!("{error}");
                return Ok(ExitCode::from(NO_CUDA));
            }
            Err(error @ DeviceBenchError::Differ { .. }) => {
                eprintln!("{error}");
                return Ok(ExitCode::FAILURE);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(ExitCode::SUCCESS)
    }
}
