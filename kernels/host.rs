//! The host device: runs launch lists on host memory. It is the specification of every launch, the
//! default without an accelerator, and the memory checker.

use crate::abi::{PageCopy, PieceCopy, RowMeta, TAG_CHECK, TAG_SCRATCH, TableDelta};
use crate::launch::{Launch, LaunchList};
use crate::tags::{SCRATCH, TagList, TagPages, tag};
use paceline_components::{GUARD_SLOT, Geometry};
use thiserror::Error;

/// A write or a read that must not happen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("row {row} of group {group} {what} position {position}: {why}")]
pub struct AccessError {
    /// Batch row.
    pub row: u32,
    /// Group.
    pub group: u32,
    /// Token position.
    pub position: u32,
    /// `reads` or `writes`.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

/// Block tables, row records and page contents as a device would hold them.
#[derive(Clone, Debug)]
pub struct HostDevice {
    page_tokens: u32,
    table_rows: u32,
    columns: u32,
    tables: Vec<u32>,
    cells_of_slot: Vec<Vec<u32>>,
    rows: Vec<RowMeta>,
    tags: Vec<TagPages>,
    /// Page memory by group and pool, in words.
    pools: Vec<Vec<PoolMemory>>,
}

/// Memory of one pool: slots of `slot_words` words.
#[derive(Clone, Debug)]
struct PoolMemory {
    slot_words: usize,
    words: Vec<u32>,
}

impl HostDevice {
    /// Device state for `geometry`, with a content tag for each position of each page.
    #[must_use]
    pub fn with_tags(geometry: &Geometry) -> Self {
        let page_tokens = geometry.config.page_tokens;
        let tags = geometry.groups.iter().map(|g| TagPages::new(g.slots(), page_tokens)).collect();
        Self { tags, ..Self::new(geometry) }
    }

    /// Device state for `geometry` with the memory of every page, zeroed.
    #[must_use]
    pub fn with_pages(geometry: &Geometry) -> Self {
        let memory = |slots: u32, bytes: u64| {
            let slot_words = bytes.div_ceil(4) as usize;
            PoolMemory { slot_words, words: vec![0; slots as usize * slot_words] }
        };
        let pools = geometry
            .groups
            .iter()
            .map(|g| g.pools.iter().map(|p| memory(g.slots(), p.slot_bytes())).collect());
        Self { pools: pools.collect(), ..Self::new(geometry) }
    }

    /// Device state for `geometry` without page contents.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let table_rows = geometry.config.max_batch + 1;
        let cells = geometry.groups.len() * (table_rows * geometry.columns) as usize;
        Self {
            page_tokens: geometry.config.page_tokens,
            table_rows,
            columns: geometry.columns,
            tables: vec![GUARD_SLOT; cells],
            cells_of_slot: geometry.groups.iter().map(|g| vec![0; g.slots() as usize]).collect(),
            rows: vec![RowMeta::default(); table_rows as usize],
            tags: Vec::new(),
            pools: Vec::new(),
        }
    }

    /// Memory of one pool of a group, in words.
    #[must_use]
    pub fn pool(&self, group: u32, pool: usize) -> &[u32] {
        &self.pools[group as usize][pool].words
    }

    /// Memory of one pool of a group, in words.
    pub fn pool_mut(&mut self, group: u32, pool: usize) -> &mut [u32] {
        &mut self.pools[group as usize][pool].words
    }

    /// Tags of all pages of a group.
    #[must_use]
    pub fn tags(&self, group: u32) -> &[u64] {
        self.tags[group as usize].as_slice()
    }

    /// Packs pieces of a pool into `staging`.
    pub fn gather(&self, group: u32, pool: usize, pieces: &[PieceCopy], staging: &mut [u32]) {
        let from = bytemuck::cast_slice(self.pool(group, pool));
        copy_pieces(from, bytemuck::cast_slice_mut(staging), pieces);
    }

    /// Unpacks pieces of `staging` into a pool.
    pub fn scatter(&mut self, group: u32, pool: usize, pieces: &[PieceCopy], staging: &[u32]) {
        let to = bytemuck::cast_slice_mut(self.pool_mut(group, pool));
        copy_pieces(bytemuck::cast_slice(staging), to, pieces);
    }

    /// Runs the launches of one step in order.
    pub fn submit(&mut self, list: &LaunchList) {
        for launch in list.launches() {
            match launch {
                Launch::TableDeltas => list.deltas().iter().for_each(|d| self.apply(d)),
                Launch::PageCopies => list.copies().iter().for_each(|c| self.copy(c)),
                Launch::Rows => {
                    for row in list.rows() {
                        self.rows[row.row as usize] = *row;
                    }
                }
            }
        }
    }

