//! Batch rows: a slab of `max_batch` rows and one dummy row, spawned at build, so that a row's
//! index is its place in every column, in the block tables and on the device.
//!
//! A request binds to a free row when it is admitted and leaves it when it finishes, is cancelled
//! or is preempted. Hot systems read and write these columns only; the request entity is touched
//! at both ends of its life. Waiting requests therefore cost a step nothing.

use crate::geometry::GROUPS_MAX;
use crate::request::Text;
use bevy_ecs::prelude::*;

/// Who runs on a row.
#[derive(Component, Clone, Copy, Debug)]
pub struct RowOwner {
    /// The request entity; `PLACEHOLDER` on a free row.
    pub request: Entity,
    /// Its id.
    pub id: u64,
    /// Its place in the order of arrival.
    pub arrival: u64,
    /// Its priority class.
    pub class: u8,
    /// Counts bindings of all rows: an outcome of another binding is late and changes nothing.
    pub binding: u64,
    /// The drafter slot, or `NO_SLOT`.
    pub slot: u32,
    /// Whether a plan has shown this binding to the engine.
    pub is_announced: bool,
    /// Whether a plan has told the device to seed the slot.
    pub is_seeded: bool,
}

/// No drafter slot: the row drafts nothing.
pub const NO_SLOT: u32 = u32::MAX;

impl RowOwner {
    /// A row nobody runs on.
    pub const FREE: Self = Self {
        request: Entity::PLACEHOLDER,
        id: u64::MAX,
        arrival: u64::MAX,
        class: u8::MAX,
        binding: 0,
        slot: NO_SLOT,
        is_announced: false,
        is_seeded: false,
    };

    /// Whether nobody runs here.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.request == Entity::PLACEHOLDER
    }
}

/// Lengths of the sequence on a row, in tokens. Settled and in-flight parts are separate columns:
/// nothing is freed or slid on in-flight counts.
#[derive(Component, Clone, Copy, Debug, Default)]
pub struct Lengths {
    /// History: positions whose keys and values are final.
    pub settled: u32,
    /// Most tokens that steps in flight can add to the history.
    pub in_flight: u32,
    /// Prompt tokens, and output before a preemption: prefill ends here.
    pub prefill_end: u32,
    /// Tokens known to the host: prompt and emitted.
    pub known: u32,
    /// Most tokens the sequence may reach.
    pub limit: u32,
    /// Steps in flight that emit at least one token.
    pub emits_in_flight: u32,
    /// Positions backed by pages in every group.
    pub covered: u32,
    /// Settled history at which the next page leaves a window.
    pub slide_at: u32,
    /// Settled history at which there is something to publish.
    pub commit_at: u32,
}

impl Spans {
    /// Ordinals of `group` that hold a page: sinks, then what the window still needs.
    #[must_use]
    pub fn live(&self, group: usize, sink_pages: u32) -> [std::ops::Range<u32>; 2] {
        live(self.extent, self.stale_end[group], sink_pages)
    }

    /// Pages of `group` the row holds.
    #[must_use]
    pub fn held(&self, group: usize, sink_pages: u32) -> u32 {
        self.live(group, sink_pages).iter().map(|r| r.end - r.start).sum()
    }
}

impl DeviceSpans {
    /// Ordinals of `group` that the device's table shows.
    #[must_use]
    pub fn live(&self, group: usize, sink_pages: u32) -> [std::ops::Range<u32>; 2] {
        live(self.extent, self.stale_end[group], sink_pages)
    }
}

fn live(extent: u32, stale_end: u32, sink_pages: u32) -> [std::ops::Range<u32>; 2] {
    let sinks = sink_pages.min(extent);
    [0..sinks, stale_end.clamp(sinks, extent)..extent]
}

impl Lengths {
    /// Where the row's next step starts at the latest.
    #[must_use]
    pub fn start_bound(&self) -> u32 {
        self.settled + self.in_flight
    }

    /// Whether prompt is left to compute after the steps in flight.
    #[must_use]
    pub fn is_prefill(&self) -> bool {
        self.start_bound() < self.prefill_end
    }

    /// Whether the steps in flight end the sequence for certain.
    #[must_use]
    pub fn ends_in_flight(&self) -> bool {
        self.known + self.emits_in_flight >= self.limit
    }
}

/// Pages a row holds. All groups reach the same extent; the start of the live part differs.
#[derive(Component, Clone, Copy, Debug, Default)]
pub struct Spans {
    /// Index of the last valid entry + 1, in pages: never a count.
    pub extent: u32,
    /// Per group: end of the stale range; the row holds `[0, sinks) ∪ [stale_end, extent)`.
    pub stale_end: [u32; GROUPS_MAX],
    /// Per group: pages promised at admission until the prompt is computed, in all.
    pub charge: [u32; GROUPS_MAX],
    /// Whether `charge` still counts in the groups' ledgers.
    pub is_charged: bool,
    /// What the device's table shows.
    pub device: DeviceSpans,
}

/// What the device's block table shows of a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceSpans {
    /// Extent of the last step that changed the row.
    pub extent: u32,
    /// Stale ends of that step.
    pub stale_end: [u32; GROUPS_MAX],
    /// The binding those cells belong to.
    pub binding: u64,
}

/// What a row shares with the prefix index.
#[derive(Component, Clone, Copy, Debug)]
pub struct RowPrefix {
    /// Node of the last page published or claimed, or `NO_NODE`.
    pub tip: u32,
    /// Full pages published or claimed.
    pub published_pages: u32,
    /// Drafter context is written from here to the settled history without a gap
    /// (kv-cache-rules §6.4).
    pub draft_from: u32,
    /// A chunk ends here so that the window in front of it is published, or `u32::MAX`.
    pub branch_point: u32,
}

impl Default for RowPrefix {
    fn default() -> Self {
        let tip = crate::page::NO_NODE;
        Self { tip, published_pages: 0, draft_from: 0, branch_point: u32::MAX }
    }
}

/// Tokens of the sequence on a row.
#[derive(Component, Debug, Default)]
pub struct RowText(pub Text);
