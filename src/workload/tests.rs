//! Tests of the whole module, and what they share.

mod bad_rows;
mod formats;
mod generated;
mod lengths;
mod traces;

use super::{Session, Text, Turn, Workload, WorkloadError};

/// Reads `content` as a file named `trace.txt`.
fn read(content: &str, skip_bad: bool) -> Result<Workload, WorkloadError> {
    super::read("trace.txt", content.as_bytes(), skip_bad)
}

fn tokens_of(text: &Text, vocab: u32) -> Vec<u32> {
    let mut out = Vec::new();
    text.append_to(vocab, &mut out);
    out
}

fn blocks(hash_ids: &[u64], tokens: u32) -> Text {
    Text::Blocks { hash_ids: hash_ids.to_vec(), tokens }
}

fn turn(delay_ns: u64, input: Text, output_tokens: u32) -> Turn {
    Turn { delay_ns, input, output_tokens }
}

fn session(start_ns: u64, turns: Vec<Turn>) -> Session {
    Session { start_ns, turns, priority: 0 }
}

fn workload(sessions: Vec<Session>) -> Workload {
    Workload { name: "test".to_owned(), sessions, skipped_rows: Vec::new() }
}
