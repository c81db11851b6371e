//! Azure LLM inference traces: CSV with time, prompt and output length. They name no blocks, so
//! every request gets text of its own and nothing can be reused.

use std::io::BufRead;

use super::error::{RowProblem, WorkloadError, shorten};
use super::fields::{EXPECTED_TOKENS, checked_tokens};
use super::rows::Rows;
use super::text::{BLOCK_TOKENS, Text};
use super::timestamp::ns_since_1970;
use super::{Session, Turn};

const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];
const EXPECTED_TIME: &str =
    "YYYY-MM-DD HH:MM:SS with at most 7 fraction digits, a date from 1970 to 2399";
const EXPECTED_LATER: &str = "a time that is not before the first row's";

/// Whether `line` is the header of such a trace.
pub(super) fn is_header(line: &str) -> bool {
    line.split(',').map(str::trim).eq(COLUMNS)
}

pub(super) fn parse<R: BufRead>(rows: &mut Rows<R>) -> Result<Vec<Session>, WorkloadError> {
    let mut sessions = Vec::new();
    let mut origin_ns = None;
    let mut next_hash_id = 0;
    rows.next_row()?;
    while let Some((line, text)) = rows.next_row()? {
        let row = match row(&text, origin_ns) {
            Ok(row) => row,
            Err(problem) => {
                rows.reject(line, problem)?;
                continue;
            }
        };
        let origin_ns = *origin_ns.get_or_insert(row.time_ns);
        let blocks = u64::from(row.input_tokens.div_ceil(BLOCK_TOKENS));
        let input = Text::Blocks {
            hash_ids: (next_hash_id..next_hash_id + blocks).collect(),
            tokens: row.input_tokens,
        };
        next_hash_id += blocks;
        let turn = Turn { delay_ns: 0, input, output_tokens: row.output_tokens };
        sessions.push(Session {
            start_ns: row.time_ns - origin_ns,
            turns: vec![turn],
            priority: 0,
        });
    }
    Ok(sessions)
}

struct Row {
    time_ns: u64,
    input_tokens: u32,
    output_tokens: u32,
}

fn row(text: &str, origin_ns: Option<u64>) -> Result<Row, RowProblem> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let &[time, input, output] = fields.as_slice() else {
        return Err(RowProblem::FieldCount { expected: COLUMNS.len(), found: fields.len() });
    };
    let time_ns = ns_since_1970(time).ok_or_else(|| wrong(COLUMNS[0], EXPECTED_TIME, time))?;
    if origin_ns.is_some_and(|origin_ns| time_ns < origin_ns) {
        return Err(wrong(COLUMNS[0], EXPECTED_LATER, time));
    }
    Ok(Row {
        time_ns,
        input_tokens: tokens(COLUMNS[1], input)?,
        output_tokens: tokens(COLUMNS[2], output)?,
    })
}

fn tokens(field: &'static str, text: &str) -> Result<u32, RowProblem> {
    let tokens = text.parse().ok().and_then(checked_tokens);
    tokens.ok_or_else(|| wrong(field, EXPECTED_TOKENS, text))
}

fn wrong(field: &'static str, expected: &'static str, found: &str) -> RowProblem {
    RowProblem::Field { field, expected, found: format!("{:?}", shorten(found)) }
}
