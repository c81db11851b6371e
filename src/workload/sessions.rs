//! Multi-turn Mooncake traces: JSON lines with `session_id`. The first row of a session carries
//! `timestamp`, each later row `delay` and only what it adds: the context is everything before and
//! the output of the turn before. Rows of different sessions may be interleaved.

use std::collections::HashMap;
use std::io::BufRead;

use super::error::{RowProblem, WorkloadError};
use super::fields::Fields;
use super::mooncake::turn;
use super::rows::Rows;
use super::{Session, Turn};

/// What is known of a session id.
enum Known {
    /// Its session's place in the list.
    At(usize),
    /// The line of its first bad row.
    BadSince(u64),
}

pub(super) fn parse<R: BufRead>(rows: &mut Rows<R>) -> Result<Vec<Session>, WorkloadError> {
    let mut sessions: Vec<Session> = Vec::new();
    let mut known: HashMap<String, Known> = HashMap::new();
    while let Some((line, text)) = rows.next_row()? {
        let fields = Fields::parse(&text);
        let named = fields.and_then(|fields| Ok((fields.name("session_id")?.to_owned(), fields)));
        let (id, fields) = match named {
            Ok(named) => named,
            Err(problem) => {
                rows.reject(line, problem)?;
                continue;
            }
        };
        let problem = match known.get(&id) {
            Some(&Known::BadSince(bad_line)) => {
                let session = id.clone();
                rows.reject(line, RowProblem::EarlierTurnBad { session, bad_line })?;
                continue;
            }
            Some(&Known::At(place)) => {
                later_turn(&fields).map(|turn| sessions[place].turns.push(turn))
            }
            None => first_turn(&fields).map(|session| {
                known.insert(id.clone(), Known::At(sessions.len()));
                sessions.push(session);
            }),
        };
        if let Err(problem) = problem {
            rows.reject(line, problem)?;
            known.insert(id, Known::BadSince(line));
        }
    }
    Ok(sessions)
}

fn first_turn(fields: &Fields) -> Result<Session, RowProblem> {
    Ok(Session {
        start_ns: fields.ms_as_ns("timestamp")?,
        turns: vec![turn(fields, 0)?],
        priority: 0,
    })
}

fn later_turn(fields: &Fields) -> Result<Turn, RowProblem> {
    turn(fields, fields.ms_as_ns("delay")?)
}
