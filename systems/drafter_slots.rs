//! Step 9, `drafter_slots`: gives the step's rows a drafter slot, parks the slots of preempted
//! requests and frees those of ended ones. Reads due rows; writes slots and their owners.
//!
//! Without a free slot the one parked longest is reclaimed; without that the row drafts nothing,
//! and asks again in the next step.

use crate::batch::BatchAccess;
use bevy_ecs::prelude::*;
use paceline_components::{IdleSlots, NO_ARRIVAL, SlotOwner};

/// See the module.
pub fn drafter_slots(
    mut batch: BatchAccess,
    mut slots: Query<&mut SlotOwner>,
    mut idle: ResMut<IdleSlots>,
) {
    let due = &mut batch.agenda().due;
    if due.slotless.is_empty() && due.freed_slots.is_empty() && due.parked_slots.is_empty() {
        return;
    }
    let mut columns = slots.contiguous_iter_mut().expect("slots are one dense table");
    let Some(mut owners) = columns.next() else {
        due.slotless.clear();
        return;
    };
    let owners = owners.bypass_change_detection();
    batch.with(|batch| {
        for slot in batch.due.freed_slots.drain(..) {
            owners[slot as usize] = SlotOwner(NO_ARRIVAL);
            idle.free.push_back(slot);
        }
        idle.parked.extend(batch.due.parked_slots.drain(..));
        batch.due.slotless.retain(|&row| {
            let owner = &mut batch.owners[row as usize];
            let Some(slot) = find(&mut idle, owners, owner.arrival) else { return true };
            owners[slot as usize] = SlotOwner(owner.arrival);
            owner.slot = slot;
            owner.is_seeded = false;
            false
        });
    });
}

/// The slot parked for the request, or a free one, or the one parked longest.
fn find(idle: &mut IdleSlots, owners: &[SlotOwner], arrival: u64) -> Option<u32> {
    let own = idle.parked.iter().position(|slot| owners[*slot as usize].0 == arrival);
    match own {
        Some(place) => idle.parked.remove(place),
        None => idle.free.pop_front().or_else(|| idle.parked.pop_front()),
    }
}

/// Frees the slot parked for a request that ends while it waits.
pub fn free_parked(idle: &mut IdleSlots, owners: &mut [SlotOwner], arrival: u64) {
    if let Some(place) = idle.parked.iter().position(|s| owners[*s as usize].0 == arrival)
        && let Some(slot) = idle.parked.remove(place)
    {
        owners[slot as usize] = SlotOwner(NO_ARRIVAL);
        idle.free.push_back(slot);
    }
}