    fn copy(&mut self, copy: &PageCopy) {
        if let Some(tags) = self.tags.get_mut(copy.group as usize) {
            tags.copy(copy.from, copy.to);
        }
        for pool in self.pools.get_mut(copy.group as usize).into_iter().flatten() {
            let from = copy.from as usize * pool.slot_words;
            let to = copy.to as usize * pool.slot_words;
            pool.words.copy_within(from..from + pool.slot_words, to);
        }
    }

    fn apply(&mut self, delta: &TableDelta) {
        let group = (delta.table / self.table_rows) as usize;
        let first = (delta.table * self.columns + delta.column) as usize;
        for cell in &mut self.tables[first..first + delta.count as usize] {
            let counts = &mut self.cells_of_slot[group];
            if *cell != GUARD_SLOT {
                counts[*cell as usize] -= 1;
            }
            if delta.slot != GUARD_SLOT {
                counts[delta.slot as usize] += 1;
            }
            *cell = delta.slot;
        }
    }

    /// One row of one group's block table.
    #[must_use]
    pub fn table_row(&self, group: u32, row: u32) -> &[u32] {
        let first = ((group * self.table_rows + row) * self.columns) as usize;
        &self.tables[first..first + self.columns as usize]
    }

    /// All block tables: groups, rows, columns.
    #[must_use]
    pub fn tables(&self) -> &[u32] {
        &self.tables
    }

    /// The last record of a batch row.
    #[must_use]
    pub fn row(&self, row: u32) -> &RowMeta {
        &self.rows[row as usize]
    }

    /// The slot that backs `position`, or why a write there would be wrong: no page, or a page
    /// that another row reads.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn slot_to_write(&self, group: u32, row: u32, position: u32) -> Result<u32, AccessError> {
        let slot = self.slot(group, row, position);
        let why = match slot {
            None => "it lies past the block table".to_owned(),
            Some(GUARD_SLOT) => "no page backs it".to_owned(),
            Some(slot) => match self.cells_of_slot[group as usize][slot as usize] {
                1 => return Ok(slot),
                cells => format!("slot {slot} is named by {cells} cells"),
            },
        };
        Err(AccessError { row, group, position, what: "writes", why })
    }

    /// The slot that backs `position`, or why there is nothing to read.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn slot_to_read(&self, group: u32, row: u32, position: u32) -> Result<u32, AccessError> {
        match self.slot(group, row, position) {
            Some(slot) if slot != GUARD_SLOT => Ok(slot),
            _ => {
                let why = "no page backs it".to_owned();
                Err(AccessError { row, group, position, what: "reads", why })
            }
        }
    }

    fn slot(&self, group: u32, row: u32, position: u32) -> Option<u32> {
        self.table_row(group, row).get((position / self.page_tokens) as usize).copied()
    }

    /// Writes the tag of one position through the block table.
    ///
    /// # Errors
    /// When the position has no page of the row's own.
    pub fn write_tag(
        &mut self,
        group: u32,
        row: u32,
        position: u32,
        tag: u64,
    ) -> Result<(), AccessError> {
        let slot = self.slot_to_write(group, row, position)?;
        self.tags[group as usize].write(slot, position % self.page_tokens, tag);
        Ok(())
    }

    /// Runs a tag list; an error is a run's first.
    pub fn run_tags(&mut self, list: &TagList) -> Vec<AccessError> {
        let mut errors = Vec::new();
        for run in list.runs() {
            let (group, row) = (run.group, run.row);
            let mut positions = run.first..run.first + run.count;
            let content = |position: u32| match run.kind {
                TAG_SCRATCH => SCRATCH,
                _ => {
                    let at = run.prefixes + (position - run.first);
                    tag(group, list.prefixes()[at as usize], position)
                }
            };
            let done = match run.kind {
                TAG_CHECK => self.check_tags(group, row, positions, content),
                _ => positions.try_for_each(|p| self.write_tag(group, row, p, content(p))),
            };
            errors.extend(done.err());
        }
        errors
    }

    /// Checks the tags of `positions` through the block table.
    ///
    /// # Errors
    /// The first position without a page or with another tag than `expected`.
    pub fn check_tags(
        &mut self,
        group: u32,
        row: u32,
        positions: std::ops::Range<u32>,
        expected: impl Fn(u32) -> u64,
    ) -> Result<(), AccessError> {
        let page = self.page_tokens;
        let error = |position, why| Err(AccessError { row, group, position, what: "reads", why });
        let mut position = positions.start;
        while position < positions.end {
            let first = position / page * page;
            let end = positions.end.min(first + page);
            let slot = match self.slot(group, row, position) {
                Some(slot) if slot != GUARD_SLOT => slot,
                _ => return error(position, "no page backs it".to_owned()),
            };
            let offsets = position - first..end - first;
            let wrong = self.tags[group as usize]
                .first_wrong(slot, offsets, |offset| expected(first + offset));
            if let Some(offset) = wrong {
                let why = format!("slot {slot} holds other content at offset {offset}");
                return error(first + offset, why);
            }
            position = end;
        }
        Ok(())
    }
}

