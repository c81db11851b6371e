//! A speculative loop without a scheduler: every request draws pages as it needs them.

use super::super::kv::Owner;
use super::super::sample::{Sampling, emit};
use super::super::verify::{Rule, VerifyRow, VerifyScratch, verify};
use super::super::{
    ContextRow, DraftOutput, DraftRow, Logits, Pair, TargetOutput, TargetRow, Workspace,
};
use super::arms::Arm;
use super::scattered::ScatteredPages;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Prompt tokens.
    pub prompt: &'a [u32],
    /// Tokens to emit.
    pub new_tokens: usize,
    /// What the drafter gets to see.
    pub arm: Arm,
    /// Whether to draft at all.
    pub speculate: bool,
    /// When a draft counts as right.
    pub rule: Rule,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// One draft and verify.
#[derive(Clone, Debug)]
pub struct Step {
    /// Position of the anchor.
    pub anchor: usize,
    /// Drafts.
    pub drafts: Vec<u32>,
    /// Drafts kept.
    pub accepted: usize,
    /// Confidence of each draft.
    pub confidence: Vec<f32>,
}

/// What a request produced.
#[derive(Debug)]
pub struct Session<'a> {
    pub(super) request: Request<'a>,
    /// Positions whose target K/V is final.
    ran: usize,
    /// Whether the arm has been applied.
    pub(super) settled: bool,
    /// Emitted tokens.
    pub text: Vec<u32>,
    /// Draft-and-verify steps.
    pub steps: Vec<Step>,
}

/// A batch of requests over one set of pages.
pub struct Reference<'a> {
    pub(super) pair: &'a Pair,
    /// The pages, for those who want to look.
    pub pages: ScatteredPages,
    workspace: Workspace,
    drafts: DraftOutput,
    output: TargetOutput,
    scratch: VerifyScratch,
    chunk: usize,
    /// One a request.
    pub sessions: Vec<Session<'a>>,
}

