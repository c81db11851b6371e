//! A scheduling core for LLM inference servers, made to be embedded in one.
//!
//! Each step it decides which requests run, which KV pages they hold and what the speculative
//! drafter may read and write, and hands the engine flat records plus one launch list. Target and
//! drafter live in one paged cache, as lifecycle groups with rules of their own.
//!
//! ```
//! use paceline::{Config, Core, NewRequest, Outcome};
//!
//! let mut core = Core::builder().config(Config::pair()).max_batch(8).build()?;
//! let inbox = core.inbox(); // Send + Clone
//! inbox.submit(NewRequest::new(1, vec![17, 18, 19], 16))?;
//!
//! let mut outcome = Outcome::default();
//! let mut answer: Vec<u32> = Vec::new();
//! loop {
//!     let plan = core.step()?;
//!     answer.extend(plan.outputs().flat_map(|output| output.tokens));
//!     if plan.rows().is_empty() {
//!         break;
//!     }
//!     // An engine would upload `plan.launches()` and run its model over `plan.rows()`. This one
//!     // answers 7 for every row and accepts no draft.
//!     outcome.begin(plan.step());
//!     for row in plan.rows() {
//!         let (least, _most) = row.emits();
//!         outcome.push_row(&[7][..least as usize]);
//!     }
//!     core.complete(&outcome)?;
//! }
//! assert_eq!(answer, [7; 16]);
//! assert!(core.is_idle() && core.audit().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "cli")]
pub mod bench;
mod builder;
pub mod capacity;
mod core;
pub mod engine;
#[cfg(feature = "pair")]
pub mod pair_report;
pub mod record;
pub mod report;
pub mod run;
mod verify;
pub mod workload;

pub use crate::core::{Core, Inbox, Output, OwnedPlan, PageCount, Plan, StepError};
pub use builder::Builder;
pub use paceline_components::Fault;
#[cfg(feature = "faults")]
pub use paceline_components::break_rule;
pub use paceline_components::{
    BufferSpec, CannotShare, Config, ConfigError, DraftKv, DraftWindow, Drafter, DrafterKind,
    Event, ExtraKeys, Fact, FinishReason, Geometry, GroupGeometry, GroupSpec, Item, LayerSpec,
    Lookahead, NewRequest, Outcome, OutcomeError, Owner, PageKey, PeerGroup, PeerLayout,
    PeerMismatch, PublishPolicy, Retention, ReusePolicy, SharedDraftKv, SubmitError, window_pages,
};
pub use paceline_kernels as kernels;
pub use paceline_systems::{Probe, Stats, WarmUp, WarmUpError};
pub use verify::Verifier;
