//! Page accounting: the only code that takes, shares and gives back pages.
//!
//! A page is free, or it has holders: rows that name it, and fences while a step in flight may
//! still touch it. It goes back to its group's free list when the last holder lets go.

use crate::state::Limits;
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemParam;
use paceline_components::{
    BlockTable, Fence, Fences, FreeSlots, GUARD_SLOT, Geometry, GroupIndex, Ledger, PageRefs, Spans,
};

/// Access to groups and pages.
#[derive(SystemParam)]
pub struct PageAccess<'w, 's> {
    groups: Query<
        'w,
        's,
        (&'static GroupIndex, &'static mut FreeSlots, &'static mut BlockTable, &'static mut Ledger),
    >,
    pages: Query<'w, 's, &'static mut PageRefs>,
    fences: ResMut<'w, Fences>,
    limits: Res<'w, Limits>,
}

/// Columns of groups and pages; row = group index, row = page id.
pub struct Pages<'a> {
    /// Limits.
    pub geometry: &'a Geometry,
    /// Free lists.
    pub free: &'a mut [FreeSlots],
    /// Block tables.
    pub tables: &'a mut [BlockTable],
    /// Accounts.
    pub ledgers: &'a mut [Ledger],
    refs: &'a mut [PageRefs],
    fences: &'a mut Fences,
}

impl PageAccess<'_, '_> {
    /// Calls `work` with the columns.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut Pages) -> R) -> R {
        let mut groups = self.groups.contiguous_iter_mut().expect("groups are one dense table");
        let (_, mut free, mut tables, mut ledgers) = groups.next().expect("groups live for ever");
        let mut pages = self.pages.contiguous_iter_mut().expect("pages are one dense table");
        let mut refs = pages.next().expect("pages live for ever");
        work(&mut Pages {
            geometry: &self.limits.0,
            free: free.bypass_change_detection(),
            tables: tables.bypass_change_detection(),
            ledgers: ledgers.bypass_change_detection(),
            refs: refs.bypass_change_detection(),
            fences: &mut self.fences,
        })
    }
}

impl Pages<'_> {
    /// Fewest pages any group can give now.
    #[must_use]
    pub fn can_give(&self) -> u32 {
        self.free.iter().map(|free| free.0.len() as u32).min().unwrap_or(0)
    }

    /// Fewest pages any group can give once every step in flight has landed.
    #[must_use]
    pub fn can_give_soon(&self) -> u32 {
        let soon = |(free, ledger): (&FreeSlots, &Ledger)| free.0.len() as u32 + ledger.fenced;
        self.free.iter().zip(self.ledgers.iter()).map(soon).min().unwrap_or(0)
    }

    /// Extends `row` to `extent` pages in every group, or changes nothing and says no.
    pub fn grow(&mut self, row: u32, spans: &mut Spans, extent: u32) -> bool {
        if self.can_give() < extent - spans.extent {
            return false;
        }
        for group in 0..self.free.len() {
            for ordinal in spans.extent..extent {
                let slot = self.free[group].0.pop().expect("counted above");
                self.refs[self.page(group, slot)].0 = 1;
                *self.cell(group, row, ordinal) = slot;
            }
            let held = self.geometry.groups[group].pages - self.free[group].0.len() as u32;
            let ledger = &mut self.ledgers[group];
            ledger.peak_held = ledger.peak_held.max(held);
            if spans.is_charged {
                ledger.promised -= extent - spans.extent;
            }
        }
        spans.extent = extent;
        true
    }

    /// Lets go of the pages of `row` that a window no longer needs at `settled` tokens.
    pub fn slide(&mut self, row: u32, spans: &mut Spans, settled: u32, fence: Option<u64>) {
        for group in 0..self.free.len() {
            let retention = self.geometry.groups[group].retention;
            let stale = retention.stale(settled);
            let from = spans.stale_end[group].max(retention.sink_pages);
            for ordinal in from..stale.end {
                self.let_go(group, row, ordinal, fence);
            }
            if stale.end > from {
                if spans.is_charged {
                    self.ledgers[group].promised += stale.end - from;
                }
                spans.stale_end[group] = stale.end;
            }
        }
    }

    /// Lets go of everything `row` holds.
    pub fn release(&mut self, row: u32, spans: &mut Spans, fence: Option<u64>) {
        self.settle_charge(spans);
        for group in 0..self.free.len() {
            let live = spans.live(group, self.geometry.groups[group].retention.sink_pages);
            for ordinal in live.into_iter().flatten() {
                self.let_go(group, row, ordinal, fence);
            }
        }
        *spans = Spans { device: spans.device, ..Spans::default() };
    }

    /// Promises `charge` pages of each group to a row that holds none.
    pub fn promise(&mut self, spans: &mut Spans, charge: impl Fn(usize) -> u32) {
        spans.is_charged = true;
        for group in 0..self.free.len() {
            spans.charge[group] = charge(group);
            self.ledgers[group].promised += spans.charge[group];
        }
    }

    /// Takes back what a row was promised and does not hold.
    pub fn settle_charge(&mut self, spans: &mut Spans) {
        if std::mem::take(&mut spans.is_charged) {
            for group in 0..self.free.len() {
                let sinks = self.geometry.groups[group].retention.sink_pages;
                self.ledgers[group].promised -= spans.charge[group] - spans.held(group, sinks);
            }
        }
    }

    /// Frees what was fenced by steps up to `step`.
    pub fn lift_fences(&mut self, step: u64) {
        while let Some(fence) = self.fences.0.front().copied().filter(|f| f.step <= step) {
            self.fences.0.pop_front();
            self.ledgers[fence.group as usize].fenced -= 1;
            self.drop_holder(fence.group as usize, fence.slot);
        }
    }

    /// Settled history at which the next page of a row leaves a window.
    #[must_use]
    pub fn next_slide(&self, spans: &Spans) -> u32 {
        let groups = self.geometry.groups.iter().zip(&spans.stale_end);
        groups.map(|(g, end)| g.retention.next_slide(*end)).min().unwrap_or(u32::MAX)
    }

    /// Index of a cell's table in a launch list.
    #[must_use]
    pub fn table_of(&self, group: usize, row: u32) -> u32 {
        group as u32 * (self.geometry.config.max_batch + 1) + row
    }

    /// One cell of a block table.
    pub fn cell(&mut self, group: usize, row: u32, ordinal: u32) -> &mut u32 {
        let columns = self.geometry.columns as usize;
        &mut self.tables[group].0[row as usize * columns + ordinal as usize]
    }

    /// Takes the page out of the cell. The row's hold passes to a fence while a step in flight
    /// may touch the page.
    fn let_go(&mut self, group: usize, row: u32, ordinal: u32, fence: Option<u64>) {
        let slot = std::mem::replace(self.cell(group, row, ordinal), GUARD_SLOT);
        match fence {
            Some(step) => {
                self.fences.0.push_back(Fence { step, group: group as u32, slot });
                self.ledgers[group].fenced += 1;
            }
            None => self.drop_holder(group, slot),
        }
    }

    fn drop_holder(&mut self, group: usize, slot: u32) {
        let page = self.page(group, slot);
        let refs = &mut self.refs[page].0;
        *refs -= 1;
        if *refs == 0 {
            self.free[group].0.push(slot);
        }
    }

    fn page(&self, group: usize, slot: u32) -> usize {
        (self.geometry.groups[group].base + slot) as usize
    }
}
