//! Step 6, `admission`: lets waiting requests onto free rows. Reads the queue and the groups' accounts;
//! writes rows, and promises pages for the whole prompt in every group or in none.
//!
//! Order: priority class, then arrival. A request that does not fit lets smaller ones pass, but
//! not for ever: the longest waiting one, passed over `max_passed_over` times, goes first and
//! nothing is admitted past it.

use crate::batch::BatchAccess;
use crate::budget::{Budget, prefill_demand};
use crate::pages::{PageAccess, Pages};
use crate::state::{Ingress, Limits, Running, StepPlan, Waiting};
use bevy_ecs::prelude::*;
use paceline_components::{Event, Geometry, Request, WaitingText};
use std::sync::atomic::Ordering::Relaxed;

/// Requests looked at in one step beyond those admitted: the queue may be long.
const LOOK_PAST: usize = 16;

/// See the module.
pub fn admission(
    limits: Res<Limits>,
    ingress: Res<Ingress>,
    mut waiting: ResMut<Waiting>,
    mut plan: ResMut<StepPlan>,
    mut requests: Query<(&mut Request, &mut WaitingText)>,
    mut batch: BatchAccess,
    mut pages: PageAccess,
) {
    let (running, ..) = batch.lists();
    if waiting.by_class.is_empty() || running.is_starved || running.free_rows.is_empty() {
        return;
    }
    let geometry = &*limits.0;
    pages.with(|pages| {
        batch.with(|batch| {
            let mut demand = prefill_demand(geometry, batch);
            let prefill_tokens = Budget::while_prompts_wait(geometry, batch.running).prefill_tokens;
            let mut passed = None;
            for _ in 0..batch.running.free_rows.len() + LOOK_PAST {
                if batch.running.free_rows.is_empty() || demand >= prefill_tokens {
                    break;
                }
                let Some((class, arrival)) = next(&waiting, passed, geometry) else { break };
                let entity = waiting.by_class[&(class, arrival)];
                let (mut request, mut text) =
                    requests.get_mut(entity).expect("waiting requests live");
                let tokens = text.0.tokens.len() as u32;
                let capacity =
                    geometry.lookahead.capacity(tokens, geometry.lookahead.step_tokens());
                let charge = |group: usize| geometry.charge(&geometry.groups[group], capacity);
                if !fits(pages, batch.running, charge) {
                    if is_overdue(&waiting, arrival, geometry) {
                        break;
                    }
                    passed = Some((class, arrival));
                    continue;
                }
                waiting.remove(class, arrival);
                count_passed_over(&mut waiting, arrival);
                let row = batch.bind(entity, &mut request, std::mem::take(&mut text.0));
                pages.promise(&mut batch.spans[row as usize], charge);
                batch.lengths[row as usize].slide_at = pages.next_slide(&batch.spans[row as usize]);
                demand += tokens.min(geometry.config.chunk_tokens);
                if request.preemptions == 0 {
                    ingress.waiting.fetch_sub(1, Relaxed);
                }
                plan.notes.events.push(Event::Admitted { request: request.id });
            }
        });
    });
}

/// The next request to look at: an overdue one before all others, else the first in line after
/// the last one passed over.
fn next(waiting: &Waiting, passed: Option<(u8, u64)>, geometry: &Geometry) -> Option<(u8, u64)> {
    let (arrival, class) = *waiting.by_arrival.first()?;
    if is_overdue(waiting, arrival, geometry) {
        return Some((class, arrival));
    }
    let mut in_line = match passed {
        None => waiting.by_class.range(..),
        Some(key) => {
            waiting.by_class.range((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded))
        }
    };
    in_line.next().map(|(key, _)| *key)
}

fn is_overdue(waiting: &Waiting, arrival: u64, geometry: &Geometry) -> bool {
    waiting.passed_over.0 == arrival && waiting.passed_over.1 >= geometry.config.max_passed_over
}

/// A later arrival was admitted before the longest waiting request.
fn count_passed_over(waiting: &mut Waiting, admitted: u64) {
    if let Some(&(oldest, _)) = waiting.by_arrival.first()
        && oldest < admitted
    {
        let (arrival, times) = waiting.passed_over;
        waiting.passed_over = (oldest, if arrival == oldest { times + 1 } else { 1 });
    }
}

/// Whether every group can promise the charge and still give each decode row its next page.
fn fits(pages: &Pages, running: &Running, charge: impl Fn(usize) -> u32) -> bool {
    let growth = running.order.len() as u32 - running.prefills;
    pages.free.iter().zip(&*pages.ledgers).enumerate().all(|(group, (free, ledger))| {
        free.0.len() as u32 >= ledger.promised + growth + charge(group)
    })
}
