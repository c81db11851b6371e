//! Resources of the world: queues that have an order, scratch of one step, counters.

use crate::claim::Need;
use ahash::RandomState;
use bevy_ecs::prelude::*;
use crossbeam::queue::ArrayQueue;
use paceline_components::{DraftWindow, Geometry, KeyChain, NewRequest, Outcome, StepNotes};
use paceline_kernels::{LaunchList, PageCopy};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Limits of the world.
#[derive(Resource, Clone, Debug)]
pub struct Limits(pub Arc<Geometry>);

/// What an embedder sends, in order.
#[derive(Debug)]
pub enum Command {
    /// A new request, checked against the limits, the most tokens it may reach, and the keys of
    /// its prompt.
    Submit(NewRequest, u32, KeyChain),
    /// The request with this id ends now.
    Cancel(u64),
}

/// Where commands come in, shared with every handle.
#[derive(Resource, Clone, Debug)]
pub struct Ingress {
    /// Commands not taken in yet.
    pub queue: Arc<ArrayQueue<Command>>,
    /// Requests that wait there or in the world for their first admission.
    pub waiting: Arc<AtomicU32>,
}

/// Live requests by id.
#[derive(Resource, Debug)]
pub struct Directory {
    /// Entity of each live request.
    pub by_id: HashMap<u64, Entity, RandomState>,
    /// Arrivals so far.
    pub arrivals: u64,
}

/// Requests without a row, in the order they are admitted, and in the order they came.
#[derive(Resource, Debug, Default)]
pub struct Waiting {
    /// By priority class, then arrival.
    pub by_class: BTreeMap<(u8, u64), Entity>,
    /// By arrival: class and arrival.
    pub by_arrival: BTreeSet<(u64, u8)>,
    /// The longest waiting request and how many later ones were admitted before it.
    pub passed_over: (u64, u32),
    /// What requests that did not fit would have needed, by arrival.
    pub refusals: BTreeMap<u64, Refusal>,
}

/// Why a request was not admitted when it was last looked at: until that changes it need not be
/// matched again.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// Pages it would have needed.
    pub need: Need,
    /// Look again at this step in any case.
    pub until_step: u64,
}

impl Waiting {
    /// Puts a request in line; a preempted one keeps its old arrival.
    pub fn insert(&mut self, class: u8, arrival: u64, request: Entity) {
        self.by_class.insert((class, arrival), request);
        self.by_arrival.insert((arrival, class));
    }

    /// Takes a request out of line.
    pub fn remove(&mut self, class: u8, arrival: u64) {
        self.by_class.remove(&(class, arrival));
        self.by_arrival.remove(&(arrival, class));
        self.refusals.remove(&arrival);
    }
}

/// The lists that name batch rows: one resource, since every system reads it.
#[derive(Resource, Debug, Default)]
pub struct Agenda {
    /// Number of the step being planned, from 1.
    pub step: u64,
    /// Whether a step without rows gets a dummy row: other ranks run.
    pub wants_dummy: bool,
    /// Rows in use.
    pub running: Running,
    /// Work for later systems of the step.
    pub due: Due,
    /// Steps in flight.
    pub flights: Flights,
}

/// Rows in use.
#[derive(Debug, Default)]
pub struct Running {
    /// By priority class, then arrival: the last is the first to be preempted.
    pub order: Vec<u32>,
    /// Free rows, first in first out.
    pub free_rows: VecDeque<u32>,
    /// Rows whose prompt is not planned to its end.
    pub prefills: u32,
    /// Bindings so far.
    pub bindings: u64,
    /// Decode rows left out lately for want of tokens: where the next step starts.
    pub decode_turn: usize,
    /// A row found no pages: nothing is admitted until it has them.
    pub is_starved: bool,
}

/// A step that has been planned and whose outcome is not taken in.
#[derive(Debug, Default)]
pub struct Flight {
    /// Its number.
    pub step: u64,
    /// Its rows, in plan order.
    pub rows: Vec<FlightRow>,
    /// What came back.
    pub outcome: Outcome,
    /// Whether it came back.
    pub has_landed: bool,
}

