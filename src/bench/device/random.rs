//! Random work that both devices can do: lists that keep the rules of the launch list.

use crate::kernels::tags::TagList;
use crate::kernels::{
    LaunchList, PageCopy, PieceCopy, RowMeta, TAG_CHECK, TAG_SCRATCH, TAG_WRITE, TableDelta,
};
use crate::workload::rng::Rng;
use crate::{BufferSpec, Config, Geometry, NewRequest};
use std::ops::Range;

/// Pages of 16-byte, 4-byte and odd sizes, below a chunk of a copy and above, in one pool and in
/// several: tokens of a page, and bytes of a token in each buffer of a layer.
pub fn page_shapes() -> Vec<(u32, &'static [u32])> {
    let buffers: [&[u32]; 4] = [&[64], &[20, 8], &[3, 1, 256], &[4096, 128]];
    buffers.into_iter().flat_map(|buffers| [(4, buffers), (7, buffers)]).collect()
}

pub fn config(page_tokens: u32, buffers: &[u32]) -> Config {
    let mut config = Config::small(page_tokens, &[None, Some(24)], 60);
    let roles = ["key", "value", "index_key"];
    for group in &mut config.groups {
        let specs = roles.iter().zip(buffers);
        group.layers[0].buffers = specs.map(|(role, b)| BufferSpec::new(role, *b)).collect();
        group.layers[0].count = 3;
    }
    config
}

fn below(rng: &mut Rng, n: u32) -> u32 {
    rng.below(u64::from(n)) as u32
}

/// A list with every kind of record, each cell, row and destination named once.
pub fn fill(list: &mut LaunchList, geometry: &Geometry, step: u64, rng: &mut Rng) {
    list.begin(step);
    let table_rows = geometry.config.max_batch + 1;
    let density = [1, 4, 40][rng.below(3) as usize];
    for (group, g) in (0..).zip(&geometry.groups) {
        for row in 0..table_rows {
            let mut column = below(rng, density * 2);
            while column < geometry.columns && list.room_for_deltas() > 0 {
                let longest = if rng.below(4) == 0 { geometry.columns } else { 1 };
                let count = 1 + below(rng, longest.min(geometry.columns - column));
                let slot = below(rng, g.slots());
                let table = group * table_rows + row;
                list.push_delta(TableDelta { table, column, count, slot });
                column += count + below(rng, density * 2);
            }
        }
        copies(list, group, 0..g.slots(), rng);
    }
    for row in (0..geometry.config.max_batch).filter(|_| rng.below(2) == 0).collect::<Vec<_>>() {
        let mut meta: RowMeta = bytemuck::Zeroable::zeroed();
        let words: &mut [u32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut meta));
        words.iter_mut().for_each(|word| *word = rng.next_u64() as u32);
        list.push_row(RowMeta { row, ..meta });
    }
    list.push_inputs(&[step as u32; 3]);
    list.seal();
}

/// In half of the steps, copies from the lower half of `slots` to the upper half.
fn copies(list: &mut LaunchList, group: u32, slots: Range<u32>, rng: &mut Rng) {
    let middle = slots.start.midpoint(slots.end);
    if rng.below(2) == 0 {
        return;
    }
    // A list has room for a copy of each row and group.
    for to in (middle..slots.end).filter(|_| rng.below(8) == 0).take(4).collect::<Vec<_>>() {
        let from = slots.start + below(rng, middle - slots.start);
        list.push_copy(PageCopy { group, from, to, tokens: 1 });
    }
}

/// Pieces with their bytes in staging: apart from each other on both sides, plain and strided.
pub fn pieces(pool_bytes: u64, unit: u64, rng: &mut Rng) -> (Vec<PieceCopy>, u64) {
    let mut pieces = Vec::new();
    let (mut from, mut to) = (0, 0);
    loop {
        let runs = if rng.below(2) == 0 { 1 } else { 1 + rng.below(24) };
        let bytes = unit * (1 + rng.below(if runs == 1 { 1200 } else { 40 }));
        let from_stride = bytes + unit * rng.below(9);
        let to_stride = bytes + unit * rng.below(3);
        from += unit * rng.below(20);
        let piece = PieceCopy {
            from,
            to,
            bytes: bytes as u32,
            runs: runs as u32,
            from_stride: from_stride as u32,
            to_stride: to_stride as u32,
        };
        if piece.ends().0 > pool_bytes || pieces.len() == 300 {
            break;
        }
        from = piece.ends().0.next_multiple_of(unit);
        to = piece.ends().1.next_multiple_of(unit) + unit * rng.below(3);
        pieces.push(piece);
    }
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, rng.below(i as u64 + 1) as usize);
    }
    (pieces, to)
}

