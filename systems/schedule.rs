//! The step: a fixed schedule, fully ordered, on one thread.
//!
//! | # | system | reads → writes |
//! | --- | --- | --- |
//! | 1 | [`ingest`] | inbox → new requests, cancels |
//! | 2 | [`retire`] | outcomes of earlier steps → lengths, tokens, finished requests |
//! | 3 | [`commit`] | full pages, ended sequences → prefix index |
//! | 4 | [`window_slide`] | settled history → pages out of a window go |
//! | 6 | [`admission`] | waiting requests, prefix index → rows, claims, promises in every group or in none |
//! | 7 | [`branch_cap`](crate::branch_cap()) | called by `admission`: caps a claim without a complete drafter window |
//! | 8 | [`extent`] | token budget, chunks → capacity in every group or in none; preemption |
//! | 9 | [`drafter_slots`] | bound and released rows → slots |
//! | 10 | [`page_moves`] | copies of partial pages → one batch |
//! | 11 | [`block_tables`] | changed pages → runs of cells |
//! | 13 | [`seal`] | the step's rows → launch list, step in flight |

use crate::{
    admission::admission, block_tables::block_tables, commit::commit, drafter_slots::drafter_slots,
    extent::extent, ingest::ingest, page_moves::page_moves, retire::retire, seal::seal,
    window_slide::window_slide,
};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, SingleThreadedExecutor};

/// The schedule of a step.
#[must_use]
pub fn schedule() -> Schedule {
    let mut schedule = Schedule::default();
    schedule.set_executor(SingleThreadedExecutor::new());
    schedule.set_build_settings(ScheduleBuildSettings {
        ambiguity_detection: LogLevel::Error,
        ..ScheduleBuildSettings::default()
    });
    schedule.add_systems(
        (
            ingest,
            retire,
            commit,
            window_slide,
            admission,
            extent,
            drafter_slots,
            page_moves,
            block_tables,
            seal,
        )
            .chain(),
    );
    schedule
}
