//! Drafter slots: a slab of `max_batch` real slots and the dummy, spawned at build, so that a
//! slot's index is its place in the column.
//!
//! A slot holds a drafter's per-request device state: how many context positions it has. It is
//! bound with a request's first chunk and released when the request leaves its row; rows that only
//! pad a batch use the dummy.

use bevy_ecs::prelude::*;

/// Who uses a drafter slot.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOwner {
    /// The row bound to it, or `FREE_SLOT`.
    pub row: u32,
    /// The binding of that row.
    pub binding: u64,
}

/// The slot belongs to nobody.
pub const FREE_SLOT: u32 = u32::MAX;

/// Free drafter slots, first in first out, so that a slot rests before it is used again.
#[derive(Resource, Debug, Default)]
pub struct FreeDrafterSlots(pub std::collections::VecDeque<u32>);
