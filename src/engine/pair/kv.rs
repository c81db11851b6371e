//! Where K and V live: pages of a device, reached through a block table the caller owns.

/// Whose K/V a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The target model.
    Target,
    /// The drafter: context rows and, after them, the scratch rows of the current block.
    Draft,
}

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Keys, after norm and rotation.
    Key,
    /// Values.
    Value,
}

/// One layer's keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Whose layer.
    pub owner: Owner,
    /// Index of the layer within its owner.
    pub layer: usize,
    /// Keys or values.
    pub kind: Kind,
}

/// K/V rows of the sequences of a batch, in f32 pages found through block tables.
///
/// `sequence` is whatever the rows of the call said; the model only passes it back. The model never
/// keeps a row: everything it reads was written through this trait, by this call or an earlier one.
pub trait KvPages: Send + Sync {
    /// Rows from `position` to the end of its page, `[n, kv_heads * head_dim]`.
    fn rows(&self, sequence: usize, buffer: Buffer, position: usize) -> &[f32];

    /// The same rows, to be written.
    fn rows_mut(&mut self, sequence: usize, buffer: Buffer, position: usize) -> &mut [f32];
}

/// A run of consecutive positions of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub sequence: usize,
    pub position: usize,
    pub tokens: usize,
}

/// Some columns of a row-major matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub first: usize,
    pub count: usize,
    /// Values from one row of the matrix to the next.
    pub row_stride: usize,
}

/// Writes one K or V row a token from `columns` of the rows of `source`.
pub(super) fn write_rows(
    pages: &mut impl KvPages,
    buffer: Buffer,
    run: Run,
    source: &[f32],
    columns: Columns,
) {
    let mut sources = source.chunks(columns.row_stride).take(run.tokens);
    let mut written = 0;
    while written < run.tokens {
        let page = pages.rows_mut(run.sequence, buffer, run.position + written);
        let fits = (page.len() / columns.count).min(run.tokens - written);
        assert!(fits > 0, "a page begins with no row");
        for (row, source) in page.chunks_exact_mut(columns.count).zip(sources.by_ref().take(fits)) {
            row.copy_from_slice(&source[columns.first..columns.first + columns.count]);
        }
        written += fits;
    }
}

/// Visits the K or V rows of a run page by page, with the index of the first row within the run.
pub(super) fn for_each_page<'a>(
    pages: &'a impl KvPages,
    buffer: Buffer,
    run: Run,
    row_values: usize,
    mut visit: impl FnMut(usize, &'a [f32]),
) {
    let mut read = 0;
    while read < run.tokens {
        let page = pages.rows(run.sequence, buffer, run.position + read);
        let fits = (page.len() / row_values).min(run.tokens - read);
        assert!(fits > 0, "a page begins with no row");
        visit(read, &page[..fits * row_values]);
        read += fits;
    }
}
