//! The target's forward over a ragged batch: prefill chunks and decode or verify rows in one call.

use std::ops::Range;
use std::sync::Arc;

use super::attention::LayerKv;
use super::config::PairConfig;
use super::context::ContextBuffers;
use super::error::PairError;
use super::kv::{KvPages, Owner, Run};
use super::layer::{Activations, Layer};
use super::markov::ChainBuffers;
use super::rotary::Rotary;
use super::segment::{Reach, Segment};
use super::vocabulary::final_norm;
use super::weights::{TargetWeights, Vocabulary};
use super::workers::Workers;

/// Tokens that go through all layers together; longer batches are cut, so that activations stay small.
const SLAB_TOKENS: usize = 512;

/// Which logits of a row to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: a prefill chunk that does not end its prompt.
    None,
    /// Those after the last token: the chunk that ends a prompt, or plain decoding.
    Last,
    /// Those after every token: a verify row.
    All,
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct TargetRow<'a> {
    /// Name of the sequence, handed back to [`KvPages`].
    pub sequence: usize,
    /// Tokens to run; their K/V rows are written.
    pub tokens: &'a [u32],
    /// Position of the first token; the rows before it must hold the sequence's K/V.
    pub start: usize,
    /// Logits wanted.
    pub logits: Logits,
}

/// What a forward computed; its memory is reused by the next.
#[derive(Debug, Default)]
pub struct TargetOutput {
    vocab: usize,
    capture_dim: usize,
    logits: Vec<f32>,
    captures: Vec<f32>,
    /// Logit rows and tokens of each row of the batch.
    rows: Vec<(Range<usize>, Range<usize>)>,
}

/// Memory and threads of the model's calls; one serves target and drafter.
#[derive(Debug, Default)]
pub struct Workspace {
    pub(super) workers: Workers,
    pub(super) activations: Activations,
    /// Tokens of the slab whose logits are wanted.
    pub(super) wanted: Vec<Range<usize>>,
    /// Hidden states that need logits, before and after the final norm.
    pub(super) selected: Vec<f32>,
    pub(super) normed: Vec<f32>,
    pub(super) context: ContextBuffers,
    pub(super) chain: ChainBuffers,
}

/// How far a batch has been cut into slabs.
struct Cursor<'a> {
    rows: &'a [TargetRow<'a>],
    row: usize,
    /// Tokens of the row already cut.
    done: usize,
}

/// The target model.
#[derive(Debug)]
pub struct Target {
    config: Arc<PairConfig>,
    weights: TargetWeights,
    rotary: Rotary,
}

impl Target {
    /// Reads `target.safetensors`.
    ///
    /// # Errors
    /// When the file is not a safetensors file or a tensor is missing or of another shape.
    pub fn from_bytes(bytes: &[u8], config: Arc<PairConfig>) -> Result<Self, PairError> {
        let weights = TargetWeights::from_bytes(bytes, &config)?;
        let rotary = Rotary::new(config.theta, config.head_dim);
        Ok(Self { config, weights, rotary })
    }

    pub(super) fn vocabulary(&self) -> Arc<Vocabulary> {
        Arc::clone(&self.weights.vocabulary)
    }

