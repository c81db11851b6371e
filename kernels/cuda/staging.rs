//! Staging: device memory that pieces of pages are packed into and unpacked from, and the mapped
//! list of the pieces.

use super::args::{CHUNK_BYTES, PieceArgs};
use super::queue::{DeviceMemory, Mapped};
use super::{CudaDevice, CudaError};
use crate::abi::PieceCopy;
use cudarc::driver::CudaEvent;

/// Memory to pack pages into.
pub struct Staging {
    read: CudaEvent,
    memory: DeviceMemory,
    pieces: Mapped,
    count: u32,
    chunks: u32,
    /// Ends of the pieces at the source and at the destination.
    ends: (u64, u64),
}

impl Staging {
    /// Takes in a list of pieces to copy, as soon as the device is through with the one before.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Panics
    /// When there are more pieces than the staging has room for, or a piece of 2 GiB or more.
    pub fn set(&mut self, pieces: &[PieceCopy]) -> Result<(), CudaError> {
        self.read.synchronize()?;
        let words: &[u32] = bytemuck::cast_slice(pieces);
        self.pieces.words_mut()[..words.len()].copy_from_slice(words);
        let bytes = |p: &PieceCopy| {
            let bytes = p.bytes.checked_mul(p.runs).filter(|bytes| *bytes < 1 << 31);
            bytes.expect("a piece is below 2 GiB")
        };
        let most_bytes = pieces.iter().map(bytes).max().unwrap_or(0);
        self.count = pieces.len() as u32;
        self.chunks = most_bytes.div_ceil(CHUNK_BYTES).max(1);
        let units = self.count.checked_mul(self.chunks);
        assert!(units.is_some_and(|units| units < 1 << 31), "a list has below 2^31 chunks");
        let wider = |a: (u64, u64), b: (u64, u64)| (a.0.max(b.0), a.1.max(b.1));
        self.ends = pieces.iter().map(PieceCopy::ends).fold((0, 0), wider);
        Ok(())
    }
}

impl CudaDevice {
    /// Staging of `bytes`, for lists of up to `most_pieces`.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn staging(&self, bytes: u64, most_pieces: usize) -> Result<Staging, CudaError> {
        Ok(Staging {
            read: self.queue.context.new_event(None)?,
            memory: self.queue.memory(bytes)?,
            pieces: self.queue.mapped(most_pieces * size_of::<PieceCopy>() / 4)?,
            count: 0,
            chunks: 1,
            ends: (0, 0),
        })
    }

    /// Packs the pieces that were set, of a pool, into the staging.
    ///
    /// # Errors
    /// When the launch fails.
    pub fn gather(
        &mut self,
        group: u32,
        pool: usize,
        staging: &mut Staging,
    ) -> Result<(), CudaError> {
        let pool = &self.pools[group as usize][pool];
        self.copy_pieces(staging, pool, &staging.memory)
    }

    /// Unpacks the pieces that were set, of the staging, into a pool.
    ///
    /// # Errors
    /// When the launch fails.
    pub fn scatter(&mut self, group: u32, pool: usize, staging: &Staging) -> Result<(), CudaError> {
        let pool = &self.pools[group as usize][pool];
        self.copy_pieces(staging, &staging.memory, pool)
    }

    fn copy_pieces(
        &self,
        staging: &Staging,
        from: &DeviceMemory,
        to: &DeviceMemory,
    ) -> Result<(), CudaError> {
        let fits = staging.ends.0 <= from.bytes as u64 && staging.ends.1 <= to.bytes as u64;
        assert!(fits, "pieces lie inside pool and staging");
        let args = PieceArgs {
            pieces: staging.pieces.address,
            from: from.address,
            to: to.address,
            count: staging.count,
            chunks: staging.chunks,
        };
        let blocks = self.copy_pieces.blocks(args.count * args.chunks);
        self.queue.launch(&self.copy_pieces, (blocks, 1), &args)?;
        Ok(staging.read.record(&self.queue.stream)?)
    }

    /// The words of the staging.
    ///
    /// # Errors
    /// When the device failed.
    pub fn read_staging(&self, staging: &Staging) -> Result<Vec<u32>, CudaError> {
        self.queue.download(&staging.memory, staging.memory.bytes / 4)
    }

    /// Fills the staging from its start.
    ///
    /// # Errors
    /// When the device failed.
    pub fn write_staging(&self, staging: &mut Staging, words: &[u32]) -> Result<(), CudaError> {
        self.queue.upload(&mut staging.memory, words)
    }

    /// The driver's own copy of the first `bytes`: the yardstick of every copy here.
    ///
    /// # Errors
    /// When the copy fails.
    pub fn plain_copy(
        &mut self,
        from: &Staging,
        to: &mut Staging,
        bytes: u64,
    ) -> Result<(), CudaError> {
        self.queue.plain_copy(&from.memory, &mut to.memory, bytes)
    }
}
