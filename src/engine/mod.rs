//! Engines: what runs the rows of a plan and says what they emitted.
//!
//! An engine keeps per-row state of its own: with an outcome in flight only it knows a row's true
//! length. A row with `FLAG_BOUND` starts afresh.

mod forced;
#[cfg(feature = "cuda")]
mod on_cuda;
#[cfg(feature = "pair")]
pub mod pair;
#[cfg(feature = "pair")]
pub mod pair_engine;

pub use forced::{Accept, Forced, StepTime};
#[cfg(feature = "cuda")]
pub use on_cuda::OnCuda;

use crate::{Outcome, Plan};

/// Runs planned steps.
pub trait Engine {
    /// Runs the launches and rows of `plan`, of which there may be none, adds what each emitted to `outcome`, and says how long the step
    /// took, in nanoseconds of the engine's own time.
    ///
    /// # Errors
    /// When the engine cannot go on.
    fn run(&mut self, plan: Plan<'_>, outcome: &mut Outcome) -> Result<u64, EngineError>;

    /// Takes a plan without rows: its launches may still change block tables.
    fn skip(&mut self, _plan: Plan<'_>) {}
}

/// An engine that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("engine: {0}")]
pub struct EngineError(pub String);
