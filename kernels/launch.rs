//! The launch list of a step: plain records in one word image of fixed layout, cleared each step
//! and never grown.
//!
//! The image is what a device maps: a header, then one section for each kind of record at an
//! offset fixed by the geometry. Sections are run in the order of [`Launch`].

use crate::abi::{ABI_VERSION, Header, PageCopy, RowMeta, TableDelta};
use bytemuck::Pod;
use paceline_components::Geometry;
use std::ops::Range;

/// One kind of device work, in the order it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Block-table cells change.
    TableDeltas,
    /// Pages are copied to pages of their group.
    PageCopies,
    /// Row records of the step take effect, in any order: a row named twice, the dummy, has equal
    /// records.
    Rows,
}

/// Device work of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchList {
    image: Box<[u32]>,
    header: Header,
    rows: Section,
    deltas: Section,
    copies: Section,
    inputs: Section,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    at: usize,
    capacity_records: usize,
    record_words: usize,
}

impl Section {
    fn range(&self, records: u32) -> Range<usize> {
        self.at..self.at + records as usize * self.record_words
    }

    /// Where the next section begins: records of any size start at a multiple of 16 bytes.
    fn end(&self) -> usize {
        (self.at + self.capacity_records * self.record_words).next_multiple_of(4)
    }
}

/// Where the sections of an image begin, in words, and how many records they have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First word and room of the rows.
    pub rows: (u32, u32),
    /// First word and room of the table records.
    pub deltas: (u32, u32),
    /// First word and room of the page copies.
    pub copies: (u32, u32),
    /// Words of the whole image.
    pub words: u32,
}

const fn words<T>() -> usize {
    size_of::<T>() / 4
}

impl LaunchList {
    /// An empty list with room for the worst step of `geometry`.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let section = |at: usize, capacity_records: usize, record_words: usize| Section {
            at,
            capacity_records,
            record_words,
        };
        let config = &geometry.config;
        let header_end = words::<Header>().next_multiple_of(16);
        let rows = section(header_end, config.max_batch as usize, words::<RowMeta>());
        let deltas = section(rows.end(), Self::most_deltas(geometry), words::<TableDelta>());
        // A row copies one partial page in each group, when it is bound.
        let most_copies = geometry.groups.len() * config.max_batch as usize;
        let copies = section(deltas.end(), most_copies, words::<PageCopy>());
        let inputs = section(copies.end(), config.token_budget as usize, 1);
        let image = vec![0; inputs.end()].into_boxed_slice();
        Self { image, header: Header::default(), rows, deltas, copies, inputs }
    }

    /// Most table records of a step. Every group: a cell for each page a row can gain by computing,
    /// five runs for what it lost or left (sinks, window, tail), and one whole row of claims, which
    /// admission keeps to.
    fn most_deltas(geometry: &Geometry) -> usize {
        let page = geometry.config.page_tokens;
        let step = geometry.lookahead.capacity(0, geometry.lookahead.step_tokens());
        let rows = geometry.config.max_batch;
        let gained = geometry.config.token_budget.div_ceil(page) + rows * (step.div_ceil(page) + 1);
        let runs = 5 * (rows + 1);
        geometry.groups.len() * (gained + runs + geometry.columns) as usize
    }

    /// Empties the list for `step`.
    pub fn begin(&mut self, step: u64) {
        self.header = Header {
            version: ABI_VERSION,
            step_low: step as u32,
            step_high: (step >> 32) as u32,
            ..Header::default()
        };
    }

    /// Writes the header in front: the list is complete.
    pub fn seal(&mut self) {
        self.image[..words::<Header>()]
            .copy_from_slice(bytemuck::cast_slice(std::slice::from_ref(&self.header)));
    }

    /// The step the list belongs to.
    #[must_use]
    pub fn step(&self) -> u64 {
        u64::from(self.header.step_high) << 32 | u64::from(self.header.step_low)
    }

    /// Adds a row.
    pub fn push_row(&mut self, row: RowMeta) {
        push(&mut self.image, &self.rows, &mut self.header.rows, row);
    }

    /// Adds a run of block-table cells.
    pub fn push_delta(&mut self, delta: TableDelta) {
        push(&mut self.image, &self.deltas, &mut self.header.deltas, delta);
    }

    /// Adds a page copy.
    pub fn push_copy(&mut self, copy: PageCopy) {
        push(&mut self.image, &self.copies, &mut self.header.copies, copy);
    }

    /// Table records there is still room for.
    #[must_use]
    pub fn room_for_deltas(&self) -> usize {
        self.deltas.capacity_records - self.header.deltas as usize
    }

    /// Adds token ids of a chunk; returns the index of the first in the input section.
    pub fn push_inputs(&mut self, ids: &[u32]) -> u32 {
        let first = self.header.inputs;
        let at = self.inputs.at + first as usize;
        self.image[at..at + ids.len()].copy_from_slice(ids);
        self.header.inputs += ids.len() as u32;
        first
    }

    /// Rows, prompts first.
    #[must_use]
    pub fn rows(&self) -> &[RowMeta] {
        bytemuck::cast_slice(&self.image[self.rows.range(self.header.rows)])
    }

    /// Changed runs of the block tables.
    #[must_use]
    pub fn deltas(&self) -> &[TableDelta] {
        bytemuck::cast_slice(&self.image[self.deltas.range(self.header.deltas)])
    }

    /// Page copies.
    #[must_use]
    pub fn copies(&self) -> &[PageCopy] {
        bytemuck::cast_slice(&self.image[self.copies.range(self.header.copies)])
    }

    /// Token ids of all chunks.
    #[must_use]
    pub fn inputs(&self) -> &[u32] {
        &self.image[self.inputs.range(self.header.inputs)]
    }

    /// The launches that have work, in order.
    pub fn launches(&self) -> impl Iterator<Item = Launch> + use<> {
        let has = [
            (Launch::TableDeltas, self.header.deltas > 0),
            (Launch::PageCopies, self.header.copies > 0),
            (Launch::Rows, self.header.rows > 0),
        ];
        has.into_iter().filter_map(|(launch, has)| has.then_some(launch))
    }

    /// Where the sections lie; the same for every list of a geometry.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let place = |s: &Section| (s.at as u32, s.capacity_records as u32);
        Layout {
            rows: place(&self.rows),
            deltas: place(&self.deltas),
            copies: place(&self.copies),
            words: self.image.len() as u32,
        }
    }

    /// The words in use, section by section: equal steps have equal words.
    pub fn used_words(&self) -> impl Iterator<Item = &[u32]> {
        self.used_sections().map(|(_, words)| words)
    }

    /// The words in use and where in the image they lie.
    pub fn used_sections(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let header = 0..words::<Header>();
        let rows = self.rows.range(self.header.rows);
        let deltas = self.deltas.range(self.header.deltas);
        let copies = self.copies.range(self.header.copies);
        let inputs = self.inputs.range(self.header.inputs);
        [header, rows, deltas, copies, inputs].map(|r| (r.start, &self.image[r])).into_iter()
    }
}

