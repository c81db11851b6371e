//! Data of the scheduling core: what there is, in columns, and the arithmetic of its limits.
//!
//! Nothing here acts: systems are the only code that changes components. The nouns, in the order
//! they matter: [`Config`] describes, [`Geometry`] fixes every limit, a [`Request`] waits and runs
//! on a batch row ([`Lengths`], [`Spans`]), pages belong to lifecycle groups, a drafter slot
//! belongs to a row.

mod config;
mod error;
mod fault;
mod geometry;
mod group;
mod page;
mod peer;
mod plan;
mod pool;
mod prefix;
mod request;
mod row;
mod sizing;
mod slot;
mod span;

pub use config::{
    BufferSpec, Config, Drafter, DrafterKind, GroupSpec, LayerSpec, Owner, PublishPolicy,
    ReusePolicy,
};
pub use error::{ConfigError, OutcomeError, SubmitError};
#[cfg(feature = "faults")]
pub use fault::break_rule;
pub use fault::{Fault, is_broken};
pub use geometry::{GROUPS_MAX, GUARD_SLOT, Geometry, GroupGeometry};
pub use group::{BlockTable, Cached, FreeSlots, GroupIndex, Ledger};
pub use page::{Fence, NO_NODE, PageLink, PageNode, PageRefs, Priority};
pub use peer::{CannotShare, DraftKv, PeerGroup, PeerLayout, PeerMismatch, SharedDraftKv};
pub use plan::{Emitted, Event, FinishReason, Outcome, StepNotes};
pub use pool::{BufferPlace, Pool, coalesce};
pub use prefix::{DraftWindow, ExtraKeys, Fact, Item, KeyChain, PageKey};
pub use request::{NewRequest, Request, Text, WaitingText};
pub use row::{DeviceSpans, Lengths, NO_SLOT, RowOwner, RowPrefix, RowText, Spans};
pub use sizing::{Demand, grain_bytes, slots_for_bytes, with_utilisation_room};
pub use slot::{IdleSlots, NO_ARRIVAL, SlotOwner};
pub use span::{Lookahead, Retention, window_pages};
