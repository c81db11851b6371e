//! Workloads: what is asked of an engine, and when.
//!
//! The life of a workload:
//!
//! 1. It is read from a trace ([`open`], [`read`]; the format is told by the content) or generated
//!    from a seed ([`agentic()`]). A bad row ends the reading with an error that names file, line
//!    and field, or, when asked, is set aside in [`Workload::skipped_rows`].
//! 2. It may be cut short with [`Workload::limit`], and [`mod@reuse`] says how much of it a prefix
//!    cache could serve.
//! 3. A driver replays it. Turn 0 of a session is submitted at `start_ns + delay_ns`, turn `t` at
//!    the finish of turn `t - 1` plus `delay_ns`. The prompt of a turn is everything before it (all
//!    earlier inputs and the outputs really produced) followed by its `input`; the tokens come from
//!    [`Text::append_to`]. A driver closes a session after its last turn.
//!
//! Nothing here reads a clock or keeps state between calls: the same file or seed gives the same
//! workload.

pub mod agentic;
mod azure;
mod detect;
mod error;
#[cfg(feature = "pair")]
pub mod eval;
mod fields;
mod mooncake;
pub mod reuse;
pub mod rng;
mod rows;
mod sessions;
#[cfg(test)]
mod tests;
mod text;
mod timestamp;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

pub use agentic::{Agentic, agentic};
pub use error::{MAX_TOKENS, RowError, RowProblem, WorkloadError};
pub use reuse::{token_reuse, upper_bound_reuse};
pub use text::{BLOCK_TOKENS, Text};

use detect::Format;
use rows::Rows;

/// One request of a session: what is added to the context and how much is generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Wait between the finish of the turn before (for turn 0: the session's start) and the
    /// submission, in nanoseconds.
    pub delay_ns: u64,
    /// The tokens that follow everything before in this turn's prompt.
    pub input: Text,
    /// Tokens to generate.
    pub output_tokens: u32,
}

/// A conversation: turns that follow one another in one context. A row of a single-row trace is a
/// session of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// When the session starts, in nanoseconds on the workload's own time line.
    pub start_ns: u64,
    /// The turns, in order.
    pub turns: Vec<Turn>,
    /// Priority for the engine; 0 in every trace and in the generator.
    pub priority: u8,
}

/// Sessions to replay, in order of their start; sessions that start together are in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// A short name for reports: the file's name without its extension, or the generator's name.
    pub name: String,
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Rows of the trace that were bad and left out; empty unless skipping was asked for.
    pub skipped_rows: Vec<RowError>,
}

impl Workload {
    /// The number of requests: turns over all sessions.
    pub fn requests(&self) -> usize {
        self.sessions.iter().map(|session| session.turns.len()).sum()
    }

    /// Keeps the first `max_requests` requests, session by session in order of their start, cutting
    /// the last one short if need be.
    #[must_use]
    pub fn limit(mut self, max_requests: usize) -> Self {
        let mut left = max_requests;
        // The fields are public: a caller may have put sessions together in another order.
        self.sessions.sort_by_key(|session| session.start_ns);
        for session in &mut self.sessions {
            session.turns.truncate(left);
            left -= session.turns.len();
        }
        self.sessions.retain(|session| !session.turns.is_empty());
        self
    }
}

/// Reads the trace at `path`; its content tells the format:
///
/// - Mooncake: JSON lines with `timestamp` (ms), `input_length`, `output_length`, `hash_ids`; one
///   session a row;
/// - multi-turn Mooncake: the same with `session_id`; later turns carry `delay` (ms) and only what
///   they add;
/// - Azure: CSV with the header `TIMESTAMP,ContextTokens,GeneratedTokens`; starts are relative to
///   the first row.
///
/// With `skip_bad`, bad rows go to [`Workload::skipped_rows`]; without, the first one is the error.
/// A file without one usable request is an error either way.
pub fn open(path: impl AsRef<Path>, skip_bad: bool) -> Result<Workload, WorkloadError> {
    let path = path.as_ref();
    let file =
        File::open(path).map_err(|source| WorkloadError::Open { file: path.to_owned(), source })?;
    read(path, BufReader::new(file), skip_bad)
}

/// Reads a trace as [`open`] does, from a reader; `file` names it in errors.
pub fn read(
    file: impl AsRef<Path>,
    reader: impl BufRead,
    skip_bad: bool,
) -> Result<Workload, WorkloadError> {
    let file = file.as_ref();
    let (format, reader) = detect::detect(file, reader)?;
    let mut rows = Rows::new(file, reader, skip_bad);
    let mut sessions = match format {
        Format::Mooncake => mooncake::parse(&mut rows),
        Format::Sessions => sessions::parse(&mut rows),
        Format::Azure => azure::parse(&mut rows),
    }?;
    let skipped_rows = rows.into_skipped();
    if sessions.is_empty() {
        return Err(WorkloadError::NoRequests {
            file: file.to_owned(),
            skipped_rows: skipped_rows.len(),
        });
    }
    sessions.sort_by_key(|session| session.start_ns);
    let name = file.file_stem().unwrap_or(file.as_os_str());
    Ok(Workload { name: name.to_string_lossy().into_owned(), sessions, skipped_rows })
}
