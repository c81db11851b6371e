//! Lifecycle groups: one entity each, in configuration order, alive as long as the world.

use bevy_ecs::prelude::*;

/// Place of the group in the geometry.
#[derive(Component, Clone, Copy, Debug)]
pub struct GroupIndex(pub u32);

/// Free slots of the group, last in first out.
#[derive(Component, Debug)]
pub struct FreeSlots(pub Vec<u32>);

/// Block table of the group: `rows × columns` slots, persistent. Unused cells name the guard slot.
#[derive(Component, Debug)]
pub struct BlockTable(pub Vec<u32>);

/// Cached pages of the group, least recently used first, one list for each priority.
#[derive(Component, Clone, Debug)]
pub struct Cached {
    /// First and last slot of each list; the guard slot ends a list.
    pub lists: [(u32, u32); 3],
    /// Pages in all lists.
    pub len: u32,
}

/// Page accounting of the group.
#[derive(Component, Clone, Copy, Debug, Default)]
pub struct Ledger {
    /// Pages promised to prompts that are part-way, beyond what they hold.
    pub promised: u32,
    /// Fenced pages nobody else holds: they become free without anybody's doing.
    pub fenced: u32,
    /// Most pages ever held at once.
    pub peak_held: u32,
    /// Cached pages taken for other content.
    pub evicted_pages: u64,
    /// Pages claimed from the prefix index as they are.
    pub claimed_pages: u64,
    /// Partial pages claimed by copy.
    pub copied_pages: u64,
    /// Pages made findable.
    pub published_pages: u64,
}
