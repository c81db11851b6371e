//! Pages: a slab. All pages of all groups are spawned at build into one archetype and never
//! despawned, and never gain or lose a component, so that a page's id is its row in every column.
//!
//! A page is *free* (on its group's free list), or *held*: by the rows whose block tables name it,
//! and by a fence while a step in flight may still touch it. Slot 0 of each group is the guard
//! page, the next few the dummy row's; they never move.

use bevy_ecs::prelude::*;
use std::collections::VecDeque;

/// Holders of a page.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRefs(pub u32);

/// Pages whose last holder left while a step in flight could touch them. The fence is a holder:
/// it lets go when that step has landed.
#[derive(Resource, Debug, Default)]
pub struct Fences(pub VecDeque<Fence>);

/// One fenced page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The step that may still touch it.
    pub step: u64,
    /// Its group.
    pub group: u32,
    /// Its slot in the group.
    pub slot: u32,
}
