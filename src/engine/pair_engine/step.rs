//! One step: run the target over all rows, verify, store the drafter's context, draft.

use super::arm::{DraftRows, PromptRows};
use super::device_pages::DevicePages;
use super::{DecodeStep, PairEngine};
use crate::engine::EngineError;
use crate::engine::pair::sample::emit;
use crate::engine::pair::verify::{Rule, VerifyRow, verify};
use crate::engine::pair::{ContextRow, DraftRow, Logits, Sampling, TargetRow};
use crate::workload::rng::mix;
use crate::{Outcome, Plan};
use paceline_components::NO_SLOT;
use paceline_kernels::{FLAG_DUMMY, FLAG_LAST_CHUNK, FLAG_PREFILL, RowMeta};
use std::sync::OnceLock;

/// A row of the step that is computed.
struct Job<'a> {
    meta: &'a RowMeta,
    start: u32,
    tokens: Vec<u32>,
    /// Tokens among them that became final.
    kept: u32,
}

impl PairEngine {
    pub(super) fn step(
        &mut self,
        plan: Plan<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), EngineError> {
        let mut jobs = self.jobs(plan).map_err(EngineError)?;
        self.forward(&jobs)?;
        let mut index = 0;
        for row in plan.rows() {
            if row.has(FLAG_DUMMY) {
                outcome.push_row(&[]);
                continue;
            }
            let emitted = self.emit(index, &mut jobs[index]);
            outcome.push_row(&emitted);
            index += 1;
        }
        if self.options.speculate {
            self.store(&jobs)?;
            self.draft(&jobs)?;
        }
        Ok(())
    }

