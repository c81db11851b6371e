//! The drafter: one non-causal block a step over the context rows, then the Markov chain.

use std::ops::Range;
use std::sync::Arc;

use super::attention::LayerKv;
use super::config::PairConfig;
use super::context::{ContextRow, Converter};
use super::error::PairError;
use super::kv::{KvPages, Owner, Run};
use super::layer::Layer;
use super::markov::Chain;
use super::rotary::Rotary;
use super::sample::Sampling;
use super::segment::{Reach, Segment};
use super::target::{Target, Workspace};
use super::vocabulary::final_norm;
use super::weights::{DrafterWeights, Vocabulary};

/// One block to draft.
#[derive(Clone, Debug)]
pub struct DraftRow {
    /// Name of the sequence, handed back to [`KvPages`].
    pub sequence: usize,
    /// The newest token: emitted, but without K/V yet.
    pub anchor: u32,
    /// Its position. Draft rows at `position .. position + block` become scratch.
    pub position: usize,
    /// Context positions that hold no row of this sequence and must not be read: `0..first_context`
    /// when only newer rows arrived, empty when all of the window is there.
    pub hidden: Range<usize>,
    /// How each draft is chosen; temperature 0 takes the likeliest.
    pub sampling: Sampling,
}

/// What a draft call computed; its memory is reused by the next.
#[derive(Debug, Default)]
pub struct DraftOutput {
    pub(super) block: usize,
    pub(super) width: usize,
    pub(super) vocab: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) confidence: Vec<f32>,
    pub(super) hidden: Vec<f32>,
    pub(super) base_logits: Vec<f32>,
    pub(super) probabilities: Vec<f32>,
}

/// The drafter model.
#[derive(Debug)]
pub struct Drafter {
    config: Arc<PairConfig>,
    weights: DrafterWeights,
    vocabulary: Arc<Vocabulary>,
    rotary: Rotary,
}

impl Drafter {
    /// Reads `drafter.safetensors`; the token table is the target's.
    ///
    /// # Errors
    /// When the file is not a safetensors file or a tensor is missing or of another shape.
    pub fn from_bytes(
        bytes: &[u8],
        config: Arc<PairConfig>,
        target: &Target,
    ) -> Result<Self, PairError> {
        let weights = DrafterWeights::from_bytes(bytes, &config)?;
        let rotary = Rotary::new(config.theta, config.head_dim);
        Ok(Self { weights, vocabulary: target.vocabulary(), rotary, config })
    }

    /// Writes the context K/V of positions the target has run. No drafter forward is needed for a
    /// prompt: a position's rows depend on its captured states alone.
    ///
    /// # Panics
    /// When `pages` has no row where one is due.
    pub fn store_context(
        &self,
        rows: &[ContextRow<'_>],
        pages: &mut impl KvPages,
        workspace: &mut Workspace,
    ) {
        let converter =
            Converter { config: &self.config, weights: &self.weights, rotary: &self.rotary };
        let Workspace { workers, context, .. } = workspace;
        workers.run(|| converter.store(rows, pages, context, workers));
    }

    /// Drafts a block for every row, writing its scratch K/V after the context.
    ///
    /// # Panics
    /// When an anchor is not in the vocabulary, or `pages` has no row where one is due.
    pub fn draft(
        &self,
        rows: &[DraftRow],
        pages: &mut impl KvPages,
        workspace: &mut Workspace,
        output: &mut DraftOutput,
    ) {
        output.begin(rows.len(), &self.config);
        if rows.is_empty() {
            return;
        }
        let workers = workspace.workers.clone();
        workers.run(|| {
            self.run_blocks(rows, pages, workspace);
            let hidden = &workspace.activations.hidden;
            let DraftOutput { hidden: normed, base_logits, .. } = output;
            final_norm(hidden, &self.weights.norm, self.config.eps, normed);
            self.vocabulary.logits(normed, self.config.width, base_logits, &workers);
            let chain = Chain { config: &self.config, weights: &self.weights };
            chain.run(rows, &mut workspace.chain, output);
        });
    }

    fn run_blocks(&self, rows: &[DraftRow], pages: &mut impl KvPages, workspace: &mut Workspace) {
        let Workspace { workers, activations, .. } = workspace;
        let (config, shape) = (&self.config, self.config.draft_shape());
        activations.clear();
        for row in rows {
            let run = Run { sequence: row.sequence, position: row.position, tokens: config.block };
            let reach =
                Reach::Block { window: config.window, hidden: (row.hidden.start, row.hidden.end) };
            let first_token = activations.hidden.len() / config.width;
            activations.segments.push(Segment { run, first_token, reach });
            self.vocabulary.embed(row.anchor, config.width, &mut activations.hidden);
            for _ in 1..config.block {
                self.vocabulary.embed(config.mask_id, config.width, &mut activations.hidden);
            }
        }
        activations.prepare(&shape, &self.rotary, workers);
        for (index, weights) in self.weights.layers.iter().enumerate() {
            let kv = LayerKv { owner: Owner::Draft, layer: index };
            activations.run_layer(Layer { shape: &shape, weights, kv }, pages, workers);
        }
    }
}

impl DraftOutput {
    fn begin(&mut self, rows: usize, config: &PairConfig) {
        (self.block, self.width, self.vocab) = (config.block, config.width, config.vocab);
        let slots = rows * self.block;
        self.tokens.resize(slots, 0);
        self.confidence.resize(slots, 0.0);
        self.hidden.resize(slots * self.width, 0.0);
        self.base_logits.resize(slots * self.vocab, 0.0);
        self.probabilities.resize(slots * self.vocab, 0.0);
    }

    /// The drafts of a row.
    #[must_use]
    pub fn tokens(&self, row: usize) -> &[u32] {
        &self.tokens[row * self.block..(row + 1) * self.block]
    }

    /// For each draft of a row, the drafter's estimate that the target keeps it once it kept those
    /// before.
    #[must_use]
    pub fn confidence(&self, row: usize) -> &[f32] {
        &self.confidence[row * self.block..(row + 1) * self.block]
    }

    /// The distribution each draft of a row was chosen from, `[block, vocab]`; all mass on the draft
    /// at temperature 0. Rejection and block verification need it.
    #[must_use]
    pub fn probabilities(&self, row: usize) -> &[f32] {
        let values = self.block * self.vocab;
        &self.probabilities[row * values..(row + 1) * values]
    }

    /// Logits of the block before the Markov bias, `[block, vocab]`.
    #[must_use]
    pub fn base_logits(&self, row: usize) -> &[f32] {
        let values = self.block * self.vocab;
        &self.base_logits[row * values..(row + 1) * values]
    }

    /// Hidden states of the block after the final norm, `[block, width]`.
    #[must_use]
    pub fn hidden(&self, row: usize) -> &[f32] {
        let values = self.block * self.width;
        &self.hidden[row * values..(row + 1) * values]
    }
}
