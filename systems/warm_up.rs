//! Warm-up: plans of a given shape for an engine to capture or compile with, before any request.
//!
//! A warm-up batch takes pages and rows straight, runs through no queue, and gives everything back
//! in the order that restores the free lists; counters and prefix index do not see it. Ids repeat
//! from batch to batch, so every row seeds its drafter slot from this batch's position
//! (kv-cache-rules §10 I-5).

use crate::batch::{Batch, BatchAccess};
use crate::block_tables::emit_due;
use crate::pages::{PageAccess, Pages};
use crate::state::StepPlan;
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemState;
use paceline_components::{Fault, NO_SLOT, RowOwner, Spans, is_broken};
use paceline_kernels::{FLAG_BOUND, FLAG_LAST_CHUNK, FLAG_PREFILL, FLAG_SEED, LaunchList, RowMeta};
use thiserror::Error;

/// A batch to warm up with: `rows` equal rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// Rows.
    pub rows: u32,
    /// Tokens of history each row has.
    pub context_tokens: u32,
    /// Tokens each row computes as a prompt's last chunk; none: a decode row.
    pub chunk_tokens: Option<u32>,
}

/// Why there is no plan of that shape. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WarmUpError {
    /// Requests wait or run.
    #[error("warm-up while requests wait or run: warm up before the first submit, or when idle")]
    Busy,
    /// The shape exceeds a limit.
    #[error("warm-up of {rows} rows: {field} takes at most {most}")]
    TooLarge {
        /// Rows asked for.
        rows: u32,
        /// The limit's name.
        field: &'static str,
        /// The limit.
        most: u32,
    },
    /// The pools are too small for it.
    #[error("warm-up of {rows} rows: group `{group}` has {pages} free pages, {needed} are needed")]
    NoPages {
        /// Rows asked for.
        rows: u32,
        /// The group.
        group: String,
        /// Pages it has.
        pages: u32,
        /// Pages it would need.
        needed: u32,
    },
}

/// Builds the plan of `shape` into the world's step plan and gives its pages back: they are shown to
/// the device until the next plan.
///
/// # Errors
/// See [`WarmUpError`].
pub fn warm_up(
    world: &mut World,
    state: &mut SystemState<(BatchAccess<'static, 'static>, PageAccess<'static, 'static>)>,
    shape: WarmUp,
) -> Result<(), WarmUpError> {
    world.resource_scope(|world, mut plan: Mut<StepPlan>| {
        let (mut batch, mut pages) = state.get_mut(world).expect("the world was built whole");
        pages.with(|pages| {
            batch.with(|batch| {
                check(pages, batch, shape)?;
                let ledgers = pages.ledgers.to_vec();
                (0..shape.rows).for_each(|row| take(pages, batch, row, shape));
                emit_due(pages, batch, &mut plan.launches);
                for row in 0..shape.rows {
                    show(pages, batch, &mut plan.launches, row, shape);
                }
                plan.launches.seal();
                for row in (0..shape.rows).rev() {
                    pages.release(row, &mut batch.spans[row as usize], None);
                    batch.owners[row as usize] = RowOwner::FREE;
                    batch.due.tables.push(row);
                }
                pages.ledgers.copy_from_slice(&ledgers);
                Ok(())
            })
        })
    })
}

fn computed(pages: &Pages, shape: WarmUp) -> u32 {
    shape.chunk_tokens.unwrap_or(pages.geometry.lookahead.step_tokens())
}

/// What a row of `shape` holds.
fn spans(pages: &Pages, shape: WarmUp) -> Spans {
    let page = pages.geometry.config.page_tokens;
    let capacity = pages.geometry.lookahead.capacity(shape.context_tokens, computed(pages, shape));
    let mut spans = Spans { extent: capacity.div_ceil(page), ..Spans::default() };
    for (end, group) in spans.stale_end.iter_mut().zip(&pages.geometry.groups) {
        *end = group.retention.stale(shape.context_tokens).end;
    }
    spans
}

fn check(pages: &Pages, batch: &Batch, shape: WarmUp) -> Result<(), WarmUpError> {
    let rows = shape.rows;
    let config = &pages.geometry.config;
    if !batch.running.order.is_empty() || !batch.flights.queue.is_empty() {
        return Err(WarmUpError::Busy);
    }
    let tokens = computed(pages, shape);
    let limits = [
        ("max_batch", rows, config.max_batch),
        ("max_seq_len", shape.context_tokens.saturating_add(tokens), config.max_seq_len),
        ("token_budget", rows.saturating_mul(tokens), config.token_budget),
    ];
    for (field, value, most) in limits {
        if value > most {
            return Err(WarmUpError::TooLarge { rows, field, most });
        }
    }
    let spans = spans(pages, shape);
    for group in 0..pages.groups() {
        let sinks = pages.geometry.groups[group].retention.sink_pages;
        let (needed, free) = (rows * spans.held(group, sinks), pages.free_pages(group));
        if needed > free {
            let group = pages.geometry.groups[group].name.clone();
            return Err(WarmUpError::NoPages { rows, group, pages: free, needed });
        }
    }
    Ok(())
}

fn take(pages: &mut Pages, batch: &mut Batch, row: u32, shape: WarmUp) {
    let at = row as usize;
    let device = batch.spans[at].device;
    batch.spans[at] = Spans { device, ..spans(pages, shape) };
    for group in 0..pages.groups() {
        let sinks = pages.geometry.groups[group].retention.sink_pages;
        for ordinal in batch.spans[at].live(group, sinks).into_iter().flatten() {
            let slot = pages.take(group);
            *pages.cell(group, row, ordinal) = slot;
        }
    }
    batch.running.bindings += 1;
    batch.owners[at].binding = batch.running.bindings;
    batch.due.tables.push(row);
}

fn show(pages: &Pages, batch: &Batch, list: &mut LaunchList, row: u32, shape: WarmUp) {
    let geometry = pages.geometry;
    let tokens = computed(pages, shape);
    let mut meta = RowMeta {
        request_low: row,
        row,
        flags: if is_broken(Fault::WarmUpInherits) { 0 } else { FLAG_BOUND | FLAG_SEED },
        start: shape.context_tokens,
        start_bound: shape.context_tokens,
        tokens,
        slot: if row < geometry.drafter_slots() { row } else { NO_SLOT },
        covered: batch.spans[row as usize].extent * geometry.config.page_tokens,
        ..RowMeta::default()
    };
    if shape.chunk_tokens.is_some() {
        meta.flags |= FLAG_PREFILL | FLAG_LAST_CHUNK;
        meta.input = list.inputs().len() as u32;
        (0..tokens).for_each(|_| _ = list.push_inputs(&[0]));
    } else {
        meta.drafts = geometry.lookahead.draft_tokens;
    }
    list.push_row(meta);
}
