//! Page accounting: the only code that takes, shares and gives back pages.
//!
//! A page is free, held (by rows that name it, and by fences while a step in flight may touch it)
//! or cached. When the last holder lets go it is cached if the prefix index names it and free if
//! not; a cached page is evicted when a free one is wanted.

use crate::cached;
use crate::index::{Entry, NO_KEY, PrefixIndex};
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemParam;
use paceline_components::{
    BlockTable, Cached, Fact, Fence, FreeSlots, GROUPS_MAX, GUARD_SLOT, Geometry, GroupIndex,
    Ledger, NO_NODE, PageLink, PageNode, PageRefs, Priority, Spans,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Access to groups, pages and the prefix index.
#[derive(SystemParam)]
pub struct PageAccess<'w, 's> {
    groups: Query<
        'w,
        's,
        (
            &'static GroupIndex,
            &'static mut FreeSlots,
            &'static mut Cached,
            &'static mut BlockTable,
            &'static mut Ledger,
        ),
    >,
    pages: Query<'w, 's, (&'static mut PageRefs, &'static mut PageNode, &'static mut PageLink)>,
    cache: ResMut<'w, Cache>,
}

/// What is known of pages beside their columns: one resource, since every system needs it.
#[derive(Resource, Debug)]
pub struct Cache {
    /// Limits.
    pub geometry: Arc<Geometry>,
    /// The tree of shared content.
    pub index: PrefixIndex,
    /// Pages that a step in flight may still touch.
    pub fences: VecDeque<Fence>,
    /// Pages that became findable or ceased to be in this step, in order.
    pub facts: Vec<Fact>,
}

/// Columns of groups and pages; row = group index, row = page id.
pub struct Pages<'a> {
    /// Limits.
    pub geometry: &'a Geometry,
    /// The tree of shared content.
    pub index: &'a mut PrefixIndex,
    /// Accounts.
    pub ledgers: &'a mut [Ledger],
    free: &'a mut [FreeSlots],
    cached: &'a mut [Cached],
    tables: &'a mut [BlockTable],
    refs: &'a mut [PageRefs],
    nodes: &'a mut [PageNode],
    links: &'a mut [PageLink],
    fences: &'a mut VecDeque<Fence>,
    facts: &'a mut Vec<Fact>,
}

impl PageAccess<'_, '_> {
    /// Calls `work` with the columns.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut Pages) -> R) -> R {
        let mut groups = self.groups.contiguous_iter_mut().expect("groups are one dense table");
        let (_, mut free, mut cached, mut tables, mut ledgers) =
            groups.next().expect("groups live for ever");
        let mut pages = self.pages.contiguous_iter_mut().expect("pages are one dense table");
        let (mut refs, mut nodes, mut links) = pages.next().expect("pages live for ever");
        let cache = &mut *self.cache;
        work(&mut Pages {
            geometry: &cache.geometry,
            index: &mut cache.index,
            ledgers: ledgers.bypass_change_detection(),
            free: free.bypass_change_detection(),
            cached: cached.bypass_change_detection(),
            tables: tables.bypass_change_detection(),
            refs: refs.bypass_change_detection(),
            nodes: nodes.bypass_change_detection(),
            links: links.bypass_change_detection(),
            fences: &mut cache.fences,
            facts: &mut cache.facts,
        })
    }
}

