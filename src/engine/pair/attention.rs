//! Attention over pages, tile by tile, with running maxima and sums (nothing grows with the context).

use std::ops::Range;

use super::config::LayerShape;
use super::kernels::{Exponentials, FewQueries, Largest, run};
use super::kv::{Buffer, Kind, KvPages, Owner, Run, for_each_page};
use super::segment::Segment;
use super::tile::Product;
use super::workers::Workers;

/// Tokens of one task: enough queries to amortise packing their keys.
const TILE_TOKENS: usize = 128;
/// Keys scored at a time: keys, values and scores of a tile stay in the second-level cache.
const TILE_KEYS: usize = 256;
/// Up to this many queries a K/V head, plain loops over the pages beat the packed product.
const FEW_QUERIES: usize = 4;
/// Query-key pairs below which waking the second thread costs more than it saves.
const LEAST_PAIRS_WORTH_SHARING: usize = 4096;

/// Which layer's K and V to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerKv {
    pub owner: Owner,
    pub layer: usize,
}

impl LayerKv {
    pub(super) fn buffer(self, kind: Kind) -> Buffer {
        Buffer { owner: self.owner, layer: self.layer, kind }
    }
}

/// The tasks of a batch and the memory they need, reused by every layer and call.
#[derive(Debug, Default)]
pub(super) struct Attention {
    tasks: Vec<Task>,
    /// Tasks of the first thread.
    first_share: usize,
    outputs: Vec<f32>,
    scratch: [Scratch; 2],
}

/// Some tokens of one segment, for the query heads that share some K/V heads.
#[derive(Debug)]
struct Task {
    segment: Segment,
    offset: usize,
    tokens: usize,
    kv_heads: Range<usize>,
    /// Values of its output.
    values: usize,
}

#[derive(Debug, Default)]
struct Scratch {
    queries: Vec<f32>,
    /// K or V rows of a tile.
    rows: Vec<f32>,
    scores: Vec<f32>,
    /// Largest score and sum of weights of each query so far.
    state: Vec<(f32, f32)>,
}

/// What all tasks of a layer read.
struct Inputs<'a, P> {
    shape: LayerShape,
    kv: LayerKv,
    /// Rows that begin with the queries of a token.
    qkv: &'a [f32],
    pages: &'a P,
}

impl Attention {
    /// Cuts the segments of a batch into tasks; the same for every layer.
    pub(super) fn plan(&mut self, segments: &[Segment], shape: &LayerShape, workers: &Workers) {
        let group = shape.heads / shape.kv_heads;
        // A task reads the rows of all heads at once; a lone one is cut by head so that both threads
        // have work.
        let alone =
            workers.are_two() && segments.len() == 1 && segments[0].run.tokens <= TILE_TOKENS;
        let heads = if alone { 1 } else { shape.kv_heads };
        self.tasks.clear();
        let (mut pairs, mut values) = (0, 0);
        for &segment in segments {
            for offset in (0..segment.run.tokens).step_by(TILE_TOKENS) {
                let tokens = TILE_TOKENS.min(segment.run.tokens - offset);
                for first in (0..shape.kv_heads).step_by(heads) {
                    let kv_heads = first..shape.kv_heads.min(first + heads);
                    let task_values = kv_heads.len() * group * tokens * shape.head_dim;
                    let task = Task { segment, offset, tokens, kv_heads, values: task_values };
                    pairs += task.pairs();
                    values += task_values;
                    self.tasks.push(task);
                }
            }
        }
        if workers.first_share(pairs, LEAST_PAIRS_WORTH_SHARING) == pairs {
            self.first_share = self.tasks.len();
        } else {
            let mut before = 0;
            self.first_share = self.tasks.partition_point(|task| {
                before += task.pairs();
                2 * before <= pairs
            });
        }
        self.outputs.resize(self.outputs.len().max(values), 0.0);
    }

    /// Attends with the queries at the start of every row of `qkv`; `attended` gets the heads of a
    /// token side by side. The K/V rows of the batch itself must have been written.
    pub(super) fn attend<P: KvPages>(
        &mut self,
        shape: &LayerShape,
        kv: LayerKv,
        qkv: &[f32],
        pages: &P,
        workers: &Workers,
        attended: &mut [f32],
    ) {
        let inputs = Inputs { shape: *shape, kv, qkv, pages };
        let (first, second) = self.tasks.split_at(self.first_share);
        let share: usize = first.iter().map(|task| task.values).sum();
        let (first_out, second_out) = self.outputs.split_at_mut(share);
        let [first_scratch, second_scratch] = &mut self.scratch;
        if second.is_empty() {
            inputs.attend_all(first, first_scratch, first_out);
        } else {
            workers.join(
                || inputs.attend_all(first, first_scratch, first_out),
                || inputs.attend_all(second, second_scratch, second_out),
            );
        }
        let mut outputs = self.outputs.chunks_exact(shape.head_dim);
        for task in &self.tasks {
            task.place_outputs(shape, &mut outputs, attended);
        }
    }
}

impl Task {
    fn pairs(&self) -> usize {
        let keys: usize =
            self.segment.spans(self.offset, self.tokens).iter().map(|s| s.len()).sum();
        self.tokens * keys * self.kv_heads.len()
    }

    /// Query heads it serves.
    fn heads(&self, shape: &LayerShape) -> Range<usize> {
        let group = shape.heads / shape.kv_heads;
        self.kv_heads.start * group..self.kv_heads.end * group
    }

