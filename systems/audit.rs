//! Invariants of the world between two steps, each a sentence. Costs a pass over all pages: run by
//! tests, by `--verify` and on demand.

use crate::pages::Cache;
use crate::state::{Agenda, Limits};
use bevy_ecs::prelude::*;
use bitvec::prelude::*;
use paceline_components::{
    BlockTable, Cached, FreeSlots, GUARD_SLOT, GroupIndex, Ledger, Lengths, NO_NODE, PageNode,
    PageRefs, RowOwner, Spans,
};

/// Every broken invariant, as a sentence; empty when all hold.
pub fn audit(world: &mut World) -> Vec<String> {
    let mut broken = Vec::new();
    check_pages(world, &mut broken);
    check_rows(world, &mut broken);
    broken
}

fn check_pages(world: &mut World, broken: &mut Vec<String>) {
    let mut pages = world.query::<(&PageRefs, &PageNode)>();
    let pages: Vec<(u32, u32)> = pages.iter(world).map(|(r, n)| (r.0, n.node)).collect();
    let geometry = world.resource::<Limits>().0.clone();
    let mut rows = world.query::<(&RowOwner, &Spans)>();
    let rows: Vec<(RowOwner, Spans)> = rows.iter(world).map(|(o, s)| (*o, *s)).collect();
    let mut groups = world.query::<(&GroupIndex, &FreeSlots, &Cached, &BlockTable, &Ledger)>();
    let Cache { index: prefix, fences, .. } = world.resource::<Cache>();
    for (index, free, cached, table, ledger) in groups.iter(world) {
        let index = index.0 as usize;
        let group = &geometry.groups[index];
        let mut holders = vec![0u32; group.slots() as usize];
        holders[GUARD_SLOT as usize] += 1;
        let mut promised = 0;
        for (row, (_, spans)) in rows.iter().enumerate() {
            let cells = &table.0[row * geometry.columns as usize..][..geometry.columns as usize];
            let live = spans.live(index, group.retention.sink_pages);
            for (column, &slot) in cells.iter().enumerate() {
                let is_live = live.iter().any(|run| run.contains(&(column as u32)));
                if is_live == (slot == GUARD_SLOT) {
                    broken.push(format!(
                        "group {index} row {row} column {column}: a live cell names a page and \
                         no other does (slot {slot})"
                    ));
                }
                if slot != GUARD_SLOT {
                    holders[slot as usize] += 1;
                }
            }
            if spans.is_charged {
                promised += spans.charge[index] - spans.held(index, group.retention.sink_pages);
            }
        }
        let fenced = fences.iter().filter(|fence| fence.group == index as u32);
        fenced.clone().for_each(|fence| holders[fence.slot as usize] += 1);
        let mut is_free = bitvec![0; group.slots() as usize];
        for &slot in &free.0 {
            if is_free.replace(slot as usize, true) {
                broken.push(format!("group {index} slot {slot}: a page is free once"));
            }
        }
        let mut cached_pages = 0;
        for (slot, &holders) in holders.iter().enumerate() {
            let (refs, node) = pages[group.base as usize + slot];
            if refs != holders {
                broken.push(format!(
                    "group {index} slot {slot}: references ({refs}) are holders ({holders})"
                ));
            }
            let is_named = node != NO_NODE;
            if is_named && prefix.entry(node, index).slot != slot as u32 {
                broken.push(format!("group {index} slot {slot}: page and node name each other"));
            }
            let is_cached = refs == 0 && is_named;
            cached_pages += u32::from(is_cached);
            if u32::from(is_free[slot]) + u32::from(refs > 0) + u32::from(is_cached) != 1 {
                broken.push(format!("group {index} slot {slot}: a page is free, held or cached"));
            }
        }
        if cached.len != cached_pages {
            broken.push(format!("group {index}: cached pages are counted"));
        }
        if ledger.promised != promised {
            broken.push(format!(
                "group {index}: the promise ({}) is what rows are owed ({promised})",
                ledger.promised
            ));
        }
        if ledger.fenced as usize != fenced.count() {
            broken.push(format!("group {index}: fenced pages are counted"));
        }
    }
}

fn check_rows(world: &mut World, broken: &mut Vec<String>) {
    let page_tokens = world.resource::<Limits>().0.config.page_tokens;
    let mut rows = world.query::<(&RowOwner, &Lengths, &Spans)>();
    let rows: Vec<_> = rows.iter(world).map(|(o, l, s)| (*o, *l, *s)).collect();
    let Agenda { running, flights, .. } = world.resource::<Agenda>();
    let in_flight: Vec<(u32, u64, u32)> = flights
        .queue
        .iter()
        .flat_map(|flight| flight.rows.iter().map(|r| (r.row, r.binding, r.tokens)))
        .collect();
    let dummy = rows.len() - 1;
    for (row, (owner, lengths, spans)) in rows[..dummy].iter().enumerate() {
        let is_running = running.order.contains(&(row as u32));
        let is_free_row = running.free_rows.contains(&(row as u32));
        if owner.is_free() != is_free_row || owner.is_free() == is_running {
            broken.push(format!("row {row}: a row is free or runs"));
        }
        if lengths.covered != spans.extent * page_tokens {
            broken.push(format!("row {row}: coverage is its extent"));
        }
        if lengths.start_bound() > lengths.covered {
            broken.push(format!("row {row}: every position in flight is backed"));
        }
        let tokens: u32 = in_flight
            .iter()
            .filter(|(r, binding, _)| *r as usize == row && *binding == owner.binding)
            .map(|(.., tokens)| tokens)
            .sum();
        if !owner.is_free() && tokens != lengths.in_flight {
            broken.push(format!("row {row}: tokens in flight are those of its steps in flight"));
        }
    }
    let keys: Vec<_> = running.order.iter().map(|r| &rows[*r as usize].0).collect();
    if !keys.is_sorted_by_key(|owner| (owner.class, owner.arrival)) {
        broken.push("running rows are in order of class and arrival".to_owned());
    }
    let prefills = running.order.iter().filter(|r| rows[**r as usize].1.is_prefill()).count();
    if prefills != running.prefills as usize {
        broken.push("prompts part-way are counted".to_owned());
    }
}
