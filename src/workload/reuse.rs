//! How much of a workload's prompts a prefix cache could serve, as a fraction of all prompt tokens.
//!
//! Both numbers assume one cache without a bound and sessions served one after the other, in order
//! of the workload.

use std::collections::{HashMap, HashSet};

use super::rng::mix;
use super::text::BLOCK_TOKENS;
use super::{Session, Workload};

/// Reuse by block ids, as traces are usually described: the longest leading run of a prompt's ids
/// that was seen before, in tokens, over all prompt tokens. 0 for an empty workload.
///
/// The interpretation that gives the published numbers (37.4 % Mooncake conversation, 65.1 %
/// synthetic, 93.8 % agentic with 44 sessions):
///
/// - the prompt of a turn is all earlier inputs, all earlier outputs and its own input, and all of
///   it is counted;
/// - its ids are those of the inputs, one after the other; outputs have no ids;
/// - a run of `n` ids counts as `512 n` tokens, but at most as the prompt. So a seen last block
///   that is not full counts, and so does each short block between two turns, as if it were full;
/// - an id is seen wherever it stood before.
///
/// For sessions of one turn this is what an unbounded cache reaches, give or take the last block.
/// For longer sessions it is only a customary measure: an engine that keeps outputs may exceed it.
/// [`token_reuse`] is the bound there.
pub fn upper_bound_reuse(workload: &Workload) -> f64 {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut total = Ratio::default();
    for session in &workload.sessions {
        let mut ids: Vec<u64> = Vec::new();
        for (turn, prompt_tokens) in session.turns.iter().zip(prompt_tokens(session)) {
            let own = ids.len();
            ids.extend(turn.input.blocks().iter().map(|&(hash_id, _)| hash_id));
            let run = ids.iter().take_while(|&id| seen.contains(id)).count();
            let run_tokens = run as u64 * u64::from(BLOCK_TOKENS);
            total.add(run_tokens.min(prompt_tokens), prompt_tokens);
            seen.extend(&ids[own..]);
        }
    }
    total.value()
}

/// Reuse by tokens: what no engine can exceed. The prompt of a later turn finds everything before
/// its own input, outputs included; the prompt of a first turn finds the longest beginning that it
/// shares with an earlier first turn.
///
/// This takes outputs to be unlike any other text, so that later turns of different sessions share
/// nothing.
pub fn token_reuse(workload: &Workload) -> f64 {
    // From the hash of all blocks up to this one to the most tokens of this one that were seen.
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut total = Ratio::default();
    for session in &workload.sessions {
        for (index, (turn, prompt_tokens)) in
            session.turns.iter().zip(prompt_tokens(session)).enumerate()
        {
            let reused = match index {
                0 => shared_beginning(&mut seen, &turn.input.blocks()),
                _ => prompt_tokens - u64::from(turn.input.tokens()),
            };
            total.add(reused, prompt_tokens);
        }
    }
    total.value()
}

/// The tokens of `blocks` that are in `seen` from the beginning on; then `blocks` are in `seen`.
fn shared_beginning(seen: &mut HashMap<u64, u32>, blocks: &[(u64, u32)]) -> u64 {
    let mut shared = 0;
    let mut open = true;
    let mut chain = 0;
    for &(hash_id, tokens) in blocks {
        chain = mix(chain, hash_id);
        let most = seen.entry(chain).or_insert(0);
        if open {
            shared += u64::from(tokens.min(*most));
            open = tokens <= *most;
        }
        *most = tokens.max(*most);
    }
    shared
}

/// The length of each turn's prompt.
fn prompt_tokens(session: &Session) -> impl Iterator<Item = u64> {
    session.turns.iter().scan(0, |context, turn| {
        let prompt = *context + u64::from(turn.input.tokens());
        *context = prompt + u64::from(turn.output_tokens);
        Some(prompt)
    })
}

#[derive(Default)]
struct Ratio {
    reused: u64,
    prompts: u64,
}

impl Ratio {
    fn add(&mut self, reused: u64, prompt: u64) {
        self.reused += reused;
        self.prompts += prompt;
    }

    fn value(&self) -> f64 {
        match self.prompts {
            0 => 0.0,
            prompts => self.reused as f64 / prompts as f64,
        }
    }
}
