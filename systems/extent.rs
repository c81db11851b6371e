//! Step 8, `extent`: decides what every row computes in this step and backs it with pages. Reads
//! lengths and the budget; writes spans and the step's rows.
//!
//! Capacity is history, the step's own tokens and the extra, in every group or in none
//! (kv-cache-rules §5.6). Rows are served oldest first. When pages run out the youngest row gives
//! way: it is held back until its step has landed, then preempted, so that no outcome of a
//! preempted row is ever late and no victim has been served already. Pages that come free by
//! themselves are waited for.

use crate::batch::{Batch, BatchAccess};
use crate::budget::{Budget, prefill_demand};
use crate::pages::{PageAccess, Pages};
use crate::state::{Limits, Scheduled, StepPlan, Waiting};
use bevy_ecs::prelude::*;
use paceline_components::{Event, Geometry, Request, WaitingText};

/// See the module.
pub fn extent(
    limits: Res<Limits>,
    mut waiting: ResMut<Waiting>,
    mut plan: ResMut<StepPlan>,
    mut requests: Query<(&mut Request, &mut WaitingText)>,
    mut batch: BatchAccess,
    mut pages: PageAccess,
) {
    let geometry = &*limits.0;
    pages.with(|pages| {
        batch.with(|batch| {
            let mut preempt = |batch: &mut Batch, pages: &mut Pages, row: u32| {
                let request = batch.preempt(pages, row, &mut requests, &mut waiting);
                plan.stats.preemptions += 1;
                plan.notes.events.push(Event::Preempted { request });
            };
            serve(geometry, batch, pages, &mut preempt);
        });
    });
}

fn serve(
    geometry: &Geometry,
    batch: &mut Batch,
    pages: &mut Pages,
    preempt: &mut impl FnMut(&mut Batch, &mut Pages, u32),
) {
    let decodes = batch.running.order.len() as u32 - batch.running.prefills;
    let budget = Budget::split(geometry, decodes, prefill_demand(geometry, batch));
    let turns = Turns::new(&mut batch.running.decode_turn, decodes, budget.decode_rows);
    let mut prefill_tokens = budget.prefill_tokens;
    let (mut decode_index, mut place) = (0, 0);
    batch.running.is_starved = false;
    batch.due.grown.clear();
    // Rows at and behind this place give way to an older one.
    let mut end = batch.running.order.len();
    while place < end {
        let row = batch.running.order[place];
        place += 1;
        let lengths = batch.lengths[row as usize];
        let tokens = if lengths.is_prefill() {
            // A chunk ends where a window is published.
            let branch = batch.prefix[row as usize].branch_point;
            let ends = [lengths.prefill_end, branch].into_iter();
            let end = ends.filter(|end| *end > lengths.start_bound()).min();
            let left = end.unwrap_or(0) - lengths.start_bound();
            left.min(geometry.config.chunk_tokens).min(prefill_tokens)
        } else {
            decode_index += 1;
            let is_due = turns.has(decode_index - 1) && !lengths.ends_in_flight();
            if is_due { geometry.lookahead.step_tokens() } else { 0 }
        };
        if tokens == 0 {
            continue;
        }
        let capacity = geometry.lookahead.capacity(lengths.start_bound(), tokens);
        if capacity > lengths.covered && !back(geometry, batch, pages, row, capacity) {
            batch.running.is_starved = true;
            end = end.min(give_way(geometry, batch, pages, place, capacity, preempt));
            if !back(geometry, batch, pages, row, capacity) {
                continue;
            }
        }
        if lengths.is_prefill() {
            prefill_tokens -= tokens;
            schedule_chunk(batch, row, tokens);
        } else {
            schedule_decode(batch, pages, row, tokens);
        }
    }
}

/// Backs `row` up to `capacity` positions in every group, or changes nothing.
fn back(
    geometry: &Geometry,
    batch: &mut Batch,
    pages: &mut Pages,
    row: u32,
    capacity: u32,
) -> bool {
    let spans = &mut batch.spans[row as usize];
    let extent = capacity.div_ceil(geometry.config.page_tokens);
    let before = spans.extent;
    if !pages.grow(row, spans, extent) {
        return false;
    }
    batch.due.grown.push((row, before));
    batch.lengths[row as usize].covered = extent * geometry.config.page_tokens;
    batch.due.tables.push(row);
    true
}

/// Makes the rows from `place` on give way, youngest first, until `capacity` fits or will fit when
/// the steps in flight land. Returns where the rows that stay end.
fn give_way(
    geometry: &Geometry,
    batch: &mut Batch,
    pages: &mut Pages,
    place: usize,
    capacity: u32,
    preempt: &mut impl FnMut(&mut Batch, &mut Pages, u32),
) -> usize {
    let row = batch.running.order[place - 1];
    let extent = batch.spans[row as usize].extent;
    let needed = capacity.div_ceil(geometry.config.page_tokens) - extent;
    while !pages.can_all_give(needed, true) && batch.running.order.len() > place {
        let youngest = *batch.running.order.last().expect("not empty");
        if batch.lengths[youngest as usize].in_flight > 0 {
            return batch.running.order.len() - 1;
        }
        preempt(batch, pages, youngest);
    }
    batch.running.order.len()
}

fn schedule_chunk(batch: &mut Batch, row: u32, tokens: u32) {
    let lengths = &mut batch.lengths[row as usize];
    lengths.in_flight += tokens;
    if !lengths.is_prefill() {
        lengths.emits_in_flight += 1;
        batch.running.prefills -= 1;
    }
    batch.due.chunks.push(Scheduled { row, tokens });
}

fn schedule_decode(batch: &mut Batch, pages: &mut Pages, row: u32, tokens: u32) {
    let lengths = &mut batch.lengths[row as usize];
    lengths.in_flight += tokens;
    lengths.emits_in_flight += 1;
    let spans = &mut batch.spans[row as usize];
    if spans.is_charged {
        pages.settle_charge(spans);
    }
    batch.due.decodes.push(row);
}

/// Which decode rows run when not all fit the budget: they take turns.
struct Turns {
    first: usize,
    rows: usize,
    of: usize,
}

impl Turns {
    fn new(turn: &mut usize, of: u32, rows: u32) -> Self {
        let (of, rows) = (of as usize, rows as usize);
        let first = if rows < of { *turn % of } else { 0 };
        *turn = if rows < of { first + rows } else { 0 };
        Self { first, rows, of }
    }

    fn has(&self, index: usize) -> bool {
        self.rows >= self.of || (index + self.of - self.first) % self.of < self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_rows_take_turns_when_not_all_fit() {
        let mut turn = 0;
        let mut served = [0; 5];
        for _ in 0..5 {
            let turns = Turns::new(&mut turn, 5, 2);
            (0..5).filter(|i| turns.has(*i)).for_each(|i| served[i] += 1);
        }
        assert_eq!(served, [2; 5]);
    }
}
