//! Conversations under the `per_conversation` policy: when a turn has ended, the window pages its
//! predecessor left are dropped, if nobody uses them and the new turn did not take them over.

use crate::batch::Batch;
use crate::pages::Pages;
use ahash::RandomState;
use bevy_ecs::prelude::Resource;
use paceline_components::PublishPolicy;
use std::collections::{HashMap, VecDeque};

/// Window pages the last turn of each conversation left. As many conversations are remembered as
/// requests may wait; the one whose first turn is longest ago is forgotten first.
#[derive(Resource, Debug)]
pub struct Turns {
    left: HashMap<u64, Vec<Left>, RandomState>,
    order: VecDeque<u64>,
}

/// A page in a node: both, since either may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    group: usize,
    slot: u32,
    node: u32,
}

impl Default for Turns {
    fn default() -> Self {
        // Fixed seeds: the same run twice takes the same path.
        let left = HashMap::with_hasher(RandomState::with_seeds(9, 10, 11, 12));
        Self { left, order: VecDeque::new() }
    }
}

impl Turns {
    /// The turn on `row` has ended and published its pages.
    pub fn close(&mut self, pages: &mut Pages, batch: &Batch, row: u32, conversation: Option<u64>) {
        let is_planned = pages.geometry.config.publish == PublishPolicy::PerConversation;
        let Some(conversation) = conversation.filter(|_| is_planned) else { return };
        let now = window_pages(pages, batch, row);
        let before = self.left.insert(conversation, now);
        if before.is_none() {
            self.order.push_back(conversation);
            if self.order.len() > pages.geometry.config.max_waiting as usize {
                self.order.pop_front().map(|oldest| self.left.remove(&oldest));
            }
        }
        let before = before.unwrap_or_default();
        let now = &self.left[&conversation];
        for left in before.into_iter().filter(|left| !now.contains(left)) {
            if pages.node_of(left.group, left.slot) == left.node
                && pages.is_cached(left.group, left.slot)
            {
                pages.withdraw(left.node, left.group);
                pages.index.prune(left.node);
            }
        }
    }
}

fn window_pages(pages: &mut Pages, batch: &Batch, row: u32) -> Vec<Left> {
    let mut left = Vec::new();
    for group in 0..pages.groups() {
        let retention = pages.geometry.groups[group].retention;
        if retention.window_tokens.is_none() {
            continue;
        }
        let [_, window] = batch.spans[row as usize].live(group, retention.sink_pages);
        for ordinal in window {
            let slot = *pages.cell(group, row, ordinal);
            let node = pages.node_of(group, slot);
            if node != paceline_components::NO_NODE {
                left.push(Left { group, slot, node });
            }
        }
    }
    left
}