/// A row of a step in flight.
#[derive(Clone, Copy, Debug)]
pub struct FlightRow {
    /// Request id.
    pub request: u64,
    /// The row's binding when it was planned; dummy rows have none.
    pub binding: u64,
    /// Batch row.
    pub row: u32,
    /// Most tokens it adds to the history.
    pub tokens: u32,
    /// Fewest and most tokens it emits.
    pub emits: (u32, u32),
    /// Whether it is a chunk of a prompt.
    pub is_prefill: bool,
}

/// Steps in flight, oldest first.
#[derive(Debug, Default)]
pub struct Flights {
    /// At most the overlap depth and the step being planned.
    pub queue: VecDeque<Flight>,
    /// Flights to be used again.
    pub spare: Vec<Flight>,
}

impl Flights {
    /// The newest step in flight: what a row with tokens in flight may still touch.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.queue.back().map(|flight| flight.step)
    }
}

/// Rows and slots that later systems of the step have work on.
#[derive(Debug, Default)]
pub struct Due {
    /// Rows whose settled history lets a page leave a window.
    pub slides: Vec<u32>,
    /// Rows whose settled history fills a page, or reaches another point to publish at.
    pub commits: Vec<u32>,
    /// Rows whose request has ended, and its conversation.
    pub finished: Vec<(u32, Option<u64>)>,
    /// Rows whose pages changed.
    pub tables: Vec<u32>,
    /// Single cells that name another page: group, row, ordinal.
    pub cells: Vec<(u32, u32, u32)>,
    /// Pages to copy.
    pub moves: Vec<PageCopy>,
    /// Rows that grew in the last plan, and the extent they had.
    pub grown: Vec<(u32, u32)>,
    /// Rows without a drafter slot, in the order they ask for one.
    pub slotless: Vec<u32>,
    /// Drafter slots whose request has ended.
    pub freed_slots: Vec<u32>,
    /// Drafter slots whose request was preempted.
    pub parked_slots: Vec<u32>,
    /// Prompt chunks of the step, in order.
    pub chunks: Vec<Scheduled>,
    /// Decode rows of the step, in order.
    pub decodes: Vec<u32>,
}

/// A prompt chunk of the step.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled {
    /// Batch row.
    pub row: u32,
    /// Tokens it computes.
    pub tokens: u32,
}

/// What the step hands out.
#[derive(Resource, Debug)]
pub struct StepPlan {
    /// Device work.
    pub launches: LaunchList,
    /// Events and final tokens.
    pub notes: StepNotes,
    /// Counters since the world was built.
    pub stats: Stats,
}

impl StepPlan {
    /// Empties the plan for `step`.
    pub fn begin(&mut self, step: u64) {
        self.launches.begin(step);
        self.notes.events.clear();
        self.notes.emitted.clear();
        self.notes.emitted_tokens.clear();
    }
}

/// Counters since the world was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps planned.
    pub steps: u64,
    /// Rows planned, dummy rows not counted.
    pub rows: u64,
    /// Prompt tokens computed, recomputation included.
    pub computed_tokens: u64,
    /// Tokens emitted and kept.
    pub output_tokens: u64,
    /// Decode rows that came back.
    pub decode_rows: u64,
    /// Tokens those rows emitted, discarded ones included.
    pub decode_tokens: u64,
    /// Rows that lost their pages.
    pub preemptions: u64,
    /// Requests that ended, cancelled ones included.
    pub finished: u64,
    /// Tokens of all admissions that the prefix index knew, as far as the target can use them.
    pub matched_tokens: u64,
    /// Tokens of all admissions that need not be computed.
    pub claimed_tokens: u64,
    /// Admissions whose drafter window came along, where the match or its last full page ends.
    pub draft_window_selected: u64,
    /// Admissions whose claim was cut for the drafter's window.
    pub draft_window_capped: u64,
    /// Tokens those computed again.
    pub draft_window_recomputed: u64,
}

impl Stats {
    /// Counts an admission.
    pub fn count_claim(&mut self, matched_tokens: u32, claimed_tokens: u32, window: DraftWindow) {
        self.matched_tokens += u64::from(matched_tokens);
        self.claimed_tokens += u64::from(claimed_tokens);
        match window {
            DraftWindow::Selected | DraftWindow::Retried => self.draft_window_selected += 1,
            DraftWindow::Capped => {
                self.draft_window_capped += 1;
                self.draft_window_recomputed += u64::from(matched_tokens - claimed_tokens);
            }
            DraftWindow::None | DraftWindow::Uncapped => {}
        }
    }
}
