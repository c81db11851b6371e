//! Mooncake traces: JSON lines, one request a row.

use std::io::BufRead;

use super::error::{RowProblem, WorkloadError};
use super::fields::Fields;
use super::rows::Rows;
use super::{Session, Turn};

pub(super) fn parse<R: BufRead>(rows: &mut Rows<R>) -> Result<Vec<Session>, WorkloadError> {
    let mut sessions = Vec::new();
    while let Some((line, text)) = rows.next_row()? {
        match session(&text) {
            Ok(session) => sessions.push(session),
            Err(problem) => rows.reject(line, problem)?,
        }
    }
    Ok(sessions)
}

fn session(text: &str) -> Result<Session, RowProblem> {
    let fields = Fields::parse(text)?;
    Ok(Session {
        start_ns: fields.ms_as_ns("timestamp")?,
        turns: vec![turn(&fields, 0)?],
        priority: 0,
    })
}

/// The turn that a row of either JSON format describes.
pub(super) fn turn(fields: &Fields, delay_ns: u64) -> Result<Turn, RowProblem> {
    Ok(Turn { delay_ns, input: fields.input()?, output_tokens: fields.tokens("output_length")? })
}
