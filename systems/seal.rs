//! Step 13, `seal`: closes the step. Reads the step's rows; writes their records into the launch list
//! and puts the step in flight. The plan does not change after it.
//!
//! Rows come as prompts, then decode rows, then dummy rows up to the next captured batch.

use crate::batch::{Batch, BatchAccess};
use crate::state::{FlightRow, Limits, StepPlan};
use bevy_ecs::prelude::*;
use paceline_components::{Fault, Geometry, NO_SLOT, is_broken};
use paceline_kernels::{
    FLAG_BOUND, FLAG_DUMMY, FLAG_LAST_CHUNK, FLAG_PREFILL, FLAG_SEED, LaunchList, ON_DEVICE,
    RowMeta,
};

/// See the module.
pub fn seal(limits: Res<Limits>, mut plan: ResMut<StepPlan>, mut batch: BatchAccess) {
    let geometry = &*limits.0;
    let StepPlan { launches: list, stats, .. } = &mut *plan;
    batch.with(|batch| {
        let mut flight = batch.flights.spare.pop().unwrap_or_default();
        flight.step = batch.step;
        flight.has_landed = false;
        flight.rows.clear();
        for chunk in 0..batch.due.chunks.len() {
            let chunk = batch.due.chunks[chunk];
            let mut meta = record(batch, chunk.row, chunk.tokens);
            let end = meta.start_bound + chunk.tokens;
            let ids = &batch.texts[chunk.row as usize].0.tokens;
            meta.input = list.push_inputs(&ids[meta.start_bound as usize..end as usize]);
            meta.flags |= FLAG_PREFILL;
            if end == batch.lengths[chunk.row as usize].prefill_end {
                meta.flags |= FLAG_LAST_CHUNK;
            }
            push(batch, list, &mut flight.rows, meta);
        }
        for decode in 0..batch.due.decodes.len() {
            let row = batch.due.decodes[decode];
            let mut meta = record(batch, row, geometry.lookahead.step_tokens());
            meta.drafts = geometry.lookahead.draft_tokens;
            if meta.start == meta.start_bound {
                let ids = &batch.texts[row as usize].0.tokens;
                meta.anchor = ids.get(meta.start as usize).copied().unwrap_or(ON_DEVICE);
            }
            push(batch, list, &mut flight.rows, meta);
        }
        stats.rows += flight.rows.len() as u64;
        if batch.due.chunks.is_empty() {
            let used = flight.rows.len() as u32;
            let captured = geometry.config.graph_batches.iter().find(|size| **size >= used);
            let padded = captured.copied().filter(|_| used > 0).unwrap_or(used);
            let padded = padded.max(u32::from(batch.wants_dummy));
            (used..padded).for_each(|_| push(batch, list, &mut flight.rows, dummy(geometry)));
        }
        batch.due.chunks.clear();
        batch.due.decodes.clear();
        if flight.rows.is_empty() {
            batch.flights.spare.push(flight);
        } else {
            batch.flights.queue.push_back(flight);
        }
    });
    stats.steps += 1;
    list.seal();
}

/// The record of `row`, whose step is in flight already, computing `tokens`.
#[inline(always)]
fn record(batch: &mut Batch, row: u32, tokens: u32) -> RowMeta {
    let owner = &mut batch.owners[row as usize];
    let lengths = &batch.lengths[row as usize];
    let mut flags = 0;
    if !std::mem::replace(&mut owner.is_announced, true) {
        flags |= FLAG_BOUND;
    }
    if owner.slot == NO_SLOT {
        // No drafter context is stored: nothing up to here may be read or published.
        batch.prefix[row as usize].draft_from = lengths.start_bound();
    } else if !std::mem::replace(&mut owner.is_seeded, true) {
        let is_skipped = is_broken(Fault::Unseeded) && lengths.settled > 0;
        flags |= if is_skipped { 0 } else { FLAG_SEED };
    }
    RowMeta {
        request_low: owner.id as u32,
        request_high: (owner.id >> 32) as u32,
        row,
        flags,
        start: lengths.settled,
        start_bound: lengths.start_bound() - tokens,
        tokens,
        drafts: 0,
        input: 0,
        anchor: ON_DEVICE,
        slot: owner.slot,
        covered: covered(batch, row),
        context_first: batch.prefix[row as usize].draft_from,
    }
}

#[inline(always)]
fn push(batch: &Batch, list: &mut LaunchList, rows: &mut Vec<FlightRow>, meta: RowMeta) {
    list.push_row(meta);
    rows.push(FlightRow {
        request: meta.request(),
        row: meta.row,
        binding: if meta.has(FLAG_DUMMY) { 0 } else { batch.owners[meta.row as usize].binding },
        tokens: meta.tokens,
        is_prefill: meta.flags & FLAG_PREFILL != 0,
        emits: meta.emits(),
    });
}

/// How far a row is backed in every group: up to its last page, never a count of pages, since a
/// window's evicted ones leave a hole in front (kv-cache-rules §5.5).
fn covered(batch: &Batch, row: u32) -> u32 {
    let lengths = &batch.lengths[row as usize];
    if is_broken(Fault::NoHostBound) {
        return 0;
    }
    if is_broken(Fault::CountedExtent) {
        let spans = &batch.spans[row as usize];
        let pages = spans.stale_end.iter().map(|end| spans.extent - end.min(&spans.extent)).min();
        return lengths.covered / spans.extent.max(1) * pages.unwrap_or(0);
    }
    lengths.covered
}

/// A row of the dummy's own pages and slot, whatever runs under any id.
fn dummy(geometry: &Geometry) -> RowMeta {
    let inherited = is_broken(Fault::DummyInherits);
    RowMeta {
        request_low: u32::MAX,
        request_high: u32::MAX,
        row: geometry.config.max_batch,
        flags: FLAG_DUMMY,
        tokens: geometry.lookahead.step_tokens(),
        drafts: geometry.lookahead.draft_tokens,
        slot: if inherited { 0 } else { geometry.drafter_slots() },
        covered: geometry.groups[0].dummy_pages * geometry.config.page_tokens,
        ..RowMeta::default()
    }
}