impl Pages<'_> {
    /// Groups there are.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.free.len()
    }

    /// Pages `group` can give now: free ones and cached ones.
    #[must_use]
    pub fn can_give(&self, group: usize) -> u32 {
        self.free[group].0.len() as u32 + self.cached[group].len
    }

    /// Whether every group can give `pages`, or could if the steps in flight had landed.
    #[must_use]
    pub fn can_all_give(&self, pages: u32, soon: bool) -> bool {
        (0..self.groups()).all(|group| {
            let fenced = if soon { self.ledgers[group].fenced } else { 0 };
            self.can_give(group) + fenced >= pages
        })
    }

    /// Extends `row` to `extent` pages in every group, or changes nothing and says no.
    pub fn grow(&mut self, row: u32, spans: &mut Spans, extent: u32) -> bool {
        let pages = extent - spans.extent;
        if !self.can_all_give(pages, false) {
            return false;
        }
        for group in 0..self.groups() {
            for ordinal in spans.extent..extent {
                let slot = self.take(group);
                *self.cell(group, row, ordinal) = slot;
            }
            if spans.is_charged {
                self.ledgers[group].promised -= pages;
            }
        }
        spans.extent = extent;
        true
    }

    /// Pages of a group that are free now.
    #[must_use]
    pub fn free_pages(&self, group: usize) -> u32 {
        self.free[group].0.len() as u32
    }

    /// Gives back what `row` grew by beyond `extent` pages, which no step in flight has seen.
    pub fn shrink(&mut self, row: u32, spans: &mut Spans, extent: u32) {
        for group in 0..self.groups() {
            for ordinal in (extent..spans.extent).rev() {
                self.let_go(group, row, ordinal, None);
            }
            if spans.is_charged {
                self.ledgers[group].promised += spans.extent - extent;
            }
        }
        spans.extent = extent;
    }

    /// Lets go of the pages of `row` that a window no longer needs at `settled` tokens.
    pub fn slide(&mut self, row: u32, spans: &mut Spans, settled: u32, fence: Option<u64>) {
        for group in 0..self.groups() {
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

    /// Lets go of everything `row` holds, last page first: of what becomes cached the end of a
    /// sequence is evicted before its beginning.
    pub fn release(&mut self, row: u32, spans: &mut Spans, fence: Option<u64>) {
        self.settle_charge(spans);
        for group in 0..self.groups() {
            let live = spans.live(group, self.geometry.groups[group].retention.sink_pages);
            for ordinal in live.into_iter().rev().flat_map(Iterator::rev) {
                self.let_go(group, row, ordinal, fence);
            }
        }
        *spans = Spans { device: spans.device, ..Spans::default() };
    }

    /// Promises a row `charge` pages of each group, those it holds counted in.
    pub fn promise(&mut self, spans: &mut Spans, charges: &[u32; GROUPS_MAX]) {
        spans.is_charged = true;
        for group in 0..self.groups() {
            let held = self.held(spans, group);
            spans.charge[group] = charges[group].max(held);
            self.ledgers[group].promised += spans.charge[group] - held;
        }
    }

    /// Takes back what a row was promised and does not hold.
    pub fn settle_charge(&mut self, spans: &mut Spans) {
        if std::mem::take(&mut spans.is_charged) {
            for group in 0..self.groups() {
                self.ledgers[group].promised -= spans.charge[group] - self.held(spans, group);
            }
        }
    }

    fn held(&self, spans: &Spans, group: usize) -> u32 {
        spans.held(group, self.geometry.groups[group].retention.sink_pages)
    }

    /// Lets go of what was fenced by steps up to `step`.
    pub fn lift_fences(&mut self, step: u64) {
        while let Some(fence) = self.fences.front().copied().filter(|f| f.step <= step) {
            self.fences.pop_front();
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

    /// A page with one holder, its content undefined. The caller counted: there is one.
    pub fn take(&mut self, group: usize) -> u32 {
        let slot = match self.free[group].0.pop() {
            Some(slot) => slot,
            None => self.evict(group),
        };
        self.refs[self.geometry.page(group, slot)].0 = 1;
        let ledger = &mut self.ledgers[group];
        let free = self.free[group].0.len() as u32 + self.cached[group].len;
        ledger.peak_held = ledger.peak_held.max(self.geometry.groups[group].pages - free);
        slot
    }

    /// Whether there is a free page that nobody was promised.
    #[must_use]
    pub fn has_spare(&self, group: usize) -> bool {
        self.free[group].0.len() as u32 > self.ledgers[group].promised
    }

    /// Adds a holder to a page that is held or cached.
    pub fn hold(&mut self, group: usize, slot: u32) {
        let page = self.geometry.page(group, slot);
        if self.refs[page].0 == 0 {
            let links = links_of(self.geometry, self.links, group);
            cached::remove(&mut self.cached[group], links, slot, self.nodes[page].priority);
        }
        self.refs[page].0 += 1;
    }

    /// Whether nobody holds a page that the index names.
    #[must_use]
    pub fn is_cached(&self, group: usize, slot: u32) -> bool {
        self.refs[self.geometry.page(group, slot)].0 == 0
    }

    /// Takes the page out of the cell and lets go of it.
    pub fn let_go(&mut self, group: usize, row: u32, ordinal: u32, fence: Option<u64>) {
        let slot = std::mem::replace(self.cell(group, row, ordinal), GUARD_SLOT);
        self.let_go_of(group, slot, fence);
    }

    /// Drops a holder, or hands its hold to a fence while a step in flight may touch the page.
    pub fn let_go_of(&mut self, group: usize, slot: u32, fence: Option<u64>) {
        match fence {
            Some(step) => {
                self.fences.push_back(Fence { step, group: group as u32, slot });
                self.ledgers[group].fenced += 1;
            }
            None => self.drop_holder(group, slot),
        }
    }

    fn drop_holder(&mut self, group: usize, slot: u32) {
        let page = self.geometry.page(group, slot);
        self.refs[page].0 -= 1;
        if self.refs[page].0 > 0 {
            return;
        }
        let PageNode { node, priority } = self.nodes[page];
        if node == NO_NODE {
            self.free[group].0.push(slot);
        } else {
            let links = links_of(self.geometry, self.links, group);
            cached::push(&mut self.cached[group], links, slot, priority);
        }
    }

    /// The node that names a page.
    #[must_use]
    pub fn node_of(&self, group: usize, slot: u32) -> u32 {
        self.nodes[self.geometry.page(group, slot)].node
    }

    /// Makes a page findable in `node`, in place of one that covers less.
    pub fn publish(&mut self, node: u32, group: usize, entry: Entry, priority: Priority) {
        self.withdraw(node, group);
        self.index.set_entry(node, group, entry);
        self.nodes[self.geometry.page(group, entry.slot)] = PageNode { node, priority };
        self.ledgers[group].published_pages += 1;
        if let Some(key) = self.announced(node, entry) {
            self.facts.push(Fact::Stored {
                key,
                parent: self.index.parent_key(node),
                group: group as u32,
                coverage_tokens: entry.coverage,
            });
        }
    }

    /// Hands a page from one node to another that covers the same tokens and more.
    pub fn move_entry(&mut self, from: u32, to: u32, group: usize) {
        let entry = self.index.entry(from, group);
        if self.index.entry(to, group).coverage >= entry.coverage {
            self.withdraw(from, group);
            return;
        }
        self.withdraw(to, group);
        self.index.set_entry(from, group, Entry::NONE);
        self.index.set_entry(to, group, entry);
        self.nodes[self.geometry.page(group, entry.slot)].node = to;
    }

    /// Makes a node's page unfindable; it is free if nobody holds it. The node stays.
    pub fn withdraw(&mut self, node: u32, group: usize) {
        let entry = self.index.entry(node, group);
        if entry == Entry::NONE {
            return;
        }
        if let Some(key) = self.announced(node, entry) {
            self.facts.push(Fact::Removed { key, group: group as u32 });
        }
        self.index.set_entry(node, group, Entry::NONE);
        let page = self.geometry.page(group, entry.slot);
        let PageNode { priority, .. } = std::mem::replace(&mut self.nodes[page], UNNAMED);
        if self.refs[page].0 == 0 {
            let links = links_of(self.geometry, self.links, group);
            cached::remove(&mut self.cached[group], links, entry.slot, priority);
            self.free[group].0.push(entry.slot);
        }
    }

    /// Routers hear of full pages only.
    fn announced(&self, node: u32, entry: Entry) -> Option<paceline_components::PageKey> {
        let full = entry.coverage == self.geometry.config.page_tokens && entry.unwritten == 0;
        let key = self.index.node(node).key;
        (full && key != NO_KEY).then_some(key)
    }

    /// Frees the least recently used cached page of a group. A page of a full group, or a sink,
    /// takes what comes after it along; a window's page goes alone (kv-cache-rules §3.8).
    fn evict(&mut self, group: usize) -> u32 {
        let slot = cached::first(&self.cached[group]).expect("the caller counted");
        let node = self.node_of(group, slot);
        let retention = &self.geometry.groups[group].retention;
        let is_needed_by_all = retention.window_tokens.is_none()
            || self.index.node(node).ordinal < retention.sink_pages;
        self.ledgers[group].evicted_pages += 1;
        if is_needed_by_all {
            self.remove_subtree(node);
        } else {
            self.withdraw(node, group);
            self.index.prune(node);
        }
        let place = self.free[group].0.iter().rposition(|free| *free == slot);
        self.free[group].0.swap_remove(place.expect("an evicted page is free"))
    }

    /// Withdraws every page of a node and of what comes after it, the last first.
    pub fn remove_subtree(&mut self, node: u32) {
        let mut at = node;
        loop {
            while let Some(child) = self.index.children(at).next() {
                at = child;
            }
            (0..self.groups()).for_each(|group| self.withdraw(at, group));
            if at == node {
                self.index.prune(node);
                return;
            }
            let parent = self.index.node(at).parent;
            self.index.unlink(at);
            at = parent;
        }
    }
}

const UNNAMED: PageNode = PageNode { node: NO_NODE, priority: Priority::Normal };

fn links_of<'a>(
    geometry: &Geometry,
    links: &'a mut [PageLink],
    group: usize,
) -> &'a mut [PageLink] {
    &mut links[geometry.page(group, 0)..]
}
