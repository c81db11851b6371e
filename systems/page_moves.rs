//! Step 10, `page_moves`: hands the step's page copies to the launch list, one batch for all
//! groups. Reads due moves; writes the launch list.

use crate::batch::BatchAccess;
use crate::state::StepPlan;
use bevy_ecs::prelude::*;

/// See the module.
pub fn page_moves(mut batch: BatchAccess, mut plan: ResMut<StepPlan>) {
    for copy in batch.agenda().due.moves.drain(..) {
        plan.launches.push_copy(copy);
    }
}
