//! The token table: embedding on the way in, head on the way out.

use super::kernels::{RmsNorm, run};
use super::matmul::{Matrix, Store, matmul};
use super::weights::Vocabulary;
use super::workers::Workers;

/// Rows of logits below which one thread is quicker.
const LEAST_ROWS_WORTH_SHARING: usize = 16;

impl Vocabulary {
    /// Appends the embedding of a token.
    ///
    /// # Panics
    /// When the token is not in the vocabulary.
    pub(super) fn embed(&self, token: u32, width: usize, hidden: &mut Vec<f32>) {
        let at = token as usize * width;
        assert!(at < self.embedding.len(), "token {token} is not in the vocabulary");
        hidden.extend_from_slice(&self.embedding[at..at + width]);
    }

    /// Logits of rows of normed hidden states.
    pub(super) fn logits(&self, normed: &[f32], width: usize, out: &mut [f32], workers: &Workers) {
        let vocab = self.head.len() / width;
        let rows = normed.len() / width;
        let first = workers.first_share(rows, LEAST_ROWS_WORTH_SHARING);
        let (a, b) = normed.split_at(first * width);
        let (a_out, b_out) = out.split_at_mut(first * vocab);
        let head = Matrix::packed(&self.head, width, vocab);
        let product = |x: &[f32], out: &mut [f32]| {
            matmul(out, Store::Replace, Matrix::packed(x, x.len() / width, width), head);
        };
        if b.is_empty() {
            product(a, a_out);
        } else {
            workers.join(|| product(a, a_out), || product(b, b_out));
        }
    }
}

/// Final norm of the rows of `hidden`.
pub(super) fn final_norm(hidden: &[f32], gain: &[f32], eps: f32, normed: &mut Vec<f32>) {
    normed.resize(hidden.len(), 0.0);
    run(RmsNorm { x: hidden, gain, eps, out: normed });
}
