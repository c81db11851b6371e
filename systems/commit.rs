//! Step 3, `commit`: publishes pages that are full, and everything of a sequence that ends, and
//! takes ended requests off their rows. Reads settled history; writes the prefix index.
//!
//! It comes before `window_slide`, so that a page is published before it leaves its window.

use crate::batch::{Batch, BatchAccess};
use crate::pages::{PageAccess, Pages};
use crate::publish::{Tail, publish};
use crate::turns::Turns;
use bevy_ecs::prelude::*;
use paceline_components::{Geometry, PublishPolicy};

/// See the module.
pub fn commit(mut batch: BatchAccess, mut pages: PageAccess, mut turns: ResMut<Turns>) {
    let due = &mut batch.agenda().due;
    if due.commits.is_empty() && due.finished.is_empty() {
        return;
    }
    pages.with(|pages| {
        batch.with(|batch| {
            while let Some(row) = batch.due.commits.pop() {
                // An ended row has no binding any more.
                if batch.owners[row as usize].binding != 0 {
                    advance(pages, batch, row);
                }
            }
            for ended in 0..batch.due.finished.len() {
                let (row, conversation) = batch.due.finished[ended];
                end(pages, batch, row);
                turns.close(pages, batch, row, conversation);
                batch.release(pages, row);
            }
            batch.due.finished.clear();
        });
    });
}

/// Publishes what a running sequence has settled.
fn advance(pages: &mut Pages, batch: &mut Batch, row: u32) {
    let lengths = &batch.lengths[row as usize];
    let (settled, prefill_end) = (lengths.settled, lengths.prefill_end);
    let is_branch = settled == batch.prefix[row as usize].branch_point;
    let is_snapshot = match pages.geometry.config.publish {
        PublishPolicy::PerRequest | PublishPolicy::PerConversation => settled == prefill_end,
        PublishPolicy::AllReusable | PublishPolicy::Off => false,
    };
    let tail = if is_branch || is_snapshot { Tail::Copy } else { Tail::Leave };
    publish(pages, batch, row, settled, tail);
    batch.lengths[row as usize].commit_at = next_commit(pages.geometry, batch, row);
}

/// Publishes all of a sequence that has ended, its partial last page included.
fn end(pages: &mut Pages, batch: &mut Batch, row: u32) {
    let lengths = &batch.lengths[row as usize];
    // A stop inside an accepted run leaves positions behind the last kept token.
    let frontier = lengths.settled.min(lengths.known);
    if pages.geometry.config.publish != PublishPolicy::Off {
        publish(pages, batch, row, frontier, Tail::Give);
    }
}

/// Settled history at which `row` next has something to publish.
#[must_use]
pub fn next_commit(geometry: &Geometry, batch: &Batch, row: u32) -> u32 {
    let prefix = &batch.prefix[row as usize];
    let lengths = &batch.lengths[row as usize];
    let later = |at: u32| if at > lengths.settled { at } else { u32::MAX };
    let branch = later(prefix.branch_point);
    match geometry.config.publish {
        PublishPolicy::AllReusable => {
            branch.min((prefix.published_pages + 1) * geometry.config.page_tokens)
        }
        PublishPolicy::PerRequest | PublishPolicy::PerConversation => {
            branch.min(later(lengths.prefill_end))
        }
        PublishPolicy::Off => u32::MAX,
    }
}
