//! Pages: a slab. All pages of all groups are spawned at build into one archetype and never
//! despawned, and never gain or lose a component, so that a page's id is its row in every column.
//!
//! A page is *free* (on its group's free list), *held* (by the rows whose block tables name it, and
//! by a fence while a step in flight may still touch it), or *cached*: nobody holds it, the prefix
//! index names it, and it can be evicted. Slot 0 of each group is the guard page, the next few the
//! dummy row's; they never move.

use bevy_ecs::prelude::*;

/// Holders of a page.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRefs(pub u32);

/// The prefix-index node that names a page, or `NO_NODE`.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageNode {
    /// The node.
    pub node: u32,
    /// Which list it waits on when cached.
    pub priority: Priority,
}

/// The page is in no node.
pub const NO_NODE: u32 = u32::MAX;

/// Order of eviction: all low pages go before any normal one (kv-cache-rules §2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// A window that ends nowhere in particular.
    Low,
    /// Everything, unless endpoints are protected.
    #[default]
    Normal,
    /// Sinks, and a window that ends where a prompt ends.
    High,
}

/// Neighbours of a cached page in its list, by slot.
#[derive(Component, Clone, Copy, Debug, Default)]
pub struct PageLink {
    /// The page evicted before it.
    pub previous: u32,
    /// The page evicted after it.
    pub next: u32,
}

/// A page whose row left while a step in flight could touch it. The fence is a holder: it lets go
/// when that step has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The step that may still touch it.
    pub step: u64,
    /// Its group.
    pub group: u32,
    /// Its slot in the group.
    pub slot: u32,
}
