//! The steady decode step: plan and complete, with pages crossed out of phase.

use super::WINDOW_TOKENS;
use crate::{Config, ConfigError, Core, NewRequest, Outcome, PublishPolicy};
use paceline_kernels::RowMeta;
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
    /// What is published: hashing is most of the work of a step that fills pages.
    pub publish: PublishPolicy,
    /// Steps timed, after a tenth of them unmeasured.
    pub steps: u32,
}

impl Default for StepBench {
    fn default() -> Self {
        Self {
            requests: 64,
            context_tokens: 131_072,
            page_tokens: 128,
            has_window: true,
            draft_tokens: 7,
            pool_pages: None,
            max_seq_len: None,
            overlap_depth: 0,
            publish: PublishPolicy::AllReusable,
            steps: 4000,
        }
    }
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
    pub fn run(&self, allocations: impl Fn() -> u64) -> Result<StepReport, ConfigError> {
        let mut steady = self.start()?;
        let warm_up = self.steps / 10 + 2;
        (0..warm_up).for_each(|_| steady.step());
        let mut times = Vec::with_capacity(self.steps as usize);
        let before = allocations();
        for _ in 0..self.steps {
            times.push(steady.timed_step() as f64 / f64::from(self.requests));
        }
        let allocated = allocations() - before;
        steady.check();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Ok(StepReport {
            ns_per_request_step_p50: at(0.5),
            ns_per_request_step_p99: at(0.99),
            allocations_per_step: allocated as f64 / f64::from(self.steps),
            steps: self.steps,
        })
    }

    /// A core with every request decoding. It has tokens left for `steps` and a tenth more.
    ///
    /// # Errors
    /// When the numbers make no valid configuration.
    pub fn start(&self) -> Result<SteadyDecode, ConfigError> {
        SteadyDecode::new(self)
    }

    /// Pages of the full group, unless `pool_pages` says otherwise: what the run needs.
    #[must_use]
    pub fn full_pages(&self) -> u32 {
        let row_pages = self.tokens_needed().div_ceil(self.page_tokens) + 2;
        self.requests * row_pages + 64
    }

    fn tokens_needed(&self) -> u32 {
        let most_steps = self.steps + self.steps / 10 + 8;
        let mean = most_steps * (self.draft_tokens + 2) / 2;
        self.context_tokens + self.prompt_steps() + mean + 64 * self.draft_tokens
    }

    /// Most steps until every prompt is computed; a row that is ahead emits one token in each.
    fn prompt_steps(&self) -> u32 {
        self.requests * (self.context_tokens.div_ceil(CHUNK_TOKENS) + 1)
    }

    fn config(&self) -> Config {
        let lookahead = 4 * (self.draft_tokens + 1) + 2 * CHUNK_TOKENS;
        let window_pages = (WINDOW_TOKENS + lookahead).div_ceil(self.page_tokens) + 2;
        let pages = |needed| self.pool_pages.unwrap_or(needed);
        let window = self.has_window.then(|| pages(self.requests * window_pages + 64));
        let longest = self.tokens_needed() + SPARE_TOKENS;
        Config {
            page_tokens: self.page_tokens,
            max_batch: self.requests,
            token_budget: self.requests * (self.draft_tokens + 1) + CHUNK_TOKENS,
            chunk_tokens: CHUNK_TOKENS,
            max_seq_len: self.max_seq_len.unwrap_or(longest).max(longest),
            num_extra_kv_tokens: self.draft_tokens.saturating_sub(1),
            overlap_depth: self.overlap_depth,
            publish: self.publish,
            ..super::config(self.draft_tokens, pages(self.full_pages()), window)
        }
    }
}

/// Most prompt tokens of a row and step.
const CHUNK_TOKENS: u32 = 16_384;

/// Tokens a request may still emit when the run is over: none ends on the way.
const SPARE_TOKENS: u32 = 64;

