//! One decoder layer over a batch of tokens; target and drafter differ in weights and reach only.

use super::attention::{Attention, LayerKv};
use super::config::LayerShape;
use super::kernels::{NormRotate, RmsNorm, SiluProduct, run};
use super::kv::{Columns, Kind, KvPages, write_rows};
use super::matmul::{Matrix, Store, matmul};
use super::rotary::Rotary;
use super::segment::Segment;
use super::weights::LayerWeights;
use super::workers::Workers;

/// Tokens below which both halves would mostly read the same weights.
const LEAST_TOKENS_WORTH_SHARING: usize = 32;

/// Activations of a batch of tokens, one row a token, reused from call to call.
#[derive(Debug, Default)]
pub(super) struct Activations {
    pub segments: Vec<Segment>,
    /// The residual stream.
    pub hidden: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    product: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    attention: Attention,
}

/// The same rows of every buffer.
struct Share<'a> {
    hidden: &'a mut [f32],
    normed: &'a mut [f32],
    qkv: &'a mut [f32],
    attended: &'a [f32],
    gate_up: &'a mut [f32],
    product: &'a mut [f32],
    cos: &'a [f32],
    sin: &'a [f32],
}

/// A layer's place and parameters.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a> {
    pub shape: &'a LayerShape,
    pub weights: &'a LayerWeights,
    pub kv: LayerKv,
}

impl Activations {
    /// Forgets the batch before.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.hidden.clear();
    }

    /// Call once the segments and the embedded tokens (in `hidden`) are in place.
    pub(super) fn prepare(&mut self, shape: &LayerShape, rotary: &Rotary, workers: &Workers) {
        let tokens = self.hidden.len() / shape.width;
        self.normed.resize(tokens * shape.width, 0.0);
        self.qkv.resize(tokens * shape.qkv_dim(), 0.0);
        self.attended.resize(tokens * shape.query_dim(), 0.0);
        self.gate_up.resize(tokens * 2 * shape.ff, 0.0);
        self.product.resize(tokens * shape.ff, 0.0);
        self.cos.clear();
        self.sin.clear();
        for segment in &self.segments {
            let run = segment.run;
            for position in run.position..run.position + run.tokens {
                rotary.push_angles(position, &mut self.cos, &mut self.sin);
            }
        }
        self.attention.plan(&self.segments, shape, workers);
    }

    /// Runs one layer in place over `hidden`, writing the K/V rows of every token.
    pub(super) fn run_layer(
        &mut self,
        layer: Layer<'_>,
        pages: &mut impl KvPages,
        workers: &Workers,
    ) {
        self.share_rows(layer, workers, |share| layer.project(share));
        self.write_kv(layer, pages);
        self.attention.attend(layer.shape, layer.kv, &self.qkv, pages, workers, &mut self.attended);
        self.share_rows(layer, workers, |share| layer.mix(share));
    }

    fn share_rows(
        &mut self,
        layer: Layer<'_>,
        workers: &Workers,
        work: impl Fn(Share<'_>) + Send + Sync,
    ) {
        let tokens = self.hidden.len() / layer.shape.width;
        let first = workers.first_share(tokens, LEAST_TOKENS_WORTH_SHARING);
        let all = Share {
            hidden: &mut self.hidden,
            normed: &mut self.normed,
            qkv: &mut self.qkv,
            attended: &self.attended,
            gate_up: &mut self.gate_up,
            product: &mut self.product,
            cos: &self.cos,
            sin: &self.sin,
        };
        if first == tokens {
            work(all);
        } else {
            let (a, b) = all.split_at(first, layer.shape);
            workers.join(|| work(a), || work(b));
        }
    }

    fn write_kv(&self, layer: Layer<'_>, pages: &mut impl KvPages) {
        let shape = layer.shape;
        let (stride, width) = (shape.qkv_dim(), shape.kv_dim());
        for segment in &self.segments {
            let source = &self.qkv[segment.first_token * stride..];
            for (kind, first) in
                [(Kind::Key, shape.query_dim()), (Kind::Value, shape.query_dim() + width)]
            {
                let columns = Columns { first, count: width, row_stride: stride };
                write_rows(pages, layer.kv.buffer(kind), segment.run, source, columns);
            }
        }
    }
}

impl Share<'_> {
    fn split_at(self, tokens: usize, shape: &LayerShape) -> (Self, Self) {
        let half = shape.head_dim / 2;
        let (hidden, hidden_b) = self.hidden.split_at_mut(tokens * shape.width);
        let (normed, normed_b) = self.normed.split_at_mut(tokens * shape.width);
        let (qkv, qkv_b) = self.qkv.split_at_mut(tokens * shape.qkv_dim());
        let (attended, attended_b) = self.attended.split_at(tokens * shape.query_dim());
        let (gate_up, gate_up_b) = self.gate_up.split_at_mut(tokens * 2 * shape.ff);
        let (product, product_b) = self.product.split_at_mut(tokens * shape.ff);
        let (cos, cos_b) = self.cos.split_at(tokens * half);
        let (sin, sin_b) = self.sin.split_at(tokens * half);
        (
            Self { hidden, normed, qkv, attended, gate_up, product, cos, sin },
            Self {
                hidden: hidden_b,
                normed: normed_b,
                qkv: qkv_b,
                attended: attended_b,
                gate_up: gate_up_b,
                product: product_b,
                cos: cos_b,
                sin: sin_b,
            },
        )
    }
}

impl Layer<'_> {
    /// Queries, keys and values of every token, normed and rotated.
    fn project(&self, share: Share<'_>) {
        let (shape, weights) = (self.shape, self.weights);
        let tokens = share.hidden.len() / shape.width;
        run(RmsNorm {
            x: share.hidden,
            gain: &weights.attention_norm,
            eps: shape.eps,
            out: share.normed,
        });
        matmul(
            share.qkv,
            Store::Replace,
            Matrix::packed(share.normed, tokens, shape.width),
            Matrix::packed(&weights.qkv, shape.width, shape.qkv_dim()),
        );
        for (offset, heads, gain) in [
            (0, shape.heads, &weights.query_norm),
            (shape.query_dim(), shape.kv_heads, &weights.key_norm),
        ] {
            run(NormRotate {
                rows: share.qkv,
                row_stride: shape.qkv_dim(),
                offset,
                heads,
                gain,
                eps: shape.eps,
                cos: share.cos,
                sin: share.sin,
            });
        }
    }

    /// Attention output and MLP, added to the residual stream.
    fn mix(&self, share: Share<'_>) {
        let (shape, weights) = (self.shape, self.weights);
        let tokens = share.hidden.len() / shape.width;
        matmul(
            share.hidden,
            Store::Add,
            Matrix::packed(share.attended, tokens, shape.query_dim()),
            Matrix::packed(&weights.output, shape.query_dim(), shape.width),
        );
        run(RmsNorm {
            x: share.hidden,
            gain: &weights.mlp_norm,
            eps: shape.eps,
            out: share.normed,
        });
        matmul(
            share.gate_up,
            Store::Replace,
            Matrix::packed(share.normed, tokens, shape.width),
            Matrix::packed(&weights.gate_up, shape.width, 2 * shape.ff),
        );
        run(SiluProduct { gate_up: share.gate_up, ff: shape.ff, out: share.product });
        matmul(
            share.hidden,
            Store::Add,
            Matrix::packed(share.product, tokens, shape.ff),
            Matrix::packed(&weights.down, shape.ff, shape.width),
        );
    }
}
