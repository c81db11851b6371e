//! The pair engine: a real target and a real drafter on the CPU, over the pages of a host device.
//!
//! It knows a sequence only through the plan: what is computed comes from the rows, K and V are
//! found through the device's block tables. Of a batch row it keeps what a server keeps on the
//! device: true length, newest token, drafts.

mod acceptance;
mod arm;
mod device_pages;
mod row;
mod step;

pub use acceptance::Acceptance;
pub use arm::DraftRows;

use crate::engine::pair::verify::{Rule, VerifyScratch};
use crate::engine::pair::{DraftOutput, Pair, TargetOutput, Workers, Workspace};
use crate::engine::{Engine, EngineError, StepTime};
use crate::{Event, Geometry, Outcome, Plan};
use arm::PromptRows;
use device_pages::Layout;
use paceline_kernels::HostDevice;
use row::RowState;
use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;

/// How the engine chooses tokens and drafts.
#[derive(Clone, Copy, Debug)]
pub struct PairOptions {
    /// Whether to draft at all.
    pub speculate: bool,
    /// When a draft counts as right.
    pub rule: Rule,
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Seed of the run: a request's own comes from it and the request's id.
    pub seed: u64,
    /// What the drafter gets to see of prompts.
    pub draft_rows: DraftRows,
    /// Virtual time of a step.
    pub time: StepTime,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            speculate: true,
            rule: Rule::ExactMatch,
            temperature: 0.0,
            seed: 0,
            draft_rows: DraftRows::Unified,
            time: StepTime::default(),
        }
    }
}

/// A way to sample, as the command line says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplingMode {
    /// The likeliest token.
    #[default]
    Greedy,
    /// Sampled; a draft is right when it is the sampled token.
    Exact,
    /// Sampled; drafts are kept with the probability ratio, one by one.
    Rejection,
    /// Sampled; the longest block of drafts whose joint ratio passes is kept.
    Block,
}

impl FromStr for SamplingMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "greedy" => Ok(Self::Greedy),
            "exact" => Ok(Self::Exact),
            "rejection" => Ok(Self::Rejection),
            "block" => Ok(Self::Block),
            _ => Err(format!("`{text}`: takes greedy, exact, rejection or block")),
        }
    }
}

impl SamplingMode {
    /// The rule of verification, and the temperature: 0 when greedy.
    #[must_use]
    pub fn rule(self, temperature: f32) -> (Rule, f32) {
        match self {
            Self::Greedy => (Rule::ExactMatch, 0.0),
            Self::Exact => (Rule::ExactMatch, temperature),
            Self::Rejection => (Rule::Rejection, temperature),
            Self::Block => (Rule::Block, temperature),
        }
    }
}

/// One decode row that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeStep {
    /// The request.
    pub request: u64,
    /// Position of the anchor.
    pub anchor: u32,
    /// Tokens emitted: drafts kept, and one.
    pub emitted: u32,
}

/// The engine.
pub struct PairEngine {
    pair: Arc<Pair>,
    options: PairOptions,
    device: HostDevice,
    layout: Layout,
    rows: Vec<RowState>,
    prompt_rows: Vec<Option<PromptRows>>,
    /// The window of the prompt computed last: the stale rows of the next.
    last_prompt: Option<PromptRows>,
    /// Prompt tokens of live requests: a preempted one comes back with its output as prompt.
    prompts: HashMap<u64, u32>,
    preempted: HashSet<u64>,
    steps: Vec<DecodeStep>,
    workspace: Workspace,
    output: TargetOutput,
    drafts: DraftOutput,
    scratch: VerifyScratch,
}

impl PairEngine {
    /// An engine with empty pages.
    ///
    /// # Errors
    /// When the geometry has no place for the pair's layers.
    pub fn new(
        pair: Arc<Pair>,
        geometry: &Geometry,
        options: PairOptions,
    ) -> Result<Self, EngineError> {
        let config = &pair.config;
        let row_bytes = config.target_shape().kv_dim() * size_of::<f32>();
        let layers = [config.layers, config.d_layers];
        let layout = Layout::new(geometry, layers, row_bytes).map_err(EngineError)?;
        if geometry.lookahead.draft_tokens as usize != config.block {
            let drafts = geometry.lookahead.draft_tokens;
            let block = config.block;
            return Err(EngineError(format!("draft_tokens = {drafts}: the pair drafts {block}")));
        }
        let rows = geometry.config.max_batch as usize + 1;
        Ok(Self {
            options,
            device: HostDevice::with_pages(geometry),
            layout,
            rows: vec![RowState::default(); rows],
            prompt_rows: vec![None; rows],
            last_prompt: None,
            prompts: HashMap::new(),
            preempted: HashSet::new(),
            steps: Vec::new(),
            workspace: Workspace::new(Workers::two()),
            output: TargetOutput::default(),
            drafts: DraftOutput::default(),
            scratch: VerifyScratch::default(),
            pair,
        })
    }

    /// Decode rows verified since the last call, in order.
    pub fn take_steps(&mut self) -> Vec<DecodeStep> {
        std::mem::take(&mut self.steps)
    }

    fn accept_plan(&mut self, plan: Plan<'_>) {
        self.device.submit(plan.launches());
        for event in plan.events() {
            match event {
                Event::Preempted { request } => _ = self.preempted.insert(*request),
                // A request of this id may have run before, in a warm-up too.
                Event::Admitted { request, .. } if !self.preempted.remove(request) => {
                    self.prompts.remove(request);
                }
                Event::Finished { request, .. } => {
                    self.preempted.remove(request);
                    self.prompts.remove(request);
                }
                _ => {}
            }
        }
    }
}

impl Engine for PairEngine {
    fn run(&mut self, plan: Plan<'_>, outcome: &mut Outcome) -> Result<u64, EngineError> {
        self.accept_plan(plan);
        self.step(plan, outcome)?;
        Ok(plan.rows().iter().fold(self.options.time.base_ns, |time_ns, row| {
            time_ns + self.options.time.row_ns(row)
        }))
    }

    fn skip(&mut self, plan: Plan<'_>) {
        self.accept_plan(plan);
    }
}
