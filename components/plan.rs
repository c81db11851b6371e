//! What a step tells the embedder beside its launch list, and what the embedder hands back.

use crate::prefix::DraftWindow;
use serde::{Deserialize, Serialize};

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// A stop token came.
    Stop,
    /// `max_new_tokens` or `max_seq_len` was reached.
    Length,
    /// The embedder cancelled it.
    Cancelled,
}

/// Something that happened to a request in this step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It left the queue and runs.
    Admitted {
        /// The request.
        request: u64,
        /// Leading tokens that the prefix index knows, as far as the target can use them.
        matched_tokens: u32,
        /// Leading tokens it need not compute.
        claimed_tokens: u32,
        /// What became of the drafter's window.
        draft_window: DraftWindow,
    },
    /// It lost its pages and waits to be computed again.
    Preempted {
        /// The request.
        request: u64,
    },
    /// It ended; nothing of it is left but cached pages.
    Finished {
        /// The request.
        request: u64,
        /// Why.
        reason: FinishReason,
        /// Tokens of its prompt.
        prompt_tokens: u32,
        /// Tokens it generated.
        output_tokens: u32,
        /// Prompt tokens computed for it, recomputation included.
        computed_tokens: u64,
        /// Times it was preempted.
        preemptions: u32,
    },
    /// It was refused after it left the inbox.
    Refused {
        /// The request.
        request: u64,
        /// Why.
        error: crate::SubmitError,
    },
}

/// Tokens of a request that became final in this step: a range of
/// [`emitted_tokens`](StepNotes::emitted_tokens).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The request.
    pub request: u64,
    /// First token in `emitted_tokens`.
    pub first: u32,
    /// Number of tokens.
    pub count: u32,
}

/// What happened to requests in a step; cleared when the next one begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepNotes {
    /// Events in the order they happened.
    pub events: Vec<Event>,
    /// Final tokens by request, in the order of the outcome's rows.
    pub emitted: Vec<Emitted>,
    /// The tokens themselves.
    pub emitted_tokens: Vec<u32>,
}

impl StepNotes {
    /// Moves an outcome's tokens in, without a copy where they are the first; where they begin.
    pub fn take_tokens(&mut self, tokens: &mut Vec<u32>) -> u32 {
        let first = self.emitted_tokens.len();
        if first == 0 {
            std::mem::swap(&mut self.emitted_tokens, tokens);
        } else {
            self.emitted_tokens.append(tokens);
        }
        first as u32
    }
}

/// What the engine hands back for one step: for each row of the plan how many tokens it emitted,
/// and those tokens, row after row.
///
/// A decode row emits 1 to K + 1 tokens: the accepted drafts and the one after them. A prompt's
/// last chunk emits exactly one, any other chunk none, a dummy row none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The step.
    pub step: u64,
    /// Emitted tokens of each row.
    pub counts: Vec<u32>,
    /// All emitted tokens.
    pub tokens: Vec<u32>,
}

impl Outcome {
    /// Empties the outcome for `step`, keeping its memory.
    pub fn begin(&mut self, step: u64) {
        self.step = step;
        self.counts.clear();
        self.tokens.clear();
    }

    /// Adds the tokens of the next row.
    pub fn push_row(&mut self, tokens: &[u32]) {
        self.counts.push(tokens.len() as u32);
        self.tokens.extend_from_slice(tokens);
    }
}
