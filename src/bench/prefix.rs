//! The prefix index: hashing, inserting, matching, claiming and evicting one long prompt.

use crate::{Config, ConfigError, Core, NewRequest, Outcome};
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
    pub fn run(&self) -> Result<PrefixReport, ConfigError> {
        let mut run = self.start()?;
        let (mut insert, mut claim, mut evict) = (vec![], vec![], vec![]);
        for round in 0..self.rounds + PrefixRounds::IN_POOL {
            let prompt = run.prompt();
            let copy = run.copy(&prompt);
            let hashed = timed(|| run.submit(prompt));
            let planned = timed(|| run.step());
            if round >= PrefixRounds::IN_POOL {
                evict.push(planned);
            }
            run.answer();
            insert.push(hashed + timed(|| run.step()));
            run.answer();
            run.end();
            claim.push(timed(|| {
                run.submit(copy);
                run.step();
            }));
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

    /// A core that holds two prompts.
    ///
    /// # Errors
    /// When the numbers make no valid configuration.
    pub fn start(&self) -> Result<PrefixRounds, ConfigError> {
        let core = Core::new(&self.config())?;
        Ok(PrefixRounds { core, context_tokens: self.context_tokens, prompts: 0, submitted: 0 })
    }

    fn config(&self) -> Config {
        let row_pages = (self.context_tokens + 64).div_ceil(self.page_tokens) + 2;
        let pages = PrefixRounds::IN_POOL * row_pages;
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

/// A core that computes one prompt at a time, step by step.
pub struct PrefixRounds {
    core: Core,
    context_tokens: u32,
    prompts: u32,
    submitted: u64,
}

impl PrefixRounds {
    /// Prompts the pool holds: every later one evicts.
    pub const IN_POOL: u32 = 2;

    /// A prompt that differs from the last 255.
    pub fn prompt(&mut self) -> Vec<u32> {
        let mut prompt = self.copy(&[]);
        prompt.extend((0..self.context_tokens).map(|token| token ^ self.prompts << 24));
        self.prompts += 1;
        prompt
    }

    /// The same prompt, with room for the output.
    #[must_use]
    pub fn copy(&self, prompt: &[u32]) -> Vec<u32> {
        let mut copy = Vec::with_capacity(self.context_tokens as usize + 64);
        copy.extend_from_slice(prompt);
        copy
    }

    /// Hashes and submits a prompt.
    ///
    /// # Panics
    /// When it is longer than the others.
    pub fn submit(&mut self, prompt: Vec<u32>) {
        self.submitted += 1;
        let request = NewRequest::new(self.submitted, prompt, 32);
        self.core.inbox().submit(request).expect("the pool holds a prompt");
    }

    /// Plans a step. The first of a request matches, claims and takes pages, the second publishes.
    ///
    /// # Panics
    /// When the step before has no answer.
    pub fn step(&mut self) {
        self.core.step().expect("no step is in flight");
    }

    /// Answers the planned step.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(&mut self) {
        let plan = self.core.plan();
        let mut outcome = Outcome::default();
        outcome.begin(plan.step());
        for row in plan.rows() {
            outcome.push_row(&[7][..row.emits().0 as usize]);
        }
        self.core.complete(&outcome).expect("the outcome fits the plan");
    }

    /// Takes the request off its row; what it published stays cached.
    ///
    /// # Panics
    /// When a step is not answered.
    pub fn end(&mut self) {
        self.core.inbox().cancel(self.submitted).expect("the inbox has room");
        while !self.core.is_idle() {
            self.core.step().expect("no step is in flight");
            if !self.core.plan().rows().is_empty() {
                self.answer();
            }
        }
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}
