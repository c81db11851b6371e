//! The systems of a step, one file each, and the schedule that orders them.
//!
//! [`schedule()`] is the whole step at a glance. A system's module says what it reads and writes.

mod admission;
mod audit;
mod batch;
mod block_tables;
mod budget;
mod drafter_slots;
mod extent;
mod ingest;
mod pages;
mod retire;
mod schedule;
mod seal;
mod state;
mod window_slide;
mod world;

pub use audit::audit;
pub use schedule::schedule;
pub use state::{
    Clock, Command, Flight, Flights, Ingress, Limits, Running, Stats, StepPlan, Waiting,
};
pub use world::build;
