//! The steady decode step: plan and complete, with pages crossed out of phase.

use super::WINDOW_TOKENS;
use crate::{Config, Core, NewRequest, Outcome};
use serde::Serialize;
use std::time::Instant;

/// What to time.
#[derive(Clone, Debug)]
pub struct StepBench {
    /// Requests that decode.
    pub requests: u32,
    /// Tokens of context each has.
    pub context_tokens: u32,
    /// Tokens in a page.
    pub page_tokens: u32,
    /// Whether a draft group with a window of 4096 tokens is beside the full group.
    pub has_window: bool,
    /// Draft tokens, K.
    pub draft_tokens: u32,
    /// Pages of each group; none: as many as the run needs.
    pub pool_pages: Option<u32>,
    /// Longest sequence; none: what the run needs.
    pub max_seq_len: Option<u32>,
    /// Steps planned before an outcome is back.
    pub overlap_depth: u32,
    /// Steps timed, after a tenth of them unmeasured.
    pub steps: u32,
}

/// What came out.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepReport {
    /// Median time of plan and complete for one request of one step.
    pub ns_per_request_step_p50: f64,
    /// 99th percentile of the same.
    pub ns_per_request_step_p99: f64,
    /// Heap allocations of a step.
    pub allocations_per_step: f64,
    /// Steps timed.
    pub steps: u32,
}

impl StepBench {
    /// Runs it; `allocations` reads the process's allocation counter.
    ///
    /// # Errors
    /// When the numbers make no valid configuration.
    pub fn run(&self, allocations: impl Fn() -> u64) -> Result<StepReport, crate::ConfigError> {
        let mut run = Run::new(self)?;
        let warm_up = self.steps / 10 + 2;
        for _ in 0..warm_up {
            run.step();
        }
        let mut times = Vec::with_capacity(self.steps as usize);
        let before = allocations();
        for _ in 0..self.steps {
            times.push(run.step() as f64 / f64::from(self.requests));
        }
        let allocated = allocations() - before;
        assert_eq!(run.core.stats().preemptions, 0, "the pool holds every request");
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Ok(StepReport {
            ns_per_request_step_p50: at(0.5),
            ns_per_request_step_p99: at(0.99),
            allocations_per_step: allocated as f64 / f64::from(self.steps),
            steps: self.steps,
        })
    }

    fn tokens_needed(&self) -> u32 {
        let most_steps = self.steps + self.steps / 10 + 8;
        self.context_tokens + most_steps * (self.draft_tokens + 2) / 2 + 64 * self.draft_tokens
    }

    fn config(&self) -> Config {
        let chunk_tokens = 16_384;
        let lookahead = 4 * (self.draft_tokens + 1) + 2 * chunk_tokens;
        let row_pages = self.tokens_needed().div_ceil(self.page_tokens) + 2;
        let window_pages = (WINDOW_TOKENS + lookahead).div_ceil(self.page_tokens) + 2;
        let pages = |row_pages| self.pool_pages.unwrap_or(self.requests * row_pages + 64);
        let window = self.has_window.then(|| pages(window_pages));
        let longest = self.tokens_needed() + lookahead;
        Config {
            page_tokens: self.page_tokens,
            max_batch: self.requests,
            token_budget: self.requests * (self.draft_tokens + 1) + chunk_tokens,
            chunk_tokens,
            max_seq_len: self.max_seq_len.unwrap_or(longest).max(longest),
            num_extra_kv_tokens: self.draft_tokens.saturating_sub(1),
            overlap_depth: self.overlap_depth,
            ..super::config(self.draft_tokens, pages(row_pages), window)
        }
    }
}

/// A core with every request decoding.
struct Run {
    core: Core,
    outcome: Outcome,
    tokens: Vec<u32>,
    random: u64,
}

impl Run {
    fn new(bench: &StepBench) -> Result<Self, crate::ConfigError> {
        let core = Core::new(&bench.config())?;
        let inbox = core.inbox();
        for request in 0..bench.requests {
            // Lengths differ so that rows cross pages in different steps.
            let shorter = (request * 37) % bench.page_tokens.min(bench.context_tokens);
            let prompt = (0..bench.context_tokens - shorter).collect();
            let output = bench.tokens_needed() + 64 - bench.context_tokens + shorter;
            let submitted = inbox.submit(NewRequest::new(u64::from(request), prompt, output));
            let pages = bench.pool_pages.unwrap_or_default();
            submitted
                .map_err(|error| crate::ConfigError::new("pool-pages", pages, error.to_string()))?;
        }
        let most = bench.draft_tokens + 1;
        let mut run = Self {
            core,
            outcome: Outcome::default(),
            tokens: vec![7; (bench.requests * most) as usize],
            random: 42,
        };
        let rows = bench.requests as usize;
        run.outcome.counts.reserve(rows);
        run.outcome.tokens.reserve(rows * most as usize);
        while run.core.stats().decode_rows < u64::from(bench.requests) * 2 {
            run.step();
        }
        Ok(run)
    }

    /// Plans a step and completes it, or with an overlap the one before; nanoseconds in the core.
    fn step(&mut self) -> u64 {
        let overlap = self.core.geometry().config.overlap_depth > 0;
        let start = Instant::now();
        let step = self.core.step().expect("no more steps are in flight than allowed").step();
        if overlap && self.outcome.step > 0 {
            self.core.complete(&self.outcome).expect("the outcome fits the step before");
        }
        let planned = start.elapsed();
        self.answer(step);
        let start = Instant::now();
        if !overlap {
            self.core.complete(&self.outcome).expect("the outcome fits the step");
        }
        (planned + start.elapsed()).as_nanos() as u64
    }

    /// Draws what every row of the last plan accepts.
    fn answer(&mut self, step: u64) {
        self.outcome.begin(step);
        let mut random = self.random;
        for row in self.core.plan().rows() {
            let (least, most) = row.emits();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let count = least + ((random >> 33) as u32) % (most - least + 1);
            self.outcome.push_row(&self.tokens[..count as usize]);
        }
        self.random = random;
    }
}