/// A request that often begins like others.
pub fn request(id: u32, config: &Config, rng: &mut Rng) -> NewRequest {
    let longest = (config.max_seq_len / 16).min(6000);
    let stream = below(rng, 3);
    let shared = below(rng, longest);
    let own = 1 + below(rng, longest / 4);
    let prompt =
        (0..shared).map(|t| stream << 20 | t).chain((0..own).map(|t| 1 << 28 | id << 14 | t));
    NewRequest::new(u64::from(id), prompt.collect(), 1 + below(rng, 40))
}

/// What the positions of each backed row hold.
pub struct Tags {
    page_tokens: u32,
    table_rows: u32,
    groups: u32,
    /// Slots of a group that tables name; the ones above are for copies.
    named: Range<u32>,
    free: Range<u32>,
    /// Prefix hashes by group and row.
    prefixes: Vec<Vec<u64>>,
}

/// Pages that back each row.
const ROW_PAGES: u32 = 6;

impl Tags {
    pub fn new(geometry: &Geometry) -> Self {
        let table_rows = geometry.config.max_batch + 1;
        let groups = geometry.groups.len() as u32;
        let named = 1..1 + table_rows * ROW_PAGES;
        let free = named.end..geometry.groups[0].slots();
        let page_tokens = geometry.config.page_tokens;
        let row = vec![0; (ROW_PAGES * page_tokens) as usize];
        let prefixes = vec![row; (groups * table_rows) as usize];
        Self { page_tokens, table_rows, groups, named, free, prefixes }
    }

    /// Every row gets pages of its own.
    pub fn back_rows(&self, list: &mut LaunchList) {
        list.begin(1);
        for table in 0..self.groups * self.table_rows {
            for column in 0..ROW_PAGES {
                let slot = self.named.start + table % self.table_rows * ROW_PAGES + column;
                list.push_delta(TableDelta { table, column, count: 1, slot });
            }
        }
        list.seal();
    }

    /// Copies of named pages to pages that no table names.
    pub fn copies(&self, list: &mut LaunchList, step: u64, rng: &mut Rng) {
        list.begin(step);
        for group in 0..self.groups {
            for to in self.free.clone().take(4) {
                let from = self.named.start + below(rng, self.named.end - self.named.start);
                list.push_copy(PageCopy { group, from, to, tokens: 1 });
            }
        }
        list.seal();
    }

    fn range(&self, rng: &mut Rng) -> Range<u32> {
        let end = 1 + below(rng, ROW_PAGES * self.page_tokens);
        below(rng, end)..end
    }

    /// A write for some rows: content, scratch, or where no page is.
    pub fn writes(&mut self, rng: &mut Rng) -> TagList {
        let mut list = TagList::default();
        for table in 0..self.groups * self.table_rows {
            let place = (table / self.table_rows, table % self.table_rows);
            let range = self.range(rng);
            let row = &mut self.prefixes[table as usize];
            match rng.below(4) {
                0 => {}
                1 => list.push(TAG_SCRATCH, place, range, &[]),
                2 => {
                    let first = ROW_PAGES * self.page_tokens;
                    list.push(TAG_SCRATCH, place, first..first + 3, &[]);
                }
                _ => {
                    let row = &mut row[range.start as usize..range.end as usize];
                    row.iter_mut().for_each(|prefix| *prefix = rng.next_u64());
                    list.push(TAG_WRITE, place, range, row);
                }
            }
        }
        list
    }

    /// A check of each row: many hold, some find scratch, some expect something else or reach
    /// past the pages.
    pub fn checks(&self, rng: &mut Rng) -> TagList {
        let mut list = TagList::default();
        for table in 0..self.groups * self.table_rows {
            let place = (table / self.table_rows, table % self.table_rows);
            let mut range = self.range(rng);
            let row = &self.prefixes[table as usize];
            let mut expected = row[range.start as usize..range.end as usize].to_vec();
            if rng.below(4) == 0 {
                // Prefixes chain: a wrong token makes all after it wrong.
                let wrong = rng.below(expected.len() as u64) as usize;
                expected[wrong..].iter_mut().for_each(|prefix| *prefix ^= 1);
            }
            if rng.below(8) == 0 {
                let end = ROW_PAGES * self.page_tokens + 2;
                expected.resize((end - range.start) as usize, 7);
                range.end = end;
            }
            list.push(TAG_CHECK, place, range, &expected);
        }
        list
    }
}
