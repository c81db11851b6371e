//! Step 2, `retire`: takes in the outcomes that are back. Reads flights; writes lengths, tokens and
//! notes, and ends requests; `commit` takes them off their rows.
//!
//! An outcome belongs to the binding it was planned for. A row that was cancelled, preempted or
//! finished since has another binding, and its late outcome changes nothing.

use crate::batch::{Batch, BatchAccess};
use crate::pages::PageAccess;
use crate::state::{Directory, Flight, FlightRow, Stats, StepPlan};
use bevy_ecs::prelude::*;
use paceline_components::{Emitted, Event, FinishReason, Request, StepNotes};

/// See the module.
pub fn retire(
    mut commands: Commands,
    mut directory: ResMut<Directory>,
    mut plan: ResMut<StepPlan>,
    mut requests: Query<&mut Request>,
    mut batch: BatchAccess,
    mut pages: PageAccess,
) {
    let StepPlan { notes, stats, .. } = &mut *plan;
    pages.with(|pages| {
        batch.with(|batch| {
            while batch.flights.queue.front().is_some_and(|flight| flight.has_landed) {
                let mut flight = batch.flights.queue.pop_front().expect("just seen");
                for row in flight.rows.iter().filter(|row| row.is_prefill) {
                    let owner = &batch.owners[row.row as usize];
                    if owner.binding == row.binding
                        && let Ok(mut request) = requests.get_mut(owner.request)
                    {
                        request.computed_tokens += u64::from(row.tokens);
                        stats.computed_tokens += u64::from(row.tokens);
                    }
                }
                land(batch, &mut flight, stats, notes, &mut |request, reason, known| {
                    let cold = requests.get_mut(request).expect("a row's request lives");
                    directory.by_id.remove(&cold.id);
                    commands.entity(request).despawn();
                    (finished(&cold, reason, known), cold.conversation)
                });
                pages.lift_fences(flight.step);
                batch.flights.spare.push(flight);
            }
            if batch.flights.queue.is_empty() {
                // Launches of a step without rows are over, too.
                pages.lift_fences(u64::MAX);
            }
        });
    });
}

fn finished(request: &Request, reason: FinishReason, known: u32) -> Event {
    Event::Finished {
        request: request.id,
        reason,
        prompt_tokens: request.prompt_tokens,
        output_tokens: known - request.prompt_tokens,
        computed_tokens: request.computed_tokens,
        preemptions: request.preemptions,
    }
}

fn land(
    batch: &mut Batch,
    flight: &mut Flight,
    stats: &mut Stats,
    notes: &mut StepNotes,
    finish: &mut impl FnMut(Entity, FinishReason, u32) -> (Event, Option<u64>),
) {
    let mut first = notes.take_tokens(&mut flight.outcome.tokens);
    for (row, &count) in flight.rows.iter().zip(&flight.outcome.counts) {
        let emitted = &notes.emitted_tokens[first as usize..(first + count) as usize];
        let place = first;
        first += count;
        if !row.is_prefill {
            stats.decode_rows += 1;
            stats.decode_tokens += u64::from(count);
        }
        if batch.owners[row.row as usize].binding != row.binding {
            continue;
        }
        settle(batch, row, count);
        let (kept, reason) = keep(batch, row.row, emitted);
        if kept > 0 {
            stats.output_tokens += u64::from(kept);
            notes.emitted.push(Emitted { request: row.request, first: place, count: kept });
        }
        if let Some(reason) = reason {
            let owner = &mut batch.owners[row.row as usize];
            let known = batch.lengths[row.row as usize].known;
            stats.finished += 1;
            let (event, conversation) = finish(owner.request, reason, known);
            notes.events.push(event);
            // Whatever else is in flight for the row is late.
            owner.binding = 0;
            batch.due.finished.push((row.row, conversation));
        }
    }
}

/// What was in flight is now history; rejected drafts leave nothing behind.
fn settle(batch: &mut Batch, row: &FlightRow, count: u32) {
    let lengths = &mut batch.lengths[row.row as usize];
    lengths.in_flight -= row.tokens;
    lengths.settled += if row.is_prefill { row.tokens } else { count };
    lengths.emits_in_flight -= u32::from(row.emits.0 > 0);
    if lengths.settled >= lengths.slide_at {
        batch.due.slides.push(row.row);
    }
    if lengths.settled >= lengths.commit_at {
        batch.due.commits.push(row.row);
    }
}

/// Appends `emitted` up to a stop token or the limit; how many are kept, and whether one was met.
fn keep(batch: &mut Batch, row: u32, emitted: &[u32]) -> (u32, Option<FinishReason>) {
    let lengths = &mut batch.lengths[row as usize];
    let text = &mut batch.texts[row as usize].0;
    let room = (lengths.limit - lengths.known) as usize;
    let within = &emitted[..emitted.len().min(room)];
    let stop = if text.stop_tokens.is_empty() {
        None
    } else {
        within.iter().position(|token| text.stop_tokens.contains(token))
    };
    let kept = stop.map_or(within.len(), |at| at + 1);
    // A few tokens: a loop beats a call to copy them.
    text.tokens.extend(within[..kept].iter().copied());
    lengths.known += kept as u32;
    let reason = match stop {
        Some(_) => Some(FinishReason::Stop),
        None => (lengths.known == lengths.limit).then_some(FinishReason::Length),
    };
    (kept as u32, reason)
}
