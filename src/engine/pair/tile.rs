//! Scores and sums of one tile of K/V rows, head by head.

use super::kernels::{FewQueries, FewScores, FewSums, run};
use super::matmul::{Matrix, Store, matmul};

/// Queries of some heads against a tile. Queries, scores and sums of a head follow those of the head
/// before.
pub(super) struct Product {
    /// Where the first head lies within the rows.
    pub layout: FewQueries,
    /// Queries that share a K/V head.
    pub queries_a_head: usize,
}

impl Product {
    fn head(&self, head: usize) -> FewQueries {
        FewQueries { first: self.layout.first + head * self.layout.dim, ..self.layout }
    }

    /// Values of the queries (or sums) of one head, and of its scores.
    fn strides(&self) -> (usize, usize) {
        let queries = self.queries_a_head;
        (queries * self.layout.dim, queries * self.layout.score_stride)
    }

    /// Scores of part of a tile's rows; `scores` begins at the first of them.
    pub(super) fn score_few(&self, queries: &[f32], keys: &[f32], scores: &mut [f32]) {
        let (values, stride) = self.strides();
        for (head, queries) in queries.chunks_exact(values).enumerate() {
            let scores = &mut scores[head * stride..];
            run(FewScores { layout: self.head(head), queries, keys, scores });
        }
    }

    /// Adds part of a tile's rows; `weights` begins at the first of them.
    pub(super) fn sum_few(&self, weights: &[f32], values: &[f32], out: &mut [f32]) {
        let (width, stride) = self.strides();
        for (head, out) in out.chunks_exact_mut(width).enumerate() {
            let weights = &weights[head * stride..];
            run(FewSums { layout: self.head(head), weights, values, out });
        }
    }

    /// Scores of all rows of a tile.
    pub(super) fn score(&self, queries: &[f32], keys: &[f32], scores: &mut [f32]) {
        let (values, stride) = self.strides();
        let heads = queries.chunks_exact(values).zip(scores.chunks_exact_mut(stride));
        for (head, (queries, scores)) in heads.enumerate() {
            let queries = Matrix::packed(queries, self.queries_a_head, self.layout.dim);
            matmul(scores, Store::Replace, queries, self.rows(head, keys).transposed());
        }
    }

    /// Adds all rows of a tile.
    pub(super) fn sum(&self, weights: &[f32], values: &[f32], out: &mut [f32]) {
        let (width, stride) = self.strides();
        let heads = weights.chunks_exact(stride).zip(out.chunks_exact_mut(width));
        for (head, (weights, out)) in heads.enumerate() {
            let weights = Matrix::packed(weights, self.queries_a_head, self.layout.score_stride);
            matmul(out, Store::Add, weights, self.rows(head, values));
        }
    }

    fn rows<'a>(&self, head: usize, rows: &'a [f32]) -> Matrix<'a> {
        let FewQueries { dim, first, row_stride, score_stride } = self.head(head);
        Matrix::strided(&rows[first..], score_stride, dim, row_stride)
    }
}

#[cfg(test)]
mod tests {
    use super::{FewQueries, Product};

    #[test]
    fn loops_over_pages_and_packed_products_agree() {
        let layout = FewQueries { dim: 16, first: 16, row_stride: 48, score_stride: 5 };
        let product = Product { layout, queries_a_head: 3 };
        let queries: Vec<f32> = (0..96).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
        let rows: Vec<f32> = (0..240).map(|i| (i * 5 % 11) as f32 - 5.0).collect();
        let (mut few, mut packed) = (vec![0.0; 30], vec![0.0; 30]);
        product.score(&queries, &rows, &mut packed);
        product.score_few(&queries, &rows[..96], &mut few);
        product.score_few(&queries, &rows[96..], &mut few[2..]);
        assert_eq!(few, packed);
        let (mut few_sums, mut packed_sums) = (vec![1.0; 96], vec![1.0; 96]);
        product.sum(&packed, &rows, &mut packed_sums);
        product.sum_few(&packed, &rows[..96], &mut few_sums);
        product.sum_few(&packed[2..], &rows[96..], &mut few_sums);
        assert_eq!(few_sums, packed_sums);
    }
}
