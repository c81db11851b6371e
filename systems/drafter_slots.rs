//! Step 9, `drafter_slots`: gives the rows bound in this step a drafter slot and takes back the slots
//! of released rows. Reads due rows; writes slots and their owners.

use crate::batch::BatchAccess;
use bevy_ecs::prelude::*;
use paceline_components::{FREE_SLOT, FreeDrafterSlots, SlotOwner};

/// See the module.
pub fn drafter_slots(
    mut batch: BatchAccess,
    mut slots: Query<&mut SlotOwner>,
    mut free: ResMut<FreeDrafterSlots>,
) {
    let due = &mut batch.agenda().due;
    if due.bound.is_empty() && due.released_slots.is_empty() {
        return;
    }
    let mut columns = slots.contiguous_iter_mut().expect("slots are one dense table");
    let Some(mut owners) = columns.next() else {
        due.bound.clear();
        return;
    };
    let owners = owners.bypass_change_detection();
    batch.with(|batch| {
        for slot in batch.due.released_slots.drain(..) {
            owners[slot as usize].row = FREE_SLOT;
            free.0.push_back(slot);
        }
        for row in batch.due.bound.drain(..) {
            let owner = &mut batch.owners[row as usize];
            if let Some(slot) = free.0.pop_front() {
                owners[slot as usize] = SlotOwner { row, binding: owner.binding };
                owner.slot = slot;
            }
        }
    });
}
