//! What can be wrong with a configuration or a request, by name and with the fix.

use thiserror::Error;

/// A configuration that cannot be built: the field, its value and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} = {value}: {fix}")]
#[non_exhaustive]
pub struct ConfigError {
    /// Path of the field, `groups[1].window_tokens` for example.
    pub field: String,
    /// Its value as given.
    pub value: String,
    /// What is required of it.
    pub fix: String,
}

impl ConfigError {
    /// Names `field`, its `value` and the `fix`.
    pub fn new(
        field: impl Into<String>,
        value: impl std::fmt::Display,
        fix: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), value: value.to_string(), fix: fix.into() }
    }
}

/// Why a request is refused. Nothing else is touched by a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// A prompt without tokens.
    #[error("request {request}: prompt is empty: give at least one token")]
    EmptyPrompt {
        /// The request.
        request: u64,
    },
    /// No output asked for.
    #[error("request {request}: max_new_tokens is 0: ask for at least one")]
    NoOutput {
        /// The request.
        request: u64,
    },
    /// Longer than any sequence may be.
    #[error(
        "request {request}: prompt of {prompt_tokens} tokens leaves no room for output below \
         max_seq_len = {max_seq_len}: shorten it or raise max_seq_len"
    )]
    TooLong {
        /// The request.
        request: u64,
        /// Its prompt.
        prompt_tokens: u32,
        /// The limit.
        max_seq_len: u32,
    },
    /// More pages than the whole pool has: it could never run.
    #[error(
        "request {request}: needs {needed_pages} pages of group `{group}`, which has {pages}: \
         it can never run; shorten it or give the group more pages"
    )]
    NeverFits {
        /// The request.
        request: u64,
        /// The group that is too small.
        group: String,
        /// Pages the request needs at its longest.
        needed_pages: u32,
        /// Pages the group has.
        pages: u32,
    },
    /// The inbox or the waiting queue is full.
    #[error(
        "request {request}: {max_waiting} requests wait already: retry later or raise max_waiting"
    )]
    Full {
        /// The request.
        request: u64,
        /// The limit.
        max_waiting: u32,
    },
    /// A live request has this id.
    #[error("request {request}: a live request has this id: ids are unique among live requests")]
    DuplicateId {
        /// The request.
        request: u64,
    },
}

impl SubmitError {
    /// Whether the same request may be taken later as it is.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::DuplicateId { .. })
    }
}

/// Why an outcome is refused. The step stays in flight; nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OutcomeError {
    /// Not the oldest step in flight.
    #[error(
        "outcome of step {step}: step {expected} is the oldest in flight: complete steps in order"
    )]
    WrongStep {
        /// The step named by the outcome.
        step: u64,
        /// The oldest step in flight.
        expected: u64,
    },
    /// No step is in flight.
    #[error("outcome of step {step}: no step is in flight: call step first")]
    NothingInFlight {
        /// The step named by the outcome.
        step: u64,
    },
    /// Not one count for each row of the plan.
    #[error("outcome of step {step}: {counts} counts for {rows} rows: give one for each row")]
    RowCount {
        /// The step.
        step: u64,
        /// Counts given.
        counts: usize,
        /// Rows of the plan.
        rows: usize,
    },
    /// A count outside what the row can emit.
    #[error(
        "outcome of step {step}, row {row} (request {request}): {count} tokens, \
         expected {least} to {most}"
    )]
    Count {
        /// The step.
        step: u64,
        /// Index of the row in the plan.
        row: usize,
        /// Its request.
        request: u64,
        /// Tokens it is said to have emitted.
        count: u32,
        /// Fewest it can emit.
        least: u32,
        /// Most it can emit.
        most: u32,
    },
    /// Tokens and counts disagree.
    #[error("outcome of step {step}: {tokens} tokens given, counts add up to {expected}")]
    TokenCount {
        /// The step.
        step: u64,
        /// Tokens given.
        tokens: usize,
        /// Sum of the counts.
        expected: usize,
    },
}
