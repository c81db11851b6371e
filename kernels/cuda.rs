//! The CUDA device: runs launch lists on a GPU and leaves the bytes that the host device leaves.
//!
//! A step's records are written into a mapped step buffer and applied by one captured graph of one
//! kernel, so that the host pays one launch and the device cost follows what changed. Page copies
//! run as a wide kernel of their own, in steps that have them. Libraries are looked up when a
//! device is opened; without them there is an error and nothing else.

#![expect(unsafe_code, reason = "driver calls; each says which invariant makes it sound")]

mod args;
mod compile;
mod graph;
mod queue;
mod staging;
mod verify;
mod whole_tables;

pub use compile::{Compiled, SOURCES, Source, compile};
pub use staging::Staging;
pub use whole_tables::WholeTables;

use crate::abi::{RowMeta, TableDelta};
use crate::launch::{LaunchList, Layout};
use args::{CHUNK_BYTES, PageArgs, Pool, StepArgs};
use compile::{PAGES, STEP};
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use cudarc::nvrtc::result::NvrtcError;
use graph::Ring;
use paceline_components::{GUARD_SLOT, Geometry};
use queue::{DeviceMemory, Kernel, Queue};
use thiserror::Error;
use verify::TagKernel;

/// Why there is no device, or why it failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is missing.
    #[error("no CUDA driver: libcuda.so.1 is not found; it comes with the NVIDIA driver")]
    NoDriver,
    /// The driver has no GPU to offer.
    #[error("no CUDA device: the driver offers no GPU to this process")]
    NoDevice,
    /// The compiler's library is missing.
    #[error(
        "no CUDA compiler: libnvrtc.so.13 is not found; put its folder into LD_LIBRARY_PATH \
         (CUDA 13's lib64, or nvidia/cu13/lib of the PyPI wheel nvidia-cuda-nvrtc)"
    )]
    NoCompiler,
    /// The GPU is older than the kernels.
    #[error("{name} is sm_{major}{minor}: the kernels need sm_80 or newer")]
    TooOld {
        /// Its name.
        name: String,
        /// Compute capability.
        major: i32,
        /// Compute capability.
        minor: i32,
    },
    /// A kernel does not compile.
    #[error("{name} does not compile:\n{log}")]
    Compile {
        /// The file.
        name: &'static str,
        /// What NVRTC said.
        log: String,
    },
    /// The driver or the compiler refused a call, or a kernel failed earlier.
    #[error("CUDA: {0}")]
    Failed(String),
}

impl CudaError {
    /// Whether the machine has no usable CUDA at all, rather than one that failed.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        match self {
            Self::NoDriver | Self::NoDevice | Self::NoCompiler | Self::TooOld { .. } => true,
            Self::Compile { .. } | Self::Failed(_) => false,
        }
    }
}

impl From<DriverError> for CudaError {
    fn from(error: DriverError) -> Self {
        match error.0 {
            CUresult::CUDA_ERROR_STUB_LIBRARY => Self::NoDriver,
            CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_INVALID_DEVICE => Self::NoDevice,
            _ => Self::Failed(format!("{error:?}")),
        }
    }
}

impl From<NvrtcError> for CudaError {
    fn from(error: NvrtcError) -> Self {
        Self::Failed(format!("{error:?}"))
    }
}

/// Block tables, row records and page contents on a GPU. Stays on the thread that made it.
pub struct CudaDevice {
    ring: Ring,
    tags: Option<TagKernel>,
    copy_pages: Kernel,
    copy_pieces: Kernel,
    tables: DeviceMemory,
    rows: DeviceMemory,
    /// Page memory by group and pool; tags are the one pool of their group.
    pools: Vec<Vec<DeviceMemory>>,
    pool_records: DeviceMemory,
    pool_count: u32,
    /// Chunks of the group with the largest page.
    page_chunks: u32,
    /// Page copies of the last step.
    copies: u32,
    slots: Vec<u32>,
    table_rows: u32,
    columns: u32,
    page_tokens: u32,
    layout: Layout,
    queue: Queue,
}

impl CudaDevice {
    /// Device state for `geometry` without page contents.
    ///
    /// # Errors
    /// When a library, a device or memory is missing.
    pub fn new(geometry: &Geometry) -> Result<Self, CudaError> {
        Self::with_pools(geometry, &vec![Vec::new(); geometry.groups.len()])
    }