#[inline(always)]
fn push<T: Pod>(image: &mut [u32], section: &Section, count: &mut u32, record: T) {
    assert!((*count as usize) < section.capacity_records, "launch list section is full");
    let at = section.at + *count as usize * words::<T>();
    bytemuck::cast_slice_mut(&mut image[at..at + words::<T>()])[0] = record;
    *count += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_components::Config;

    #[test]
    fn records_come_back_as_they_went_in_and_begin_empties_the_list() {
        let geometry = Geometry::new(&Config::pair()).unwrap();
        let mut list = LaunchList::new(&geometry);
        list.begin(1 << 40);
        list.push_row(RowMeta { request_low: 7, row: 3, ..RowMeta::default() });
        list.push_delta(TableDelta { table: 1, column: 2, count: 3, slot: 4 });
        list.push_copy(PageCopy { group: 1, from: 2, to: 3, tokens: 4 });
        assert_eq!(list.push_inputs(&[5, 6]), 0);
        assert_eq!(list.push_inputs(&[7]), 2);
        list.seal();
        assert_eq!(list.step(), 1 << 40);
        assert_eq!(list.rows()[0].request(), 7);
        assert_eq!(list.deltas(), [TableDelta { table: 1, column: 2, count: 3, slot: 4 }]);
        assert_eq!(list.copies(), [PageCopy { group: 1, from: 2, to: 3, tokens: 4 }]);
        assert_eq!(list.inputs(), [5, 6, 7]);
        let launches = [Launch::TableDeltas, Launch::PageCopies, Launch::Rows];
        assert_eq!(list.launches().collect::<Vec<_>>(), launches);
        list.begin(2);
        assert!(list.rows().is_empty() && list.launches().next().is_none());
    }
}
