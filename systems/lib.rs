//! The systems of a step, one file each, and the schedule that orders them.
//!
//! [`schedule()`] is the whole step at a glance. A system's module says what it reads and writes.

mod admission;
mod audit;
mod batch;
mod block_tables;
mod branch_cap;
mod budget;
mod cached;
mod claim;
mod commit;
mod drafter_slots;
mod extent;
mod index;
mod ingest;
mod matching;
mod page_moves;
mod pages;
mod probe;
mod publish;
mod retire;
mod schedule;
mod seal;
mod state;
mod turns;
mod warm_up;
mod window_slide;
mod withdraw;
mod world;

pub use audit::audit;
pub use batch::BatchAccess;
pub use branch_cap::{Decision, branch_cap};
pub use pages::{Cache, PageAccess};
pub use probe::{Probe, Prober};
pub use schedule::schedule;
pub use state::{
    Agenda, Command, Flight, Flights, Ingress, Limits, Running, Stats, StepPlan, Waiting,
};
pub use warm_up::{WarmUp, WarmUpError, warm_up};
pub use withdraw::withdraw;
pub use world::build;
