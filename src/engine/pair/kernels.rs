//! Element-wise loops, compiled once per instruction set and chosen at run time.
//!
//! Each loop is a value whose `with_simd` is inlined into a function with the machine's vector
//! features on; plain indexing over slices then vectorises without intrinsics.

use pulp::{Arch, Simd, WithSimd};

/// Partial sums kept apart so that a float sum can use vector registers.
const LANES: usize = 16;

/// Runs a loop with the best instruction set of this machine.
pub fn run<K: WithSimd>(kernel: K) -> K::Output {
    Arch::new().dispatch(kernel)
}

/// `e^x` to about 2e-7 relative; clamps to the range of normal floats.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding this rounds to the nearest integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > -87.0 { x } else { -87.0 };
    let x = if x < 88.0 { x } else { 88.0 };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let power = rounded - ROUND;
    let rest = x - power * LN_2_HIGH - power * LN_2_LOW;
    let mut series = 1.0 / 720.0;
    for term in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = series * rest + term;
    }
    series * f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23))
}

#[inline(always)]
fn total(lanes: [f32; LANES]) -> f32 {
    let mut half: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    for width in [4, 2, 1] {
        for i in 0..width {
            half[i] += half[i + width];
        }
    }
    half[0]
}

/// Dot product; both slices hold a multiple of 16 values.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            lanes[i] += a[i] * b[i];
        }
    }
    total(lanes)
}

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += chunk[i] * chunk[i];
        }
    }
    let squares = total(lanes) + rest.iter().map(|v| v * v).sum::<f32>();
    1.0 / (squares / x.len() as f32 + eps).sqrt()
}

/// Root-mean-square norm of every row of `x` into `out`.
pub struct RmsNorm<'a> {
    /// Rows to norm.
    pub x: &'a [f32],
    /// Gain of each column; its length is the row's.
    pub gain: &'a [f32],
    /// Added to the mean square.
    pub eps: f32,
    /// Normed rows.
    pub out: &'a mut [f32],
}

impl WithSimd for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.gain.len();
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((out, x), gain) in out.iter_mut().zip(x).zip(self.gain) {
                *out = x * scale * gain;
            }
        }
    }
}

/// Norms and rotates heads in place: `heads` consecutive heads at the start of every row.
pub struct NormRotate<'a> {
    /// Rows that start with the heads.
    pub rows: &'a mut [f32],
    /// Values from one row to the next.
    pub row_stride: usize,
    /// First value of the first head within a row.
    pub offset: usize,
    /// Heads a row.
    pub heads: usize,
    /// Gain of each value of a head; its length is the head's.
    pub gain: &'a [f32],
    /// Added to the mean square.
    pub eps: f32,
    /// Cosines, half a head a row.
    pub cos: &'a [f32],
    /// Sines, half a head a row.
    pub sin: &'a [f32],
}

impl WithSimd for NormRotate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let dim = self.gain.len();
        let half = dim / 2;
        let (low_gain, high_gain) = self.gain.split_at(half);
        let angles = self.cos.chunks_exact(half).zip(self.sin.chunks_exact(half));
        for (row, (cos, sin)) in self.rows.chunks_exact_mut(self.row_stride).zip(angles) {
            let heads = &mut row[self.offset..self.offset + self.heads * dim];
            for head in heads.chunks_exact_mut(dim) {
                let scale = inverse_rms(head, self.eps);
                let (low, high) = head.split_at_mut(half);
                for i in 0..half {
                    let (a, b) = (low[i] * scale * low_gain[i], high[i] * scale * high_gain[i]);
                    low[i] = a * cos[i] - b * sin[i];
                    high[i] = b * cos[i] + a * sin[i];
                }
            }
        }
    }
}

/// `silu(gate) * up`, for rows that hold gate then up.
pub struct SiluProduct<'a> {
    /// Rows of gate then up.
    pub gate_up: &'a [f32],
    /// Values of one of the two.
    pub ff: usize,
    /// Products, `ff` a row.
    pub out: &'a mut [f32],
}

impl WithSimd for SiluProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let rows = self.gate_up.chunks_exact(2 * self.ff);
        for (row, out) in rows.zip(self.out.chunks_exact_mut(self.ff)) {
            let (gate, up) = row.split_at(self.ff);
            for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
                *out = gate / (1.0 + exp(-gate)) * up;
            }
        }
    }
}

/// Replaces scores by `e^(score - top)` and returns their sum.
pub struct Exponentials<'a> {
    /// Scores in, weights out.
    pub scores: &'a mut [f32],
    /// Largest score, so that no weight exceeds one.
    pub top: f32,
}

