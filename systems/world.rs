//! Builds the world: every slab, queue and scratch at its full size, so that a step allocates
//! nothing.

use crate::index::PrefixIndex;
use crate::pages::Cache;
use crate::state::{
    Agenda, Directory, Due, Flights, Ingress, Limits, Running, Stats, StepPlan, Waiting,
};
use crate::turns::Turns;
use ahash::RandomState;
use bevy_ecs::prelude::*;
use crossbeam::queue::ArrayQueue;
use paceline_components::{
    BlockTable, Cached, FreeSlots, GUARD_SLOT, Geometry, GroupIndex, IdleSlots, Ledger, Lengths,
    NO_ARRIVAL, NO_NODE, PageLink, PageNode, PageRefs, Priority, RowOwner, RowPrefix, RowText,
    SlotOwner, Spans, StepNotes,
};
use paceline_kernels::LaunchList;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A world with no request in it.
#[must_use]
pub fn build(geometry: Arc<Geometry>) -> World {
    let mut world = World::new();
    let rows = geometry.config.max_batch;
    spawn_pages(&mut world, &geometry);
    spawn_groups(&mut world, &geometry);
    spawn_rows(&mut world, &geometry);
    let slots = geometry.drafter_slots();
    world.spawn_batch((0..slots).map(|_| SlotOwner(NO_ARRIVAL))).count();
    let parked = VecDeque::with_capacity(slots as usize);
    world.insert_resource(IdleSlots { free: (0..slots).collect(), parked });
    let waiting = geometry.config.max_waiting as usize;
    world.insert_resource(Ingress {
        // Cancels find room even when every request waits.
        queue: Arc::new(ArrayQueue::new(2 * waiting)),
        waiting: Arc::new(AtomicU32::new(0)),
    });
    // Fixed seeds: the same run twice takes the same path.
    let by_id = HashMap::with_hasher(RandomState::with_seeds(1, 2, 3, 4));
    world.insert_resource(Directory { by_id, arrivals: 0 });
    world.insert_resource(Waiting::default());
    let running = Running {
        order: Vec::with_capacity(rows as usize),
        free_rows: (0..rows).collect(),
        ..Running::default()
    };
    let (due, flights) = (due(&geometry), flights(&geometry));
    world.insert_resource(Agenda { step: 0, wants_dummy: false, running, due, flights });
    let launches = LaunchList::new(&geometry);
    let notes = notes(&geometry);
    world.insert_resource(StepPlan { launches, notes, stats: Stats::default() });
    let nodes = geometry.groups.iter().map(|g| g.pages).max().unwrap_or(0);
    let groups = geometry.groups.len();
    world.insert_resource(Cache {
        index: PrefixIndex::new(geometry.config.page_tokens, groups, nodes),
        fences: VecDeque::with_capacity(4 * rows as usize),
        facts: Vec::with_capacity(16 * rows as usize),
        geometry: geometry.clone(),
    });
    world.insert_resource(Turns::default());
    world.insert_resource(Limits(geometry));
    world
}

fn spawn_pages(world: &mut World, geometry: &Geometry) {
    for group in &geometry.groups {
        let reserved = 1 + group.dummy_pages;
        let node = PageNode { node: NO_NODE, priority: Priority::Normal };
        let page = |slot| (PageRefs(u32::from(slot < reserved)), node, PageLink::default());
        world.spawn_batch((0..group.slots()).map(page).collect::<Vec<_>>()).count();
    }
}

fn spawn_groups(world: &mut World, geometry: &Geometry) {
    let cells = (geometry.config.max_batch + 1) as usize * geometry.columns as usize;
    for (index, group) in geometry.groups.iter().enumerate() {
        let mut table = vec![GUARD_SLOT; cells];
        let dummy = (geometry.config.max_batch * geometry.columns) as usize;
        for page in 0..group.dummy_pages {
            table[dummy + page as usize] = 1 + page;
        }
        // The lowest slot is handed out first.
        let free = (1 + group.dummy_pages..group.slots()).rev().collect();
        world.spawn((
            GroupIndex(index as u32),
            FreeSlots(free),
            Cached { lists: [(GUARD_SLOT, GUARD_SLOT); 3], len: 0 },
            BlockTable(table),
            Ledger::default(),
        ));
    }
}

fn spawn_rows(world: &mut World, geometry: &Geometry) {
    for row in 0..=geometry.config.max_batch {
        let is_dummy = row == geometry.config.max_batch;
        let extent = if is_dummy { geometry.groups[0].dummy_pages } else { 0 };
        let spans = Spans { extent, ..Spans::default() };
        // The dummy's binding is no request's, and its table is still to be shown.
        let binding = u64::MAX * u64::from(is_dummy);
        let owner = RowOwner { binding, ..RowOwner::FREE };
        world.spawn((owner, Lengths::default(), spans, RowText::default(), RowPrefix::default()));
    }
}

fn flights(geometry: &Geometry) -> Flights {
    let rows = geometry.config.max_batch as usize;
    let tokens = rows * geometry.lookahead.step_tokens() as usize;
    let depth = geometry.config.overlap_depth as usize + 1;
    let mut flights = Flights::default();
    flights.queue.reserve(depth);
    flights.spare.resize_with(depth, Default::default);
    for flight in &mut flights.spare {
        flight.rows.reserve(rows);
        flight.outcome.counts.reserve(rows);
        flight.outcome.tokens.reserve(tokens);
    }
    flights
}

fn due(geometry: &Geometry) -> Due {
    let rows = geometry.config.max_batch as usize + 1;
    let mut due = Due {
        slides: Vec::with_capacity(2 * rows),
        commits: Vec::with_capacity(2 * rows),
        finished: Vec::with_capacity(rows),
        tables: Vec::with_capacity(4 * rows),
        cells: Vec::with_capacity(4 * rows),
        moves: Vec::with_capacity(4 * rows),
        grown: Vec::with_capacity(rows),
        slotless: Vec::with_capacity(rows),
        freed_slots: Vec::with_capacity(rows),
        parked_slots: Vec::with_capacity(rows),
        chunks: Vec::with_capacity(rows),
        decodes: Vec::with_capacity(rows),
    };
    if geometry.groups[0].dummy_pages > 0 {
        due.tables.push(geometry.config.max_batch);
    }
    due
}

fn notes(geometry: &Geometry) -> StepNotes {
    let rows = geometry.config.max_batch as usize;
    let tokens = rows * geometry.lookahead.step_tokens() as usize;
    StepNotes {
        events: Vec::with_capacity(4 * rows),
        emitted: Vec::with_capacity(2 * rows),
        emitted_tokens: Vec::with_capacity(2 * tokens),
    }
}