fn copy_pieces(from: &[u8], to: &mut [u8], pieces: &[PieceCopy]) {
    for piece in pieces {
        for run in 0..piece.runs as usize {
            let from_at = piece.from as usize + run * piece.from_stride as usize;
            let to_at = piece.to as usize + run * piece.to_stride as usize;
            let bytes = piece.bytes as usize;
            to[to_at..to_at + bytes].copy_from_slice(&from[from_at..from_at + bytes]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_components::Config;

    fn device() -> (HostDevice, LaunchList) {
        let geometry = Geometry::new(&Config::small(4, &[None, Some(8)], 16)).unwrap();
        (HostDevice::with_tags(&geometry), LaunchList::new(&geometry))
    }

    fn set(list: &mut LaunchList, table: u32, column: u32, slot: u32) {
        list.push_delta(TableDelta { table, column, count: 1, slot });
    }

    #[test]
    fn a_write_lands_only_in_a_page_that_one_row_names() {
        let (mut device, mut list) = device();
        list.begin(1);
        set(&mut list, 0, 0, 5);
        set(&mut list, 1, 0, 6);
        set(&mut list, 2, 0, 6);
        device.submit(&list);
        assert_eq!(device.write_tag(0, 0, 3, 77), Ok(()));
        let shared = device.write_tag(0, 1, 0, 1).unwrap_err();
        assert_eq!(shared.why, "slot 6 is named by 2 cells");
        let unbacked = device.write_tag(0, 0, 4, 1).unwrap_err();
        assert_eq!(unbacked.to_string(), "row 0 of group 0 writes position 4: no page backs it");
    }

    #[test]
    fn a_read_names_the_first_position_with_other_content() {
        let (mut device, mut list) = device();
        list.begin(1);
        set(&mut list, 9, 0, 3);
        set(&mut list, 9, 1, 4);
        device.submit(&list);
        (0..8).for_each(|p| device.write_tag(1, 0, p, u64::from(p) + 1).unwrap());
        let expected = |p: u32| u64::from(p) + 1;
        assert_eq!(device.check_tags(1, 0, 2..8, expected), Ok(()));
        device.write_tag(1, 0, 6, 99).unwrap();
        assert_eq!(device.check_tags(1, 0, 0..8, expected).unwrap_err().position, 6);
        assert_eq!(device.check_tags(1, 0, 0..9, |_| 0).unwrap_err().position, 0);
    }

    #[test]
    fn a_head_slice_is_packed_and_unpacked() {
        let geometry = Geometry::new(&Config::small(4, &[None], 16)).unwrap();
        let mut device = HostDevice::with_pages(&geometry);
        device.pool_mut(0, 0).iter_mut().zip(0..).for_each(|(word, n)| *word = n);
        // Slot 2: four tokens of two words, of which a head has the second.
        let piece = PieceCopy { from: 68, to: 4, bytes: 4, runs: 4, from_stride: 8, to_stride: 4 };
        assert_eq!(piece.ends(), (68 + 3 * 8 + 4, 20));
        let mut staging = [0; 5];
        device.gather(0, 0, &[piece], &mut staging);
        assert_eq!(staging, [0, 17, 19, 21, 23]);
        let back = PieceCopy { from: 4, to: 100, from_stride: 4, to_stride: 4, ..piece };
        device.scatter(0, 0, &[back], &staging);
        assert_eq!(device.pool(0, 0)[24..30], [24, 17, 19, 21, 23, 29]);
    }

    #[test]
    fn a_run_of_guard_cells_takes_pages_away() {
        let (mut device, mut list) = device();
        list.begin(1);
        (0..4).for_each(|column| set(&mut list, 0, column, column + 1));
        device.submit(&list);
        list.begin(2);
        list.push_delta(TableDelta { table: 0, column: 1, count: 2, slot: GUARD_SLOT });
        device.submit(&list);
        assert_eq!(device.table_row(0, 0)[..5], [1, 0, 0, 4, 0]);
        assert!(device.write_tag(0, 0, 4, 1).is_err());
    }
}
