//! Step 6, `admission`: lets waiting requests onto free rows with what the prefix index has for
//! them. Reads the queue, the index and the groups' accounts; writes rows, holds claimed pages and
//! promises the rest of the prompt, in every group or in none.
//!
//! Order: priority class, then arrival. A request that does not fit lets smaller ones pass, but
//! not for ever: the longest waiting one, passed over `max_passed_over` times, goes first and
//! nothing is admitted past it.

use crate::batch::{Batch, BatchAccess};
use crate::branch_cap::{Decision, branch_cap};
use crate::budget::{Budget, prefill_demand};
use crate::claim::{Need, claim};
use crate::matching::Match;
use crate::pages::{PageAccess, Pages};
use crate::state::{Ingress, Limits, Refusal, StepPlan, Waiting};
use bevy_ecs::prelude::*;
use paceline_components::{Event, Geometry, PublishPolicy, Request, Text, WaitingText};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

/// Requests looked at in one step beyond those admitted: the queue may be long.
const LOOK_PAST: usize = 16;

/// See the module.
pub fn admission(
    limits: Res<Limits>,
    ingress: Res<Ingress>,
    mut waiting: ResMut<Waiting>,
    mut plan: ResMut<StepPlan>,
    mut found: Local<Match>,
    mut requests: Query<(&mut Request, &mut WaitingText)>,
    mut batch: BatchAccess,
    mut pages: PageAccess,
) {
    let running = &batch.agenda().running;
    if waiting.by_class.is_empty() || running.is_starved || running.free_rows.is_empty() {
        return;
    }
    let geometry = &*limits.0;
    pages.with(|pages| {
        batch.with(|batch| {
            let mut demand = prefill_demand(geometry, batch);
            let prefill_tokens = Budget::while_prompts_wait(geometry, batch.running).prefill_tokens;
            let mut cells = geometry.columns;
            let mut passed = None;
            for _ in 0..batch.running.free_rows.len() + LOOK_PAST {
                if batch.running.free_rows.is_empty() || demand >= prefill_tokens {
                    break;
                }
                let Some((class, arrival)) = next(&waiting, passed, geometry) else { break };
                let entity = waiting.by_class[&(class, arrival)];
                let (mut request, mut text) =
                    requests.get_mut(entity).expect("waiting requests live");
                let text = &mut text.0;
                let refusal = waiting.refusals.get(&arrival);
                let decision = if refusal.is_some_and(|r| still_holds(r, pages, batch)) {
                    None
                } else {
                    let decided = decide(pages, batch, &mut found, text);
                    decided.map_err(|refusal| waiting.refusals.insert(arrival, refusal)).ok()
                };
                let claimed = decision.map_or(0, |d| d.claim_tokens);
                let pages_claimed = claimed.div_ceil(geometry.config.page_tokens);
                let Some(decision) = decision.filter(|_| pages_claimed <= cells) else {
                    if is_overdue(&waiting, arrival, geometry) {
                        break;
                    }
                    passed = Some((class, arrival));
                    continue;
                };
                cells -= pages_claimed;
                waiting.remove(class, arrival);
                count_passed_over(&mut waiting, arrival);
                let tokens = text.tokens.len() as u32;
                let row = batch.bind(entity, &mut request, std::mem::take(text));
                claim(pages, batch, row, &found, decision);
                demand += (tokens - decision.claim_tokens).min(geometry.config.chunk_tokens);
                if request.preemptions == 0 {
                    ingress.waiting.fetch_sub(1, Relaxed);
                }
                plan.stats.count_claim(found.tokens, decision.claim_tokens, decision.window);
                plan.notes.events.push(Event::Admitted {
                    request: request.id,
                    matched_tokens: found.tokens,
                    claimed_tokens: decision.claim_tokens,
                    draft_window: decision.window,
                });
            }
        });
    });
}

/// Steps after which a refused request is looked at in any case: more of it may be known by then,
/// or held by others.
const LOOK_AGAIN_STEPS: u64 = 16;

/// Whether a request would be refused again for the same reason.
fn still_holds(refusal: &Refusal, pages: &Pages, batch: &Batch) -> bool {
    batch.step < refusal.until_step && !refusal.need.fits(pages, growth(batch))
}

/// Decode rows, each of which is sure of its next page.
fn growth(batch: &Batch) -> u32 {
    batch.running.order.len() as u32 - batch.running.prefills
}

/// What a request would claim, if it fits now. Where a partial page would not fit beside its copy
/// the claim ends at the last full page.
fn decide(
    pages: &mut Pages,
    batch: &Batch,
    found: &mut Match,
    text: &mut Text,
) -> Result<Decision, Refusal> {
    let length = text.tokens.len() as u32;
    if pages.geometry.config.publish == PublishPolicy::Off {
        *found = Match { nodes: std::mem::take(&mut found.nodes), ..Match::default() };
    } else {
        text.extend_keys(length);
        found.find(pages, text);
    }
    let page = pages.geometry.config.page_tokens;
    let refusal = |need, steps| Refusal { need, until_step: batch.step + steps };
    let decision = branch_cap(pages, found, length, u32::MAX);
    let need = Need::of(pages, found, &decision, length);
    if is_being_computed(pages, batch, found, text) {
        return Err(refusal(need, 0));
    }
    if need.fits(pages, growth(batch)) {
        return Ok(decision);
    }
    let full = branch_cap(pages, found, length, decision.claim_tokens / page * page);
    let need = Need::of(pages, found, &full, length);
    if need.fits(pages, growth(batch)) { Ok(full) } else { Err(refusal(need, LOOK_AGAIN_STEPS)) }
}

/// Whether a row computes the very page this request would start with: it is worth waiting for
/// (kv-cache-rules §9.5.7).
fn is_being_computed(pages: &Pages, batch: &Batch, found: &Match, text: &Text) -> bool {
    if batch.running.prefills == 0 || pages.geometry.config.publish != PublishPolicy::AllReusable {
        return false;
    }
    let next = (found.divergence_tokens / pages.geometry.config.page_tokens) as usize;
    // The last token is computed anyway.
    let Some(key) = text.chain.keys().get(next).filter(|_| text.chain.keys().len() > next + 1)
    else {
        return false;
    };
    batch.running.order.iter().any(|&row| {
        let at = row as usize;
        batch.lengths[at].settled < batch.lengths[at].prefill_end
            && batch.prefix[at].published_pages as usize <= next
            && batch.texts[at].0.chain.keys().get(next) == Some(key)
    })
}

/// The next request to look at: an overdue one before all others, else the first in line after
/// the last one passed over.
fn next(waiting: &Waiting, passed: Option<(u8, u64)>, geometry: &Geometry) -> Option<(u8, u64)> {
    let (arrival, class) = *waiting.by_arrival.first()?;
    if is_overdue(waiting, arrival, geometry) {
        return Some((class, arrival));
    }
    let after = passed.map_or(Bound::Unbounded, Bound::Excluded);
    waiting.by_class.range((after, Bound::Unbounded)).next().map(|(key, _)| *key)
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