/// A core with every request decoding.
pub struct SteadyDecode {
    core: Core,
    requests: u32,
    outcome: Outcome,
    tokens: Vec<u32>,
    accepted: Accepted,
    random: u64,
}

/// What rows accept.
enum Accepted {
    /// As little as they may: while prompts are computed the rows that are ahead hardly get on.
    Least,
    /// Anything, evenly.
    Uniform,
}

impl SteadyDecode {
    fn new(bench: &StepBench) -> Result<Self, ConfigError> {
        let core = Core::new(&bench.config())?;
        let inbox = core.inbox();
        for request in 0..bench.requests {
            // Lengths differ so that rows cross pages in different steps.
            let shorter = (request * 37) % bench.page_tokens.min(bench.context_tokens);
            let prompt = (0..bench.context_tokens - shorter).collect();
            let output = bench.tokens_needed() + SPARE_TOKENS - bench.context_tokens + shorter;
            let submitted = inbox.submit(NewRequest::new(u64::from(request), prompt, output));
            let pages = bench.pool_pages.unwrap_or_default();
            submitted.map_err(|error| ConfigError::new("pool-pages", pages, error.to_string()))?;
        }
        let most = bench.draft_tokens + 1;
        let mut steady = Self {
            core,
            requests: bench.requests,
            outcome: Outcome::default(),
            tokens: vec![7; (bench.requests * most) as usize],
            accepted: Accepted::Least,
            random: 42,
        };
        let rows = bench.requests as usize;
        steady.outcome.counts.reserve(rows);
        steady.outcome.tokens.reserve(rows * most as usize);
        while !steady.is_steady() {
            steady.step();
        }
        steady.accepted = Accepted::Uniform;
        Ok(steady)
    }

    /// One step: plan, draw what the rows accept, complete.
    pub fn step(&mut self) {
        let step = self.plan();
        self.answer(step);
        self.complete();
    }

    /// Nanoseconds that a step spends in the core.
    fn timed_step(&mut self) -> u64 {
        let start = Instant::now();
        let step = self.plan();
        let planned = start.elapsed();
        self.answer(step);
        let start = Instant::now();
        self.complete();
        (planned + start.elapsed()).as_nanos() as u64
    }

    /// Whether every request decoded in the last step.
    fn is_steady(&self) -> bool {
        let rows = self.core.plan().rows();
        rows.len() == self.requests as usize && rows.iter().all(RowMeta::is_decode)
    }

    /// Asserts that every step was a step of all requests.
    ///
    /// # Panics
    /// When a request was preempted or came to its end.
    pub fn check(&self) {
        let stats = self.core.stats();
        assert_eq!(stats.preemptions, 0, "the pool holds every request");
        assert_eq!(stats.finished, 0, "no request ends: take fewer steps, or say how many");
        assert!(self.is_steady(), "every request decodes");
    }

    fn overlaps(&self) -> bool {
        self.core.geometry().config.overlap_depth > 0
    }

    /// Plans a step and, with an overlap, completes the one before.
    fn plan(&mut self) -> u64 {
        let step = self.core.step().expect("no more steps are in flight than allowed").step();
        if self.overlaps() && self.outcome.step > 0 {
            self.core.complete(&self.outcome).expect("the outcome fits the step before");
        }
        step
    }

    /// Completes the step, unless it stays in flight.
    fn complete(&mut self) {
        if !self.overlaps() {
            self.core.complete(&self.outcome).expect("the outcome fits the step");
        }
    }

    /// Draws what every row of the last plan accepts.
    fn answer(&mut self, step: u64) {
        self.outcome.begin(step);
        let mut random = self.random;
        for row in self.core.plan().rows() {
            let (least, most) = row.emits();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let count = match self.accepted {
                Accepted::Least => least,
                Accepted::Uniform => least + ((random >> 33) as u32) % (most - least + 1),
            };
            self.outcome.push_row(&self.tokens[..count as usize]);
        }
        self.random = random;
    }
}