impl<'a> Reference<'a> {
    /// Prefills `chunk` tokens at a time.
    #[must_use]
    pub fn new(pair: &'a Pair, requests: &[Request<'a>], page_tokens: usize, chunk: usize) -> Self {
        let reach = 2 * pair.config.block + 2;
        let pages = requests
            .iter()
            .map(|r| (r.prompt.len() + r.new_tokens + reach).div_ceil(page_tokens) + 1)
            .sum();
        let sessions = requests
            .iter()
            .map(|&request| Session {
                request,
                ran: 0,
                settled: false,
                text: Vec::new(),
                steps: Vec::new(),
            })
            .collect();
        Self {
            pair,
            pages: ScatteredPages::new(&pair.config, page_tokens, pages),
            workspace: Workspace::new(super::super::Workers::two()),
            drafts: DraftOutput::default(),
            output: TargetOutput::default(),
            scratch: VerifyScratch::default(),
            chunk,
            sessions,
        }
    }

    /// Runs every request to its end.
    pub fn run(&mut self) {
        while self.tick() {}
    }

    /// One draft, one forward over prefill chunks and verify rows together, one verification.
    /// False when nothing is left to do.
    pub fn tick(&mut self) -> bool {
        self.settle();
        let live: Vec<usize> = (0..self.sessions.len()).filter(|&i| self.is_ready(i)).collect();
        let drafting: Vec<usize> =
            live.iter().copied().filter(|&i| self.sessions[i].drafts()).collect();
        self.draft(&drafting);

        let inputs: Vec<Vec<u32>> = live
            .iter()
            .map(|&i| {
                let slot = drafting.iter().position(|&d| d == i);
                self.sessions[i]
                    .input(self.chunk, slot.map_or(&[], |slot| self.drafts.tokens(slot)))
            })
            .collect();
        for (&i, input) in live.iter().zip(&inputs) {
            self.pages.ensure(i, Owner::Target, self.sessions[i].ran + input.len());
        }
        let rows: Vec<TargetRow<'_>> = live
            .iter()
            .zip(&inputs)
            .map(|(&sequence, tokens)| {
                let session = &self.sessions[sequence];
                let logits = session.logits(tokens.len());
                TargetRow { sequence, tokens, start: session.ran, logits }
            })
            .collect();
        let Self { pair, pages, workspace, output, .. } = self;
        pair.target.forward(&rows, pages, workspace, output);

        let mut finals = Vec::new();
        for (row, &i) in live.iter().enumerate() {
            let slot = drafting.iter().position(|&d| d == i);
            finals.push(self.accept(row, i, inputs[row].len(), slot));
        }
        self.store(&live, &finals);
        !live.is_empty()
    }

    fn is_ready(&self, i: usize) -> bool {
        let session = &self.sessions[i];
        session.prefilling() || (session.settled && session.text.len() < session.request.new_tokens)
    }

    fn draft(&mut self, drafting: &[usize]) {
        let config = &self.pair.config;
        let rows: Vec<DraftRow> = drafting
            .iter()
            .map(|&sequence| {
                let session = &self.sessions[sequence];
                DraftRow {
                    sequence,
                    anchor: session.text[session.text.len() - 1],
                    position: session.ran,
                    hidden: session.request.arm.hidden(session.request.prompt.len()),
                    sampling: match session.request.rule {
                        Rule::ExactMatch => Sampling::GREEDY,
                        Rule::Rejection | Rule::Block => session.request.sampling,
                    },
                }
            })
            .collect();
        for row in &rows {
            let window = (row.position + 1).saturating_sub(config.window);
            self.pages.ensure(row.sequence, Owner::Draft, row.position + config.block);
            self.pages.evict_below(row.sequence, Owner::Draft, window);
        }
        let Self { pair, pages, workspace, drafts, .. } = self;
        pair.drafter.draft(&rows, pages, workspace, drafts);
    }

    /// Returns how many of the row's tokens are final.
    fn accept(&mut self, row: usize, i: usize, ran: usize, slot: Option<usize>) -> usize {
        let session = &mut self.sessions[i];
        let logits = self.output.logits(row);
        if session.prefilling() {
            session.ran += ran;
            if !session.prefilling() {
                let first = emit(logits, session.request.sampling, session.ran, &mut Vec::new());
                session.text.push(first);
            }
            return ran;
        }
        let verdict = verify(
            session.request.rule,
            &VerifyRow {
                position: session.ran,
                drafts: slot.map_or(&[], |slot| self.drafts.tokens(slot)),
                draft_probabilities: slot.map_or(&[], |slot| self.drafts.probabilities(slot)),
                logits,
                sampling: session.request.sampling,
            },
            &mut self.scratch,
        );
        if let Some(slot) = slot {
            let drafts = self.drafts.tokens(slot);
            session.text.extend_from_slice(&drafts[..verdict.accepted]);
            session.steps.push(Step {
                anchor: session.ran,
                drafts: drafts.to_vec(),
                accepted: verdict.accepted,
                confidence: self.drafts.confidence(slot).to_vec(),
            });
        }
        session.text.push(verdict.next);
        session.ran += verdict.accepted + 1;
        verdict.accepted + 1
    }

    fn store(&mut self, live: &[usize], finals: &[usize]) {
        let dim = self.pair.config.capture_dim();
        let rows: Vec<ContextRow<'_>> = live
            .iter()
            .zip(finals)
            .enumerate()
            .map(|(row, (&sequence, &tokens))| ContextRow {
                sequence,
                start: self.sessions[sequence].ran - tokens,
                captures: &self.output.captures(row)[..tokens * dim],
            })
            .collect();
        for &i in live {
            self.pages.ensure(i, Owner::Draft, self.sessions[i].ran);
        }
        self.pair.drafter.store_context(&rows, &mut self.pages, &mut self.workspace);
    }
}

impl Session<'_> {
    pub(super) fn prefilling(&self) -> bool {
        self.ran < self.request.prompt.len()
    }

    fn drafts(&self) -> bool {
        self.request.speculate && !self.prefilling()
    }

    fn input(&self, chunk: usize, drafts: &[u32]) -> Vec<u32> {
        if self.prefilling() {
            self.request.prompt[self.ran..].iter().take(chunk).copied().collect()
        } else {
            self.text[self.text.len() - 1..].iter().chain(drafts).copied().collect()
        }
    }

    fn logits(&self, tokens: usize) -> Logits {
        if !self.prefilling() {
            Logits::All
        } else if self.ran + tokens == self.request.prompt.len() {
            Logits::Last
        } else {
            Logits::None
        }
    }
}
