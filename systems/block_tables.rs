//! Step 11, `block_tables`: writes the cells that changed as runs. Reads spans and tables of due rows;
//! writes the launch list and what the device shows. Cost follows pages that changed.
//!
//! Between what the device shows of a row and what the row holds there are only two kinds of
//! change: cells that lost their page name the guard slot, cells that gained one name it. When the
//! row has a new owner every held cell counts as gained. No cell is written twice in a step.

use crate::batch::{Batch, BatchAccess};
use crate::pages::{PageAccess, Pages};
use crate::state::StepPlan;
use bevy_ecs::prelude::*;
use paceline_components::{DeviceSpans, Fault, GUARD_SLOT, Spans, is_broken};
use paceline_kernels::{LaunchList, TableDelta};
use std::ops::Range;

/// See the module.
pub fn block_tables(mut batch: BatchAccess, mut pages: PageAccess, mut plan: ResMut<StepPlan>) {
    let due = &mut batch.agenda().due;
    if due.tables.is_empty() && due.cells.is_empty() {
        return;
    }
    pages.with(|pages| batch.with(|batch| emit_due(pages, batch, &mut plan.launches)));
}

/// Writes what has changed of every due row.
pub fn emit_due(pages: &mut Pages, batch: &mut Batch, list: &mut LaunchList) {
    emit_cells(pages, batch, list);
    while let Some(row) = batch.due.tables.pop() {
        let binding = batch.owners[row as usize].binding;
        let spans = &mut batch.spans[row as usize];
        for group in 0..pages.groups() {
            emit(pages, list, group, row, spans, binding);
        }
        let (extent, stale_end) = (spans.extent, spans.stale_end);
        spans.device = DeviceSpans { extent, stale_end, binding };
    }
}

/// Cells that name another page than the device shows, of rows that stay as they are. A cell that
/// was let go since, or never shown, is a change of its row's extent.
fn emit_cells(pages: &mut Pages, batch: &mut Batch, list: &mut LaunchList) {
    for (group, row, column) in batch.due.cells.drain(..) {
        let sinks = pages.geometry.groups[group as usize].retention.sink_pages;
        let spans = &batch.spans[row as usize];
        let has = |live: [Range<u32>; 2]| live.iter().any(|run| run.contains(&column));
        let is_shown = has(spans.device.live(group as usize, sinks))
            && spans.device.binding == batch.owners[row as usize].binding;
        if is_shown && has(spans.live(group as usize, sinks)) {
            let table = pages.table_of(group as usize, row);
            let slot = *pages.cell(group as usize, row, column);
            list.push_delta(TableDelta { table, column, count: 1, slot });
        }
    }
}

fn emit(
    pages: &mut Pages,
    list: &mut LaunchList,
    group: usize,
    row: u32,
    spans: &Spans,
    binding: u64,
) {
    let sinks = pages.geometry.groups[group].retention.sink_pages;
    let table = pages.table_of(group, row);
    let shown = spans.device.live(group, sinks);
    let held = spans.live(group, sinks);
    for run in shown.iter().flat_map(|run| without(run, &held)).filter(|run| !run.is_empty()) {
        let count = run.end - run.start;
        list.push_delta(TableDelta { table, column: run.start, count, slot: GUARD_SLOT });
    }
    let is_known = spans.device.binding == binding && !is_broken(Fault::WholeRows);
    let known = if is_known { shown } else { [0..0, 0..0] };
    for column in held.iter().flat_map(|run| without(run, &known)).flatten() {
        let slot = *pages.cell(group, row, column);
        list.push_delta(TableDelta { table, column, count: 1, slot });
    }
}

/// The parts of `run` outside two ascending ranges of which the first starts at 0.
fn without(run: &Range<u32>, [low, high]: &[Range<u32>; 2]) -> [Range<u32>; 2] {
    let cut = |from: u32, to: u32| from.max(run.start)..to.min(run.end);
    [cut(low.end, high.start), cut(high.end, u32::MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_two_ranges_is_what_no_range_has() {
        for (low, start, end) in [(0, 0, 0), (0, 3, 6), (2, 2, 2), (2, 4, 9), (1, 1, 12)] {
            let held = [0..low, start..end];
            let outside: Vec<u32> = without(&(0..10), &held).into_iter().flatten().collect();
            let expected: Vec<u32> =
                (0..10).filter(|c| !held.iter().any(|r| r.contains(c))).collect();
            assert_eq!(outside, expected, "{held:?}");
        }
    }
}
