//! The semi-autoregressive head: left to right, each draft adds a bias of the token before it.

use super::config::PairConfig;
use super::drafter::{DraftOutput, DraftRow};
use super::matmul::{Matrix, Store, matmul};
use super::random::{Draw, uniform};
use super::sample::{distribution, likeliest, pick};
use super::weights::DrafterWeights;

/// Memory of the chain, reused.
#[derive(Debug, Default)]
pub(super) struct ChainBuffers {
    /// Markov embedding of the token before, one row a block.
    before: Vec<f32>,
    /// Logits of one slot, one row a block.
    logits: Vec<f32>,
}

/// The chain over the hidden states and base logits of a batch of blocks.
pub(super) struct Chain<'a> {
    pub config: &'a PairConfig,
    pub weights: &'a DrafterWeights,
}

impl Chain<'_> {
    /// Fills tokens, confidence and probabilities of every block.
    pub(super) fn run(
        &self,
        rows: &[DraftRow],
        buffers: &mut ChainBuffers,
        output: &mut DraftOutput,
    ) {
        let (rank, vocab) = (self.config.markov_rank, self.config.vocab);
        let ChainBuffers { before, logits } = buffers;
        before.resize(rows.len() * rank, 0.0);
        logits.resize(rows.len() * vocab, 0.0);
        for slot in 0..self.config.block {
            for (row, before) in before.chunks_exact_mut(rank).enumerate() {
                let token = match slot {
                    0 => rows[row].anchor,
                    _ => output.tokens(row)[slot - 1],
                } as usize;
                before.copy_from_slice(&self.weights.markov_in[token * rank..(token + 1) * rank]);
            }
            for (row, logits) in logits.chunks_exact_mut(vocab).enumerate() {
                let base = &output.base_logits(row)[slot * vocab..(slot + 1) * vocab];
                logits.copy_from_slice(base);
            }
            matmul(
                logits,
                Store::Add,
                Matrix::packed(before, rows.len(), rank),
                Matrix::packed(&self.weights.markov_out, rank, vocab),
            );
            let inputs = before.chunks_exact(rank).zip(logits.chunks_exact(vocab));
            for (row, (before, logits)) in inputs.enumerate() {
                let index = row * self.config.block + slot;
                output.confidence[index] = self.confidence(output, row, slot, before);
                let weights = &mut output.probabilities[index * vocab..(index + 1) * vocab];
                output.tokens[index] = choose(&rows[row], slot, logits, weights);
            }
        }
    }

    fn confidence(&self, output: &DraftOutput, row: usize, slot: usize, before: &[f32]) -> f32 {
        let width = self.config.width;
        let hidden = &output.hidden(row)[slot * width..(slot + 1) * width];
        let features = hidden.iter().chain(before);
        let sum: f32 = features.zip(&self.weights.confidence).map(|(x, w)| x * w).sum();
        1.0 / (1.0 + (-(sum + self.weights.confidence_bias)).exp())
    }
}

fn choose(row: &DraftRow, slot: usize, logits: &[f32], probabilities: &mut [f32]) -> u32 {
    let temperature = row.sampling.temperature;
    distribution(logits, temperature, probabilities);
    if temperature > 0.0 {
        pick(probabilities, uniform(row.sampling.seed, row.position, Draw::Draft { slot }))
    } else {
        likeliest(logits)
    }
}
