//! The prefix index: hashing, inserting, matching, claiming and evicting one long prompt.

use crate::{Config, Core, NewRequest, Outcome};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What to time.
#[derive(Clone, Copy, Debug)]
pub struct PrefixBench {
    /// Tokens of a prompt.
    pub context_tokens: u32,
    /// Tokens in a page.
    pub page_tokens: u32,
    /// Prompts timed.
    pub rounds: u32,
}

/// What came out, medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PrefixReport {
    /// Hashing a prompt, matching and claiming all of it, in million tokens a second.
    pub hash_match_claim_mtok_per_s: f64,
    /// Hashing a prompt and publishing all of it, in million tokens a second.
    pub hash_insert_mtok_per_s: f64,
    /// A step that takes its pages by evicting others', for each page.
    pub evict_ns_per_page: f64,
}

impl PrefixBench {
    /// Runs it.
    ///
    /// # Errors
    /// When the numbers make no valid configuration.
    pub fn run(&self) -> Result<PrefixReport, crate::ConfigError> {
        let mut run = Run { core: Core::new(&self.config())?, bench: *self, next: 0 };
        let (mut insert, mut claim, mut evict) = (vec![], vec![], vec![]);
        // The pool holds two prompts: the third and every later one evicts.
        for round in 0..self.rounds + 2 {
            let prompt = run.prompt(round);
            let hash = run.submit(prompt.clone());
            let planned = run.step();
            if round >= 2 {
                evict.push(planned);
            }
            run.answer();
            insert.push(hash + run.step());
            run.answer();
            run.end();
            let hash = run.submit(prompt);
            claim.push(hash + run.step());
            run.answer();
            run.end();
        }
        let rate = |times| f64::from(self.context_tokens) * 1e3 / median(times);
        let evicted = run.core.pages().iter().map(|group| group.evicted_pages).sum::<u64>();
        let pages = evicted as f64 / f64::from(self.rounds);
        Ok(PrefixReport {
            hash_match_claim_mtok_per_s: rate(claim),
            hash_insert_mtok_per_s: rate(insert),
            evict_ns_per_page: median(evict) / pages,
        })
    }

    fn config(&self) -> Config {
        let row_pages = (self.context_tokens + 64).div_ceil(self.page_tokens) + 2;
        let pages = 2 * row_pages;
        Config {
            page_tokens: self.page_tokens,
            max_batch: 2,
            token_budget: self.context_tokens + 64,
            chunk_tokens: self.context_tokens,
            max_seq_len: self.context_tokens + 64,
            num_extra_kv_tokens: 6,
            ..super::config(7, pages, Some(pages))
        }
    }
}

struct Run {
    core: Core,
    bench: PrefixBench,
    next: u64,
}

impl Run {
    /// A prompt no other round has, with room for the output.
    fn prompt(&self, round: u32) -> Vec<u32> {
        let mut prompt = Vec::with_capacity(self.bench.context_tokens as usize + 64);
        prompt.extend((0..self.bench.context_tokens).map(|token| token ^ round << 24));
        prompt
    }

    fn submit(&mut self, mut prompt: Vec<u32>) -> Duration {
        prompt.reserve(64);
        self.next += 1;
        let request = NewRequest::new(self.next, prompt, 32);
        let inbox = self.core.inbox();
        let start = Instant::now();
        inbox.submit(request).expect("the pool holds a prompt");
        start.elapsed()
    }

    fn step(&mut self) -> Duration {
        let start = Instant::now();
        self.core.step().expect("no step is in flight");
        start.elapsed()
    }

    fn answer(&mut self) {
        let plan = self.core.plan();
        let mut outcome = Outcome::default();
        outcome.begin(plan.step());
        for row in plan.rows() {
            outcome.push_row(&[7][..row.emits().0 as usize]);
        }
        self.core.complete(&outcome).expect("the outcome fits the plan");
    }

    /// Takes the request off its row; what it published stays cached.
    fn end(&mut self) {
        self.core.inbox().cancel(self.next).expect("the inbox has room");
        while !self.core.is_idle() {
            self.core.step().expect("no step is in flight");
            if !self.core.plan().rows().is_empty() {
                self.answer();
            }
        }
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}
