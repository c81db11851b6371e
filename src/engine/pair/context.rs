//! Context injection: the drafter's K/V of positions the target has run, from its captured states.

use super::config::PairConfig;
use super::kernels::{NormRotate, RmsNorm, run};
use super::kv::{Buffer, Columns, Kind, KvPages, Owner, Run, write_rows};
use super::matmul::{Matrix, Store, matmul};
use super::rotary::Rotary;
use super::weights::DrafterWeights;
use super::workers::Workers;

/// Tokens converted together.
const SLAB_TOKENS: usize = 512;
/// Tokens below which one thread is quicker.
const LEAST_TOKENS_WORTH_SHARING: usize = 64;

/// Consecutive positions of one sequence whose captured states are at hand.
#[derive(Clone, Copy, Debug)]
pub struct ContextRow<'a> {
    /// Name of the sequence, handed back to [`KvPages`].
    pub sequence: usize,
    /// Position of the first token.
    pub start: usize,
    /// Captured residual streams, `[tokens, capture_dim]`: whole prefill chunks, or the anchor and
    /// the accepted drafts of a verify row.
    pub captures: &'a [f32],
}

/// Memory of the conversion, reused.
#[derive(Debug, Default)]
pub(super) struct ContextBuffers {
    runs: Vec<Run>,
    captures: Vec<f32>,
    fused: Vec<f32>,
    context: Vec<f32>,
    kv: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// What the conversion reads.
pub(super) struct Converter<'a> {
    pub config: &'a PairConfig,
    pub weights: &'a DrafterWeights,
    pub rotary: &'a Rotary,
}

impl Converter<'_> {
    pub(super) fn store(
        &self,
        rows: &[ContextRow<'_>],
        pages: &mut impl KvPages,
        buffers: &mut ContextBuffers,
        workers: &Workers,
    ) {
        let dim = self.config.capture_dim();
        buffers.clear();
        for row in rows {
            let mut position = row.start;
            let mut captures = row.captures;
            while !captures.is_empty() {
                let room = SLAB_TOKENS - buffers.captures.len() / dim;
                let tokens = room.min(captures.len() / dim);
                let (part, rest) = captures.split_at(tokens * dim);
                buffers.captures.extend_from_slice(part);
                buffers.runs.push(Run { sequence: row.sequence, position, tokens });
                (position, captures) = (position + tokens, rest);
                if tokens == room {
                    self.store_slab(pages, buffers, workers);
                    buffers.clear();
                }
            }
        }
        self.store_slab(pages, buffers, workers);
    }

    fn store_slab(
        &self,
        pages: &mut impl KvPages,
        buffers: &mut ContextBuffers,
        workers: &Workers,
    ) {
        let width = self.config.width;
        let tokens = buffers.captures.len() / self.config.capture_dim();
        let kv_dim = self.config.draft_shape().kv_dim();
        let columns = self.config.d_layers * 2 * kv_dim;
        for run in &buffers.runs {
            for position in run.position..run.position + run.tokens {
                self.rotary.push_angles(position, &mut buffers.cos, &mut buffers.sin);
            }
        }
        buffers.fused.resize(tokens * width, 0.0);
        buffers.context.resize(tokens * width, 0.0);
        buffers.kv.resize(tokens * columns, 0.0);

        let first = workers.first_share(tokens, LEAST_TOKENS_WORTH_SHARING);
        let (captures, captures_b) = buffers.captures.split_at(first * self.config.capture_dim());
        let (fused, fused_b) = buffers.fused.split_at_mut(first * width);
        let (context, context_b) = buffers.context.split_at_mut(first * width);
        let (kv, kv_b) = buffers.kv.split_at_mut(first * columns);
        let (cos, cos_b) = buffers.cos.split_at(first * self.config.head_dim / 2);
        let (sin, sin_b) = buffers.sin.split_at(first * self.config.head_dim / 2);
        if first == tokens {
            self.convert(captures, fused, context, kv, (cos, sin));
        } else {
            workers.join(
                || self.convert(captures, fused, context, kv, (cos, sin)),
                || self.convert(captures_b, fused_b, context_b, kv_b, (cos_b, sin_b)),
            );
        }

        let mut source = buffers.kv.as_slice();
        for run in &buffers.runs {
            let (rows, rest) = source.split_at(run.tokens * columns);
            for layer in 0..self.config.d_layers {
                for (kind, half) in [(Kind::Key, 0), (Kind::Value, 1)] {
                    let buffer = Buffer { owner: Owner::Draft, layer, kind };
                    let first = (2 * layer + half) * kv_dim;
                    write_rows(
                        pages,
                        buffer,
                        *run,
                        rows,
                        Columns { first, count: kv_dim, row_stride: columns },
                    );
                }
            }
            source = rest;
        }
    }

    fn convert(
        &self,
        captures: &[f32],
        fused: &mut [f32],
        context: &mut [f32],
        kv: &mut [f32],
        (cos, sin): (&[f32], &[f32]),
    ) {
        let (config, weights) = (self.config, self.weights);
        let (dim, width) = (config.capture_dim(), config.width);
        let tokens = captures.len() / dim;
        let kv_dim = config.draft_shape().kv_dim();
        let columns = config.d_layers * 2 * kv_dim;
        matmul(
            fused,
            Store::Replace,
            Matrix::packed(captures, tokens, dim),
            Matrix::packed(&weights.fuse, dim, width),
        );
        run(RmsNorm { x: fused, gain: &weights.context_norm, eps: config.eps, out: context });
        matmul(
            kv,
            Store::Replace,
            Matrix::packed(context, tokens, width),
            Matrix::packed(&weights.context_kv, width, columns),
        );
        for (layer, layer_weights) in weights.layers.iter().enumerate() {
            run(NormRotate {
                rows: kv,
                row_stride: columns,
                offset: 2 * layer * kv_dim,
                heads: config.d_kv_heads,
                gain: &layer_weights.key_norm,
                eps: config.eps,
                cos,
                sin,
            });
        }
    }
}

impl ContextBuffers {
    fn clear(&mut self) {
        self.runs.clear();
        self.captures.clear();
        self.cos.clear();
        self.sin.clear();
    }
}
