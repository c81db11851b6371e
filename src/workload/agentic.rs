//! A built-in workload: conversations of agents that share a system prompt and add to their context
//! turn by turn.

use std::ops::RangeInclusive;

use super::rng::Rng;
use super::text::{BLOCK_TOKENS, Text};
use super::{Session, Turn, Workload};

/// What the generated conversations look like. Every number that varies is drawn from its range,
/// both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agentic {
    /// Conversations.
    pub conversations: u32,
    /// Turns of each conversation.
    pub turns: u32,
    /// Tokens of the system prompt, the same in all conversations; rounded up to whole blocks of
    /// 512.
    pub system_tokens: u32,
    /// Tokens of a conversation's own preamble (its tools and context), which follows the system
    /// prompt; rounded up to whole blocks of 512.
    pub preamble_tokens: RangeInclusive<u32>,
    /// New tokens of a turn, at least 1. Short ones are the most likely: the part above the least
    /// is geometric, with a quarter of the range as its mean, and cut off at the most.
    pub new_tokens: RangeInclusive<u32>,
    /// Output tokens of a turn, at least 1.
    pub output_tokens: RangeInclusive<u32>,
    /// Think time between the finish of a turn and the next one, in nanoseconds.
    pub think_ns: RangeInclusive<u64>,
    /// Time between the starts of two conversations, in nanoseconds.
    pub stagger_ns: RangeInclusive<u64>,
    /// The seed: equal parameters and seed give equal workloads.
    pub seed: u64,
}

impl Default for Agentic {
    fn default() -> Self {
        Agentic {
            conversations: 24,
            turns: 6,
            system_tokens: 2048,
            preamble_tokens: 1024..=6144,
            new_tokens: 200..=4000,
            output_tokens: 50..=400,
            think_ns: 500_000_000..=8_000_000_000,
            stagger_ns: 100_000_000..=1_500_000_000,
            seed: 1,
        }
    }
}

impl Agentic {
    /// The workload of these parameters, named `agentic`.
    pub fn generate(&self) -> Workload {
        let mut rng = Rng(self.seed);
        let mut ids = Ids { next: 0 };
        let system = ids.take(self.system_tokens);
        let mut start_ns: u64 = 0;
        let mut sessions = Vec::new();
        for _ in 0..self.conversations {
            sessions.push(self.session(start_ns, &system, &mut ids, &mut rng));
            start_ns = start_ns.saturating_add(rng.uniform(self.stagger_ns.clone()));
        }
        sessions.retain(|session| !session.turns.is_empty());
        Workload { name: "agentic".to_owned(), sessions, skipped_rows: Vec::new() }
    }

    fn session(&self, start_ns: u64, system: &[u64], ids: &mut Ids, rng: &mut Rng) -> Session {
        let mut lead = system.to_vec();
        lead.extend(ids.take(uniform_tokens(rng, &self.preamble_tokens)));
        let mut turns = Vec::new();
        for turn in 0..self.turns {
            let new_tokens = self.draw_new_tokens(rng);
            let mut hash_ids = std::mem::take(&mut lead);
            let lead_tokens =
                u32::try_from(hash_ids.len()).unwrap_or(u32::MAX).saturating_mul(BLOCK_TOKENS);
            hash_ids.extend(ids.take(new_tokens));
            let think_ns = rng.uniform(self.think_ns.clone());
            turns.push(Turn {
                delay_ns: if turn == 0 { 0 } else { think_ns },
                input: Text::Blocks { hash_ids, tokens: lead_tokens.saturating_add(new_tokens) },
                output_tokens: uniform_tokens(rng, &self.output_tokens).max(1),
            });
        }
        Session { start_ns, turns, priority: 0 }
    }

    fn draw_new_tokens(&self, rng: &mut Rng) -> u32 {
        let (least, most) = (*self.new_tokens.start(), *self.new_tokens.end());
        let span = most.saturating_sub(least);
        let above = rng.geometric(1.0 / (f64::from(span) / 4.0 + 1.0)).min(u64::from(span));
        // `above` is at most `span`, a u32.
        (least + above as u32).max(1)
    }
}

/// A workload with the [default](Agentic::default) lengths and times.
pub fn agentic(conversations: u32, turns: u32, seed: u64) -> Workload {
    let defaults = Agentic::default();
    Agentic { conversations, turns, seed, ..defaults }.generate()
}

fn uniform_tokens(rng: &mut Rng, range: &RangeInclusive<u32>) -> u32 {
    let drawn = rng.uniform(u64::from(*range.start())..=u64::from(*range.end()));
    u32::try_from(drawn).unwrap_or(u32::MAX)
}

/// Block ids that were not used before.
struct Ids {
    next: u64,
}

impl Ids {
    fn take(&mut self, tokens: u32) -> Vec<u64> {
        let first = self.next;
        self.next += u64::from(tokens.div_ceil(BLOCK_TOKENS));
        (first..self.next).collect()
    }
}