    /// Index in the batch of the first token.
    fn first_token(&self) -> usize {
        self.segment.first_token + self.offset
    }

    fn place_outputs<'a>(
        &self,
        shape: &LayerShape,
        outputs: &mut impl Iterator<Item = &'a [f32]>,
        attended: &mut [f32],
    ) {
        for head in self.heads(shape) {
            for token in self.first_token()..self.first_token() + self.tokens {
                let at = token * shape.query_dim() + head * shape.head_dim;
                let Some(output) = outputs.next() else { return };
                attended[at..at + shape.head_dim].copy_from_slice(output);
            }
        }
    }
}

impl<P: KvPages> Inputs<'_, P> {
    fn attend_all(&self, tasks: &[Task], scratch: &mut Scratch, mut out: &mut [f32]) {
        for task in tasks {
            let (task_out, rest) = out.split_at_mut(task.values);
            out = rest;
            self.attend(task, scratch, task_out);
        }
    }

    fn attend(&self, task: &Task, scratch: &mut Scratch, out: &mut [f32]) {
        let dim = self.shape.head_dim;
        self.load_queries(task, scratch);
        let queries = scratch.queries.len() / dim;
        scratch.state.clear();
        scratch.state.resize(queries, (f32::NEG_INFINITY, 0.0));
        out.fill(0.0);
        for span in task.segment.spans(task.offset, task.tokens) {
            for position in span.clone().step_by(TILE_KEYS) {
                let keys = TILE_KEYS.min(span.end - position);
                self.add_tile(
                    task,
                    Run { position, tokens: keys, ..task.segment.run },
                    scratch,
                    out,
                );
            }
        }
        for (out, (_, sum)) in out.chunks_exact_mut(dim).zip(&scratch.state) {
            out.iter_mut().for_each(|value| *value /= sum);
        }
    }

    /// The queries of one head after those of another, scaled once here.
    fn load_queries(&self, task: &Task, scratch: &mut Scratch) {
        let (dim, stride) = (self.shape.head_dim, self.shape.qkv_dim());
        let scale = (dim as f32).sqrt().recip();
        scratch.queries.clear();
        for head in task.heads(&self.shape) {
            for token in task.first_token()..task.first_token() + task.tokens {
                let at = token * stride + head * dim;
                scratch.queries.extend(self.qkv[at..at + dim].iter().map(|value| value * scale));
            }
        }
    }

    fn add_tile(&self, task: &Task, tile: Run, scratch: &mut Scratch, out: &mut [f32]) {
        let (dim, keys) = (self.shape.head_dim, tile.tokens);
        let Scratch { queries, rows, scores, state } = scratch;
        let queries_a_head = queries.len() / dim / task.kv_heads.len();
        grow(scores, queries.len() / dim * keys);
        let product = Product {
            layout: FewQueries {
                dim,
                first: task.kv_heads.start * dim,
                row_stride: self.shape.kv_dim(),
                score_stride: keys,
            },
            queries_a_head,
        };
        let scores = &mut scores[..queries.len() / dim * keys];
        let few = queries_a_head <= FEW_QUERIES;
        let buffer = self.kv.buffer(Kind::Key);
        if few {
            for_each_page(self.pages, buffer, tile, self.shape.kv_dim(), |first, page| {
                product.score_few(queries, page, &mut scores[first..]);
            });
        } else {
            product.score(queries, self.gather(buffer, tile, rows), scores);
        }
        let queries = scores.chunks_exact_mut(keys).zip(out.chunks_exact_mut(dim)).zip(state);
        for (query, ((scores, out), state)) in queries.enumerate() {
            let reads = task.segment.reads(task.offset + query % task.tokens);
            let from = reads.start.saturating_sub(tile.position).min(keys);
            let to = reads.end.saturating_sub(tile.position).min(keys);
            weigh(scores, from..to.max(from), state, out);
        }
        let buffer = self.kv.buffer(Kind::Value);
        if few {
            for_each_page(self.pages, buffer, tile, self.shape.kv_dim(), |first, page| {
                product.sum_few(&scores[first..], page, out);
            });
        } else {
            product.sum(scores, self.gather(buffer, tile, rows), out);
        }
    }

    /// Whole rows of a tile, side by side.
    fn gather<'r>(&self, buffer: Buffer, tile: Run, rows: &'r mut Vec<f32>) -> &'r [f32] {
        rows.clear();
        for_each_page(self.pages, buffer, tile, self.shape.kv_dim(), |_, page| {
            rows.extend_from_slice(page);
        });
        rows
    }
}

/// Turns the scores of one query into weights relative to its largest score so far, and what it has
/// gathered before into the same measure.
fn weigh(
    scores: &mut [f32],
    visible: std::ops::Range<usize>,
    state: &mut (f32, f32),
    out: &mut [f32],
) {
    scores[..visible.start].fill(0.0);
    scores[visible.end..].fill(0.0);
    let scores = &mut scores[visible];
    let (top, sum) = state;
    let tile_top = run(Largest(scores));
    if tile_top > *top {
        let shrink = (*top - tile_top).exp();
        *sum *= shrink;
        out.iter_mut().for_each(|value| *value *= shrink);
        *top = tile_top;
    }
    *sum += run(Exponentials { scores, top: *top });
}

fn grow(buffer: &mut Vec<f32>, values: usize) {
    if buffer.len() < values {
        buffer.resize(values, 0.0);
    }
}
