//! The evaluation prompts of the built-in pair as a workload: every prompt a session of one turn,
//! all there at once.

use super::{Session, Text, Turn, Workload};
use crate::engine::pair::PairError;
use crate::engine::pair::embedded_prompts;
use crate::engine::pair::prompts::EvalPrompt;

/// Kinds of prompts.
pub const KINDS: [&str; 4] = ["ladder", "code", "records", "rewrite"];
/// Tokens generated for each prompt, as in `acceptance.json`.
pub const NEW_TOKENS: u32 = 128;

/// Kinds in a list such as `ladder,records`; none when one of the names is no kind.
#[must_use]
pub fn kinds(list: &str) -> Option<Vec<&str>> {
    let kinds: Vec<&str> = list.split(',').collect();
    kinds.iter().all(|kind| KINDS.contains(kind)).then_some(kinds)
}

/// The prompts of `kinds`, in order of the list, then length; of the given `lengths`, or all, and
/// at most `limit` of each length.
///
/// # Errors
/// When the built-in file cannot be read.
pub fn select(
    kinds: &[&str],
    lengths: &[usize],
    limit: Option<usize>,
) -> Result<Vec<EvalPrompt>, PairError> {
    let all = embedded_prompts()?;
    let mut selected: Vec<EvalPrompt> = Vec::new();
    for kind in kinds {
        let mut of_kind: Vec<&EvalPrompt> = all.iter().filter(|p| p.kind == *kind).collect();
        of_kind.sort_by_key(|prompt| prompt.length);
        let mut taken = (0, 0);
        for prompt in of_kind {
            let is_wanted = lengths.is_empty() || lengths.contains(&prompt.length);
            taken = if taken.0 == prompt.length { taken } else { (prompt.length, 0) };
            if is_wanted && limit.is_none_or(|limit| taken.1 < limit) {
                taken.1 += 1;
                selected.push(prompt.clone());
            }
        }
    }
    Ok(selected)
}

/// A session for each prompt; request `i` is prompt `i`.
#[must_use]
pub fn workload(name: &str, prompts: &[EvalPrompt], new_tokens: u32) -> Workload {
    let session = |prompt: &EvalPrompt| Session {
        start_ns: 0,
        turns: vec![Turn {
            delay_ns: 0,
            input: Text::Ids(prompt.tokens.clone()),
            output_tokens: new_tokens,
        }],
        priority: 0,
    };
    let sessions = prompts.iter().map(session).collect();
    Workload { name: name.to_owned(), sessions, skipped_rows: Vec::new() }
}