    /// Device state for `geometry` with a content tag for each position of each page.
    ///
    /// # Errors
    /// When a library, a device or memory is missing.
    pub fn with_tags(geometry: &Geometry) -> Result<Self, CudaError> {
        let slot_bytes = vec![8 * geometry.config.page_tokens];
        let mut device = Self::with_pools(geometry, &vec![slot_bytes; geometry.groups.len()])?;
        device.tags = Some(TagKernel::new(&device.queue)?);
        Ok(device)
    }

    /// Device state for `geometry` with the memory of every page, zeroed.
    ///
    /// # Errors
    /// When a library, a device or memory is missing.
    ///
    /// # Panics
    /// When a page takes 2 GiB in one pool.
    pub fn with_pages(geometry: &Geometry) -> Result<Self, CudaError> {
        let slot_bytes = |bytes: u64| {
            let bytes = i32::try_from(bytes.next_multiple_of(4));
            bytes.expect("a page's slot is below 2 GiB").unsigned_abs()
        };
        let slots = geometry.groups.iter();
        let slots = slots.map(|g| g.pools.iter().map(|p| slot_bytes(p.slot_bytes())).collect());
        Self::with_pools(geometry, &slots.collect::<Vec<_>>())
    }

    /// `slot_bytes`: for each group, of each pool.
    fn with_pools(geometry: &Geometry, slot_bytes: &[Vec<u32>]) -> Result<Self, CudaError> {
        let queue = Queue::new()?;
        let table_rows = geometry.config.max_batch + 1;
        let table_words =
            geometry.groups.len() as u64 * u64::from(table_rows) * u64::from(geometry.columns);
        const { assert!(GUARD_SLOT == 0, "zeroed tables name the guard slot") };
        let tables = queue.memory(table_words * 4)?;
        let rows = queue.memory(u64::from(table_rows) * size_of::<RowMeta>() as u64)?;
        let mut pools = Vec::new();
        let mut records = Vec::new();
        for ((index, group), slot_bytes) in (0..).zip(&geometry.groups).zip(slot_bytes) {
            let memory = |bytes: &u32| queue.memory(u64::from(*bytes) * u64::from(group.slots()));
            let memory = slot_bytes.iter().map(memory).collect::<Result<Vec<_>, _>>()?;
            records.extend(memory.iter().zip(slot_bytes).map(|(memory, bytes)| Pool {
                base: memory.address,
                slot_bytes: *bytes,
                group: index,
            }));
            pools.push(memory);
        }
        let mut pool_records = queue.memory(size_of_val(records.as_slice()) as u64)?;
        queue.upload(&mut pool_records, &records)?;
        let chunks = |slot: &Vec<u32>| slot.iter().map(|b| b.div_ceil(CHUNK_BYTES)).sum();
        let layout = LaunchList::new(geometry).layout();
        let args = StepArgs {
            image: 0,
            tables: tables.address,
            rows: rows.address,
            columns: geometry.columns,
            rows_at: layout.rows.0,
            rows_room: layout.rows.1,
            deltas_at: layout.deltas.0,
            deltas_room: layout.deltas.1,
        };
        let [step] = queue.load(&STEP)?;
        let [copy_pages, copy_pieces] = queue.load(&PAGES)?;
        Ok(Self {
            ring: Ring::new(&queue, step, args, layout.words)?,
            tags: None,
            copy_pages,
            copy_pieces,
            tables,
            rows,
            pools,
            pool_records,
            pool_count: records.len() as u32,
            page_chunks: slot_bytes.iter().map(chunks).max().unwrap_or(0),
            copies: 0,
            slots: geometry.groups.iter().map(|g| g.slots()).collect(),
            table_rows,
            columns: geometry.columns,
            page_tokens: geometry.config.page_tokens,
            layout,
            queue,
        })
    }

    /// Runs the launches of one step; returns when they are queued. Waits only when the step three
    /// before is still running. Allocates nothing.
    ///
    /// # Errors
    /// When a launch, or an earlier one, fails.
    ///
    /// # Panics
    /// When the list is of another geometry or names cells, rows or slots that do not exist.
    pub fn submit(&mut self, list: &LaunchList) -> Result<(), CudaError> {
        self.check(list);
        self.copies = list.copies().len() as u32;
        self.ring.advance().write(list)?;
        self.launch()
    }