impl WithSimd for Exponentials<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let (chunks, rest) = self.scores.as_chunks_mut::<LANES>();
        let mut lanes = [0.0; LANES];
        for chunk in chunks {
            for i in 0..LANES {
                chunk[i] = exp(chunk[i] - self.top);
                lanes[i] += chunk[i];
            }
        }
        let mut sum = total(lanes);
        for score in rest {
            *score = exp(*score - self.top);
            sum += *score;
        }
        sum
    }
}

/// The largest of some values; `-inf` when there are none.
pub struct Largest<'a>(pub &'a [f32]);

impl WithSimd for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let larger = |a: f32, b: f32| if a > b { a } else { b };
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for chunk in chunks {
            for i in 0..LANES {
                lanes[i] = larger(lanes[i], chunk[i]);
            }
        }
        lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
    }
}

/// Some queries of one head against K or V rows where they lie, for so few queries that packing the
/// rows would cost more than the product.
#[derive(Clone, Copy)]
pub struct FewQueries {
    /// Values of a head, a multiple of 16.
    pub dim: usize,
    /// First value of the head within a row.
    pub first: usize,
    /// Values from one K/V row to the next.
    pub row_stride: usize,
    /// Scores from one query to the next.
    pub score_stride: usize,
}

/// `scores = queries keys^T`.
pub struct FewScores<'a> {
    /// Where things lie.
    pub layout: FewQueries,
    /// Query rows of `dim` values.
    pub queries: &'a [f32],
    /// K rows.
    pub keys: &'a [f32],
    /// Scores of the first query, then of the others.
    pub scores: &'a mut [f32],
}

impl WithSimd for FewScores<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let FewQueries { dim, first, row_stride, score_stride } = self.layout;
        for (index, key) in self.keys.chunks_exact(row_stride).enumerate() {
            let key = &key[first..first + dim];
            for (query, queries) in self.queries.chunks_exact(dim).enumerate() {
                self.scores[query * score_stride + index] = dot(queries, key);
            }
        }
    }
}

/// `out += weights values`.
pub struct FewSums<'a> {
    /// Where things lie.
    pub layout: FewQueries,
    /// Weights of the first query, then of the others.
    pub weights: &'a [f32],
    /// V rows.
    pub values: &'a [f32],
    /// One row of `dim` sums a query.
    pub out: &'a mut [f32],
}

impl WithSimd for FewSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let FewQueries { dim, first, row_stride, score_stride } = self.layout;
        for (index, value) in self.values.chunks_exact(row_stride).enumerate() {
            let value = &value[first..first + dim];
            for (query, out) in self.out.chunks_exact_mut(dim).enumerate() {
                let weight = self.weights[query * score_stride + index];
                for (out, value) in out.iter_mut().zip(value) {
                    *out += weight * value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exponentials, FewQueries, FewScores, FewSums, Largest, RmsNorm, exp, run};

    #[test]
    fn exp_is_within_a_few_units_in_the_last_place() {
        for step in -8600..=8600 {
            let x = step as f32 / 100.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 5e-7, "e^{x}");
        }
        assert!(exp(-1e30) < 2e-38);
    }

    #[test]
    fn loops_treat_lengths_that_are_no_multiple_of_the_lanes() {
        let x: Vec<f32> = (0..37).map(|i| (i % 11) as f32 - 5.0).collect();
        assert_eq!(run(Largest(&x)), 5.0);
        let mut weights = x.clone();
        let sum = run(Exponentials { scores: &mut weights, top: 5.0 });
        let exact: f32 = x.iter().map(|v| (v - 5.0).exp()).sum();
        assert!((sum - exact).abs() < 1e-5 * exact);
        let mut normed = vec![0.0; 37];
        run(RmsNorm { x: &x, gain: &[2.0; 37], eps: 0.0, out: &mut normed });
        let square: f32 = normed.iter().map(|v| v * v).sum();
        assert!((square / 37.0 - 4.0).abs() < 1e-5);
    }

    #[test]
    fn few_queries_score_and_sum_one_head_of_the_rows() {
        let layout = FewQueries { dim: 16, first: 16, row_stride: 32, score_stride: 4 };
        let queries: Vec<f32> = (0..32).map(|i| i as f32).collect();
        let rows: Vec<f32> =
            (0..96).map(|i| if i % 32 < 16 { 9.0 } else { (i / 32) as f32 }).collect();
        let mut scores = vec![-1.0; 8];
        run(FewScores { layout, queries: &queries, keys: &rows, scores: &mut scores });
        assert_eq!(scores, [0.0, 120.0, 240.0, -1.0, 0.0, 376.0, 752.0, -1.0]);
        let mut out = vec![1.0; 32];
        run(FewSums { layout, weights: &scores, values: &rows, out: &mut out });
        assert_eq!(out[..16], [601.0; 16]);
        assert_eq!(out[16..], [1881.0; 16]);
    }
}
