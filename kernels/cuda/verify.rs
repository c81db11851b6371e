//! Content tags on the device: tag lists run through the device's block tables.

use super::args::TagArgs;
use super::compile::TAGS;
use super::queue::{DeviceMemory, Kernel, Mapped, Queue};
use super::{CudaDevice, CudaError};
use crate::TAG_CHECK;
use crate::abi::TagRun;
use crate::host::AccessError;
use crate::tags::TagList;
use paceline_components::GUARD_SLOT;

/// Blocks that share the positions of a run.
const RUN_BLOCKS: u32 = 8;

pub(super) struct TagKernel {
    kernel: Kernel,
    list: Mapped,
    verdicts: DeviceMemory,
}

impl TagKernel {
    pub fn new(queue: &Queue) -> Result<Self, CudaError> {
        let [kernel] = queue.load(&TAGS)?;
        Ok(Self { kernel, list: queue.mapped(1 << 16)?, verdicts: queue.memory(8 << 10)? })
    }

    /// Makes room for a list: lists are for tests and `--verify`, so they may grow.
    fn fit(&mut self, queue: &Queue, list: &TagList) -> Result<(), CudaError> {
        let words = list.prefixes().len() * 2 + size_of_val(list.runs()) / 4;
        if words > self.list.len() {
            self.list = queue.mapped(words.next_power_of_two())?;
        }
        let verdict_bytes = list.runs().len() * 8;
        if verdict_bytes > self.verdicts.bytes {
            self.verdicts = queue.memory(verdict_bytes.next_power_of_two() as u64)?;
        }
        Ok(())
    }
}

impl CudaDevice {
    /// Runs a tag list, its runs side by side; an error is a run's first. Unlike the host device it
    /// cannot know whether another cell names a page that is written.
    ///
    /// # Errors
    /// When the device fails; what is wrong with the pages is the value.
    ///
    /// # Panics
    /// When the device was made without tags, or the list names rows or groups it does not have.
    pub fn run_tags(&mut self, list: &TagList) -> Result<Vec<AccessError>, CudaError> {
        let (table_rows, columns, page_tokens) = (self.table_rows, self.columns, self.page_tokens);
        let tags = self.tags.as_mut().expect("the device was made with tags");
        let groups = self.pools.len() as u32;
        let is_known = |run: &TagRun| run.group < groups && run.row < table_rows;
        assert!(list.runs().iter().all(is_known), "a tag list names rows of the tables");
        if list.runs().is_empty() {
            return Ok(Vec::new());
        }
        tags.fit(&self.queue, list)?;
        let prefixes: &[u32] = bytemuck::cast_slice(list.prefixes());
        let runs: &[u32] = bytemuck::cast_slice(list.runs());
        let words = tags.list.words_mut();
        words[..prefixes.len()].copy_from_slice(prefixes);
        words[prefixes.len()..prefixes.len() + runs.len()].copy_from_slice(runs);
        self.queue.upload(&mut tags.verdicts, &vec![u64::MAX; list.runs().len()])?;
        let args = TagArgs {
            runs: tags.list.address + prefixes.len() as u64 * 4,
            prefixes: tags.list.address,
            tables: self.tables.address,
            pools: self.pool_records.address,
            verdicts: tags.verdicts.address,
            table_rows,
            columns,
            page_tokens,
        };
        self.queue.launch(&tags.kernel, (list.runs().len() as u32, RUN_BLOCKS), &args)?;
        let verdicts: Vec<u64> = self.queue.download(&tags.verdicts, list.runs().len())?;
        let wrong = list.runs().iter().zip(verdicts).filter(|(_, verdict)| *verdict != u64::MAX);
        Ok(wrong.map(|(run, verdict)| error(run, verdict, columns, page_tokens)).collect())
    }
}

/// What the host device would have said.
fn error(run: &TagRun, verdict: u64, columns: u32, page_tokens: u32) -> AccessError {
    let (position, slot) = ((verdict >> 32) as u32, verdict as u32);
    let is_write = run.kind != TAG_CHECK;
    let why = if slot != GUARD_SLOT {
        format!("slot {slot} holds other content at offset {}", position % page_tokens)
    } else if is_write && position / page_tokens >= columns {
        "it lies past the block table".to_owned()
    } else {
        "no page backs it".to_owned()
    };
    let what = if is_write { "writes" } else { "reads" };
    AccessError { row: run.row, group: run.group, position, what, why }
}