    /// Runs the launches of the last step again, `times` times: for measurements.
    ///
    /// # Errors
    /// When a launch, or an earlier one, fails.
    pub fn replay(&mut self, times: u32) -> Result<(), CudaError> {
        (0..times).try_for_each(|_| self.launch())
    }

    fn launch(&self) -> Result<(), CudaError> {
        let buffer = self.ring.current();
        if self.copies > 0 && self.page_chunks > 0 {
            let args = PageArgs {
                copies: buffer.address(self.layout.copies.0),
                pools: self.pool_records.address,
                count: self.copies,
                pools_count: self.pool_count,
                chunks: self.page_chunks,
            };
            let blocks = self.copy_pages.blocks(self.copies * self.page_chunks);
            self.queue.launch(&self.copy_pages, (blocks, 1), &args)?;
        }
        buffer.launch(&self.queue)
    }

    /// The kernels index what the list says.
    fn check(&self, list: &LaunchList) {
        assert_eq!(list.layout(), self.layout, "the list is of this device's geometry");
        let tables = self.slots.len() as u32 * self.table_rows;
        let fits = |d: &TableDelta| {
            d.table < tables && d.column <= self.columns && d.count <= self.columns - d.column
        };
        assert!(list.deltas().iter().all(fits), "deltas name cells of the tables");
        assert!(list.rows().iter().all(|r| r.row < self.table_rows), "rows are of the batch");
        let fits = |group: u32, slot: u32| slot < self.slots[group as usize];
        let copies = list.copies();
        assert!(
            copies.iter().all(|c| fits(c.group, c.from) && fits(c.group, c.to)),
            "copies name slots of their group"
        );
        let units = (copies.len() as u64) * u64::from(self.page_chunks);
        assert!(units < 1 << 31, "copies have below 2^31 chunks");
    }

    /// All block tables: groups, rows, columns.
    ///
    /// # Errors
    /// When the device failed.
    pub fn tables(&self) -> Result<Vec<u32>, CudaError> {
        let cells = self.slots.len() * self.table_rows as usize * self.columns as usize;
        self.queue.download(&self.tables, cells)
    }

    /// The last record of each batch row.
    ///
    /// # Errors
    /// When the device failed.
    pub fn rows(&self) -> Result<Vec<RowMeta>, CudaError> {
        self.queue.download(&self.rows, self.table_rows as usize)
    }

    /// Memory of one pool of a group, in words; tags are pool 0 of their group, two words each.
    ///
    /// # Errors
    /// When the device failed.
    pub fn pool(&self, group: u32, pool: usize) -> Result<Vec<u32>, CudaError> {
        let memory = &self.pools[group as usize][pool];
        self.queue.download(memory, memory.bytes / 4)
    }

    /// Fills a pool from its start.
    ///
    /// # Errors
    /// When the device failed.
    pub fn write_pool(&mut self, group: u32, pool: usize, words: &[u32]) -> Result<(), CudaError> {
        self.queue.upload(&mut self.pools[group as usize][pool], words)
    }

    /// Waits until everything submitted is done.
    ///
    /// # Errors
    /// When some of it failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        Ok(self.queue.stream.synchronize()?)
    }

    /// Microseconds of device time from before to after what `work` queues.
    ///
    /// # Errors
    /// When it fails.
    pub fn elapsed_us(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), CudaError>,
    ) -> Result<f64, CudaError> {
        let (start, end) = (self.queue.timer()?, self.queue.timer()?);
        start.record(&self.queue.stream)?;
        work(self)?;
        end.record(&self.queue.stream)?;
        Ok(f64::from(start.elapsed_ms(&end)?) * 1000.0)
    }

    /// Name of the GPU.
    ///
    /// # Errors
    /// When the driver does not know.
    pub fn name(&self) -> Result<String, CudaError> {
        Ok(self.queue.context.name()?)
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Graphs and buffers go next: nothing may be running that uses them.
        self.queue.context.record_err(self.queue.stream.synchronize());
    }
}
