//! Undoing a planned step that does not run: under attention-DP every rank runs a step or none
//! does (kv-cache-rules §9.8).
//!
//! What the step would have computed is taken out of flight and the pages it grew by are given
//! back, exactly. Admissions and preemptions stand. The step's launches were or will be submitted:
//! the next plan tells the device what has changed since.

use crate::batch::BatchAccess;
use crate::pages::PageAccess;
use crate::state::StepPlan;
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemState;
use paceline_kernels::{FLAG_BOUND, FLAG_DUMMY, FLAG_SEED};

/// Takes back the newest step in flight; false when none is.
pub fn withdraw(
    world: &mut World,
    state: &mut SystemState<(BatchAccess<'static, 'static>, PageAccess<'static, 'static>)>,
) -> bool {
    world.resource_scope(|world, mut plan: Mut<StepPlan>| {
        let (mut batch, mut pages) = state.get_mut(world).expect("the world was built whole");
        let step = plan.launches.step();
        pages.with(|pages| {
            batch.with(|batch| {
                let Some(flight) = batch.flights.queue.pop_back_if(|flight| flight.step == step)
                else {
                    return false;
                };
                for (row, meta) in flight.rows.iter().zip(plan.launches.rows()) {
                    if meta.has(FLAG_DUMMY) {
                        continue;
                    }
                    let at = row.row as usize;
                    let lengths = &mut batch.lengths[at];
                    let was_prefill = lengths.is_prefill();
                    lengths.in_flight -= row.tokens;
                    lengths.emits_in_flight -= u32::from(row.emits.0 > 0);
                    batch.running.prefills += u32::from(lengths.is_prefill() && !was_prefill);
                    batch.owners[at].is_announced &= !meta.has(FLAG_BOUND);
                    batch.owners[at].is_seeded &= !meta.has(FLAG_SEED);
                }
                for (row, extent) in batch.due.grown.drain(..) {
                    pages.shrink(row, &mut batch.spans[row as usize], extent);
                    batch.lengths[row as usize].covered =
                        extent * pages.geometry.config.page_tokens;
                    batch.due.tables.push(row);
                }
                plan.stats.steps -= 1;
                plan.stats.rows -= flight.rows.iter().filter(|row| row.binding != 0).count() as u64;
                batch.flights.spare.push(flight);
                true
            })
        })
    })
}