    /// Runs all rows, writing the K/V of every token. Rows of the same sequence must be in order.
    ///
    /// # Panics
    /// When a token is not in the vocabulary, or `pages` has no row where one is due.
    pub fn forward(
        &self,
        rows: &[TargetRow<'_>],
        pages: &mut impl KvPages,
        workspace: &mut Workspace,
        output: &mut TargetOutput,
    ) {
        output.begin(rows, &self.config);
        let TargetOutput { vocab, capture_dim, logits, captures, .. } = output;
        let workers = workspace.workers.clone();
        workers.run(|| {
            let mut cursor = Cursor { rows, row: 0, done: 0 };
            let (mut tokens_done, mut logits_done) = (0, 0);
            loop {
                let tokens = self.next_slab(&mut cursor, workspace);
                if tokens == 0 {
                    break;
                }
                self.run_slab(pages, workspace, &mut captures[tokens_done * *capture_dim..]);
                tokens_done += tokens;
                let rest = &mut logits[logits_done * *vocab..];
                logits_done += self.add_logits(workspace, rest);
            }
        });
    }

    /// Embeds the next tokens, and notes whose logits are wanted. Returns how many there are.
    fn next_slab(&self, cursor: &mut Cursor<'_>, workspace: &mut Workspace) -> usize {
        let Workspace { activations, wanted, .. } = workspace;
        activations.clear();
        wanted.clear();
        let mut slab = 0;
        while slab < SLAB_TOKENS
            && let Some(row) = cursor.rows.get(cursor.row)
        {
            let tokens = (row.tokens.len() - cursor.done).min(SLAB_TOKENS - slab);
            self.add_tokens(row, cursor.done..cursor.done + tokens, activations);
            cursor.done += tokens;
            let ends = cursor.done == row.tokens.len();
            match row.logits {
                Logits::All => wanted.push(slab..slab + tokens),
                Logits::Last if ends && tokens > 0 => wanted.push(slab + tokens - 1..slab + tokens),
                Logits::Last | Logits::None => {}
            }
            slab += tokens;
            if ends {
                (cursor.row, cursor.done) = (cursor.row + 1, 0);
            }
        }
        slab
    }

    fn add_tokens(&self, row: &TargetRow<'_>, part: Range<usize>, activations: &mut Activations) {
        if part.is_empty() {
            return;
        }
        let width = self.config.width;
        let first_token = activations.hidden.len() / width;
        let run =
            Run { sequence: row.sequence, position: row.start + part.start, tokens: part.len() };
        activations.segments.push(Segment { run, first_token, reach: Reach::Causal });
        for &token in &row.tokens[part] {
            self.weights.vocabulary.embed(token, width, &mut activations.hidden);
        }
    }

    fn run_slab(&self, pages: &mut impl KvPages, workspace: &mut Workspace, captures: &mut [f32]) {
        let Workspace { workers, activations, .. } = workspace;
        let (config, shape) = (&self.config, self.config.target_shape());
        activations.prepare(&shape, &self.rotary, workers);
        for (index, weights) in self.weights.layers.iter().enumerate() {
            let kv = LayerKv { owner: Owner::Target, layer: index };
            activations.run_layer(Layer { shape: &shape, weights, kv }, pages, workers);
            if let Some(slot) = config.capture.iter().position(|&layer| layer == index) {
                let first = slot * config.width;
                let streams = activations.hidden.chunks_exact(config.width);
                for (capture, hidden) in
                    captures.chunks_exact_mut(config.capture_dim()).zip(streams)
                {
                    capture[first..first + config.width].copy_from_slice(hidden);
                }
            }
        }
    }

    /// Returns how many rows of logits it wrote.
    fn add_logits(&self, workspace: &mut Workspace, out: &mut [f32]) -> usize {
        let Workspace { workers, activations, wanted, selected, normed, .. } = workspace;
        let (width, vocab) = (self.config.width, self.config.vocab);
        selected.clear();
        for tokens in wanted.iter() {
            let values = tokens.start * width..tokens.end * width;
            selected.extend_from_slice(&activations.hidden[values]);
        }
        let rows = selected.len() / width;
        final_norm(selected, &self.weights.norm, self.config.eps, normed);
        self.weights.vocabulary.logits(normed, width, &mut out[..rows * vocab], workers);
        rows
    }
}

impl TargetOutput {
    fn begin(&mut self, rows: &[TargetRow<'_>], config: &PairConfig) {
        self.vocab = config.vocab;
        self.capture_dim = config.capture_dim();
        self.rows.clear();
        let (mut logits, mut tokens) = (0, 0);
        for row in rows {
            let count = match row.logits {
                Logits::None => 0,
                Logits::Last => row.tokens.len().min(1),
                Logits::All => row.tokens.len(),
            };
            self.rows.push((logits..logits + count, tokens..tokens + row.tokens.len()));
            (logits, tokens) = (logits + count, tokens + row.tokens.len());
        }
        self.logits.resize(logits * self.vocab, 0.0);
        self.captures.resize(tokens * self.capture_dim, 0.0);
    }

    /// Logits of a row of the batch, `[wanted tokens, vocab]`.
    #[must_use]
    pub fn logits(&self, row: usize) -> &[f32] {
        let wanted = &self.rows[row].0;
        &self.logits[wanted.start * self.vocab..wanted.end * self.vocab]
    }

    /// Captured residual streams of a row of the batch, `[tokens, capture_dim]`.
    #[must_use]
    pub fn captures(&self, row: usize) -> &[f32] {
        let tokens = &self.rows[row].1;
        &self.captures[tokens.start * self.capture_dim..tokens.end * self.capture_dim]
    }
}

impl Workspace {
    /// Memory for calls that share their work among `workers`.
    #[must_use]
    pub fn new(workers: Workers) -> Self {
        Self { workers, ..Self::default() }
    }
}