    fn jobs<'a>(&mut self, plan: Plan<'a>) -> Result<Vec<Job<'a>>, String> {
        let block = self.pair.config.block as u32;
        let mut jobs = Vec::with_capacity(plan.rows().len());
        for meta in plan.rows().iter().filter(|row| !row.has(FLAG_DUMMY)) {
            let state = &mut self.rows[meta.row as usize];
            state.begin(meta)?;
            let tokens = if meta.has(FLAG_PREFILL) {
                plan.inputs(meta).to_vec()
            } else {
                state.tokens(meta.tokens)
            };
            let start = state.length;
            let end = start + tokens.len() as u32 + block;
            if end > meta.covered {
                let (row, covered) = (meta.row, meta.covered);
                return Err(format!("row {row} needs {end} positions and {covered} are backed"));
            }
            jobs.push(Job { meta, start, tokens, kept: 0 });
        }
        Ok(jobs)
    }

    fn forward(&mut self, jobs: &[Job<'_>]) -> Result<(), EngineError> {
        let rows: Vec<TargetRow<'_>> = jobs
            .iter()
            .map(|job| TargetRow {
                sequence: job.meta.row as usize,
                tokens: &job.tokens,
                start: job.start as usize,
                logits: match (job.meta.has(FLAG_PREFILL), job.meta.has(FLAG_LAST_CHUNK)) {
                    (false, _) => Logits::All,
                    (true, true) => Logits::Last,
                    (true, false) => Logits::None,
                },
            })
            .collect();
        let mut pages = DevicePages {
            device: &mut self.device,
            layout: &self.layout,
            prompt_rows: &self.prompt_rows,
            error: OnceLock::new(),
        };
        self.pair.target.forward(&rows, &mut pages, &mut self.workspace, &mut self.output);
        pages.finish()
    }

    /// What the row emits; its state moves on.
    fn emit(&mut self, index: usize, job: &mut Job<'_>) -> Vec<u32> {
        let request = job.meta.request();
        let sampling = self.sampling(request);
        let state = &mut self.rows[job.meta.row as usize];
        let logits = self.output.logits(index);
        if job.meta.has(FLAG_PREFILL) {
            job.kept = job.tokens.len() as u32;
            state.length += job.kept;
            if !job.meta.has(FLAG_LAST_CHUNK) {
                return Vec::new();
            }
            let first = emit(logits, sampling, state.length as usize, &mut Vec::new());
            state.anchor = Some(first);
            state.prompt_tokens = *self.prompts.entry(request).or_insert(state.length);
            return vec![first];
        }
        let drafts = &job.tokens[1..];
        let row = VerifyRow {
            position: job.start as usize,
            drafts,
            draft_probabilities: &state.probabilities,
            logits,
            sampling,
        };
        let verdict = verify(self.options.rule, &row, &mut self.scratch);
        let mut emitted = drafts[..verdict.accepted].to_vec();
        emitted.push(verdict.next);
        job.kept = emitted.len() as u32;
        state.length += job.kept;
        state.anchor = Some(verdict.next);
        state.forget_drafts();
        self.steps.push(DecodeStep { request, anchor: job.start, emitted: job.kept });
        emitted
    }

    /// A row without a drafter slot has no context: the plan says from where on it has.
    fn store(&mut self, jobs: &[Job<'_>]) -> Result<(), EngineError> {
        let dim = self.pair.config.capture_dim();
        let with_slot = jobs.iter().enumerate().filter(|(_, job)| job.meta.slot != NO_SLOT);
        let rows: Vec<ContextRow<'_>> = with_slot
            .map(|(index, job)| ContextRow {
                sequence: job.meta.row as usize,
                start: job.start as usize,
                captures: &self.output.captures(index)[..job.kept as usize * dim],
            })
            .collect();
        let mut pages = DevicePages {
            device: &mut self.device,
            layout: &self.layout,
            prompt_rows: &[],
            error: OnceLock::new(),
        };
        self.pair.drafter.store_context(&rows, &mut pages, &mut self.workspace);
        pages.finish()
    }

    fn draft(&mut self, jobs: &[Job<'_>]) -> Result<(), EngineError> {
        let has_anchor = |row: &RowMeta| !row.has(FLAG_PREFILL) || row.has(FLAG_LAST_CHUNK);
        let drafting: Vec<&RowMeta> = jobs
            .iter()
            .map(|job| job.meta)
            .filter(|row| row.slot != NO_SLOT && has_anchor(row))
            .collect();
        for row in drafting.iter().filter(|row| row.has(FLAG_LAST_CHUNK)) {
            self.apply_arm(row)?;
        }
        let rows: Vec<DraftRow> = drafting.iter().map(|row| self.draft_row(row)).collect();
        let mut pages = DevicePages {
            device: &mut self.device,
            layout: &self.layout,
            prompt_rows: &self.prompt_rows,
            error: OnceLock::new(),
        };
        self.pair.drafter.draft(&rows, &mut pages, &mut self.workspace, &mut self.drafts);
        pages.finish()?;
        for (index, row) in drafting.iter().enumerate() {
            let state = &mut self.rows[row.row as usize];
            state.drafts.extend_from_slice(self.drafts.tokens(index));
            if self.options.rule != Rule::ExactMatch {
                state.probabilities.extend_from_slice(self.drafts.probabilities(index));
            }
        }
        Ok(())
    }

    fn draft_row(&self, row: &RowMeta) -> DraftRow {
        let state = &self.rows[row.row as usize];
        let hidden = self.options.draft_rows.hidden_before(state.prompt_tokens);
        DraftRow {
            sequence: row.row as usize,
            anchor: state.anchor.unwrap_or_default(),
            position: state.length as usize,
            hidden: 0..hidden.max(row.context_first) as usize,
            // The likeliest draft has the best chance to be the sampled token.
            sampling: match self.options.rule {
                Rule::ExactMatch => Sampling::GREEDY,
                Rule::Rejection | Rule::Block => self.sampling(row.request()),
            },
        }
    }

    /// Puts the fault of the arm between the drafter and the prompt's rows.
    fn apply_arm(&mut self, row: &RowMeta) -> Result<(), EngineError> {
        let at = row.row as usize;
        let config = &self.pair.config;
        let prompt_tokens = self.rows[at].prompt_tokens as usize;
        self.prompt_rows[at] = match self.options.draft_rows {
            DraftRows::Zeros => Some(PromptRows::zeros(config, prompt_tokens)),
            DraftRows::Stale => {
                let pages = DevicePages {
                    device: &mut self.device,
                    layout: &self.layout,
                    prompt_rows: &[],
                    error: OnceLock::new(),
                };
                // Of a request that was preempted some of the window may have slid out since.
                let backed = (self.rows[at].length as usize + 1).saturating_sub(config.window);
                let backed = backed.max(row.context_first as usize);
                let own = PromptRows::copied(config, &pages, at, prompt_tokens, backed);
                pages.finish()?;
                let last = self.last_prompt.replace(own);
                Some(match last {
                    Some(last) => last.moved_to(config, prompt_tokens),
                    None => PromptRows::zeros(config, prompt_tokens),
                })
            }
            _ => None,
        };
        Ok(())
    }

    fn sampling(&self, request: u64) -> Sampling {
        Sampling { temperature: self.options.temperature, seed: mix(self.options.seed, request) }
    }
}
