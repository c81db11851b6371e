//! Step 1, `ingest`: takes commands out of the inbox. Reads the inbox; writes requests, the queue, and
//! rows that are cancelled. Nothing else reacts to the outside.

use crate::batch::BatchAccess;
use crate::drafter_slots::free_parked;
use crate::pages::PageAccess;
use crate::state::{Command, Directory, Ingress, StepPlan, Waiting};
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemState;
use paceline_components::{
    Event, FinishReason, IdleSlots, KeyChain, NewRequest, Request, SlotOwner, SubmitError, Text,
    WaitingText,
};
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
pub fn ingest(world: &mut World, rows: &mut SystemState<(BatchAccess, PageAccess)>) {
    let ingress = world.resource::<Ingress>().clone();
    // What comes after this step began belongs to the next.
    for _ in 0..ingress.queue.len() {
        match ingress.queue.pop() {
            None => break,
            Some(Command::Submit(request, limit_tokens, chain)) => {
                submit(world, &ingress, request, limit_tokens, chain);
            }
            Some(Command::Cancel(id)) => cancel(world, &ingress, rows, id),
        }
    }
}

fn submit(
    world: &mut World,
    ingress: &Ingress,
    new: NewRequest,
    limit_tokens: u32,
    mut chain: KeyChain,
) {
    let NewRequest { id, prompt: mut tokens, stop_tokens, class, conversation, .. } = new;
    let mut directory = world.resource_mut::<Directory>();
    if directory.by_id.contains_key(&id) {
        ingress.waiting.fetch_sub(1, Relaxed);
        let error = SubmitError::DuplicateId { request: id };
        world.resource_mut::<StepPlan>().notes.events.push(Event::Refused { request: id, error });
        return;
    }
    let arrival = directory.arrivals;
    directory.arrivals += 1;
    let prompt_tokens = tokens.len() as u32;
    // Room for the whole output is taken and touched now, so that decoding allocates nothing.
    tokens.resize(limit_tokens as usize, 0);
    tokens.truncate(prompt_tokens as usize);
    chain.reserve(limit_tokens);
    let request = Request {
        id,
        arrival,
        class,
        prompt_tokens,
        limit_tokens,
        computed_tokens: 0,
        preemptions: 0,
        conversation,
        row: None,
    };
    let entity = world.spawn((request, WaitingText(Text { tokens, stop_tokens, chain }))).id();
    world.resource_mut::<Directory>().by_id.insert(id, entity);
    world.resource_mut::<Waiting>().insert(class, arrival, entity);
}

/// Ends a request wherever it is. An unknown id is a request that has ended: nothing happens.
fn cancel(
    world: &mut World,
    ingress: &Ingress,
    rows: &mut SystemState<(BatchAccess, PageAccess)>,
    id: u64,
) {
    let Some(entity) = world.resource_mut::<Directory>().by_id.remove(&id) else { return };
    let request = world.get::<Request>(entity).expect("the directory names live requests").clone();
    let text = match request.row {
        None => {
            world.resource_mut::<Waiting>().remove(request.class, request.arrival);
            if request.preemptions == 0 {
                ingress.waiting.fetch_sub(1, Relaxed);
            } else {
                free_slot(world, request.arrival);
            }
            world.get_mut::<WaitingText>(entity).map(|mut t| std::mem::take(&mut t.0))
        }
        Some(row) => {
            let (mut batch, mut pages) = rows.get_mut(world).expect("the world was built whole");
            Some(pages.with(|pages| batch.with(|batch| batch.release(pages, row))))
        }
    };
    world.despawn(entity);
    world.resource_mut::<StepPlan>().stats.finished += 1;
    let known = text.map_or(0, |text| text.tokens.len() as u32);
    world.resource_mut::<StepPlan>().notes.events.push(Event::Finished {
        request: id,
        reason: FinishReason::Cancelled,
        prompt_tokens: request.prompt_tokens,
        output_tokens: known.saturating_sub(request.prompt_tokens),
        computed_tokens: request.computed_tokens,
        preemptions: request.preemptions,
    });
}

/// A preempted request may have a drafter slot parked.
fn free_slot(world: &mut World, arrival: u64) {
    world.resource_scope(|world, mut idle: Mut<IdleSlots>| {
        let mut slots = world.query::<&mut SlotOwner>();
        let mut columns = slots.contiguous_iter_mut(world).expect("slots are one dense table");
        if let Some(mut owners) = columns.next() {
            free_parked(&mut idle, owners.bypass_change_detection(), arrival);
        }
    });
}
