//! What can be wrong with a trace.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The most tokens that one input or output of a trace may have: 16 Mi. More is a bad row, not a
/// request.
pub const MAX_TOKENS: u32 = 1 << 24;

/// Why a workload could not be read.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// The file could not be opened.
    #[error("{}: cannot open: {source}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be read to its end.
    #[error("{}:{line}: cannot read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The line that could not be read, from 1.
        line: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The first line belongs to no known format.
    #[error(
        "{}:{line}: not a known trace format: expected a JSON object or the CSV header \
         TIMESTAMP,ContextTokens,GeneratedTokens, found {found}",
        file.display()
    )]
    UnknownFormat {
        /// The file.
        file: PathBuf,
        /// The first line that is not blank, from 1.
        line: u64,
        /// The beginning of that line.
        found: String,
    },
    /// Not one usable request.
    #[error("{}: no requests ({skipped_rows} bad rows skipped)", file.display())]
    NoRequests {
        /// The file.
        file: PathBuf,
        /// Bad rows that were skipped.
        skipped_rows: usize,
    },
    /// A bad row, when these are not skipped.
    #[error(transparent)]
    Row(#[from] RowError),
}

/// A bad row of a trace; displays as `file:line: reason`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{line}: {problem}", file.display())]
pub struct RowError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub problem: RowProblem,
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RowProblem {
    /// The bytes are no text.
    #[error("expected UTF-8 text")]
    NotText,
    /// The line is no JSON object.
    #[error("expected a JSON object: {message}")]
    NotJson {
        /// What the parser said.
        message: String,
    },
    /// A CSV row has the wrong number of fields.
    #[error("expected {expected} comma-separated fields, found {found}")]
    FieldCount {
        /// Fields of the header.
        expected: usize,
        /// Fields of the row.
        found: usize,
    },
    /// A field is not there.
    #[error("{field}: missing, expected {expected}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// A field holds something else than it should.
    #[error("{field}: expected {expected}, found {found}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it should hold.
        expected: &'static str,
        /// What it holds, shortened.
        found: String,
    },
    /// The number of block ids does not fit the length.
    #[error(
        "hash_ids: expected {expected} ids (input_length {input_tokens} / 512, rounded up), found {found}"
    )]
    HashCount {
        /// Tokens of the row's input.
        input_tokens: u32,
        /// Ids that many tokens need.
        expected: usize,
        /// Ids of the row.
        found: usize,
    },
    /// The row may be good, but an earlier turn of its session was bad, so its context is not
    /// known.
    #[error(
        "session_id: the row of session {session:?} in line {bad_line} is bad, so this turn has no context"
    )]
    EarlierTurnBad {
        /// The session.
        session: String,
        /// The line of its first bad row, from 1.
        bad_line: u64,
    },
}

/// `text` in at most 60 characters, for a message.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
