//! The only door to the matrix product of the `gemm` crate.

/// A matrix inside a slice: element `(row, column)` is at `row * row_stride + column * column_stride`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `rows` rows of `columns` values, packed.
    pub fn packed(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// `rows` rows of `columns` values, `row_stride` apart.
    pub fn strided(data: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        let matrix = Self { data, rows, columns, row_stride, column_stride: 1 };
        let end = rows.checked_sub(1).map_or(0, |last| last * row_stride + columns);
        assert!(end <= data.len(), "{rows}x{columns} matrix exceeds {} values", data.len());
        matrix
    }

    /// The same values with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// What happens to the values the output held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// They are overwritten.
    Replace,
    /// The product is added to them.
    Add,
}

/// `out = a b` or `out += a b`, `out` packed, on the calling thread.
#[allow(unsafe_code, reason = "gemm takes raw pointers")]
pub fn matmul(out: &mut [f32], store: Store, a: Matrix<'_>, b: Matrix<'_>) {
    assert_eq!(a.columns, b.rows, "inner dimensions differ");
    assert!(out.len() >= a.rows * b.columns, "output holds {} values", out.len());
    if a.rows == 0 || b.columns == 0 {
        return;
    }
    // SAFETY: the constructors of `Matrix` checked that the last element of `a` and `b` lies within
    // their slices (strides are not negative, so every other element does too; transposing renames
    // the same elements), and the assertions above that `out`, packed `a.rows x b.columns`, holds the
    // product. `out` is borrowed mutably, so it overlaps neither. Strides fit `isize` because slice
    // lengths do.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            out.as_mut_ptr(),
            1,
            b.columns.cast_signed(),
            store == Store::Add,
            a.data.as_ptr(),
            a.column_stride.cast_signed(),
            a.row_stride.cast_signed(),
            b.data.as_ptr(),
            b.column_stride.cast_signed(),
            b.row_stride.cast_signed(),
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Matrix, Store, matmul};

    #[test]
    fn a_product_with_a_transposed_strided_matrix_adds_to_the_output() {
        let a = [1.0, 2.0, 3.0, 4.0];
        let b = [1.0, 0.0, 9.0, 0.0, 1.0, 9.0, 1.0, 1.0, 9.0];
        let mut out = [10.0; 6];
        matmul(
            &mut out,
            Store::Add,
            Matrix::packed(&a, 2, 2),
            Matrix::strided(&b, 3, 2, 3).transposed(),
        );
        assert_eq!(out, [11.0, 12.0, 13.0, 13.0, 14.0, 17.0]);
    }

    #[test]
    #[should_panic(expected = "exceeds")]
    fn a_matrix_longer_than_its_slice_is_refused() {
        let _ = Matrix::strided(&[0.0; 5], 2, 3, 3);
    }
}
