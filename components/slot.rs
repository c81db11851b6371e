//! Drafter slots: a slab, spawned at build, so that a slot's index is its place in the column; the
//! dummy's index comes after the real ones.
//!
//! A slot holds a drafter's per-request device state: how many context positions it has. It is
//! *bound* with a request's first chunk. It is *parked* when the request leaves the batch for a
//! while, and bound again when it comes back; when no slot is free the one parked longest is
//! reclaimed. It is free when the request ends. Whenever a slot is bound, the device seeds its
//! context length from the row's position; rows that only pad a batch use the dummy.

use bevy_ecs::prelude::*;
use std::collections::VecDeque;

/// The request a slot is bound or parked for, by arrival; `NO_ARRIVAL` when it is free.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOwner(pub u64);

/// No request.
pub const NO_ARRIVAL: u64 = u64::MAX;

/// Slots that no row uses.
#[derive(Resource, Debug, Default)]
pub struct IdleSlots {
    /// Free slots, first in first out, so that a slot rests before it is used again.
    pub free: VecDeque<u32>,
    /// Parked slots, the one parked longest first.
    pub parked: VecDeque<u32>,
}
