//! What the deltas replace, for the benchmark: every step the whole block table of each layer is
//! uploaded and converted.

use super::args::Address;
use super::compile::WHOLE_TABLES;
use super::queue::{Args, DeviceMemory, Kernel, Mapped};
use super::{CudaDevice, CudaError};
use cudarc::driver::result;

/// Whole tables of `layers` layers on both sides of the bus.
pub struct WholeTables {
    kernel: Kernel,
    host: Mapped,
    uploaded: DeviceMemory,
    converted: DeviceMemory,
    cells: u32,
    layers: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ConvertArgs {
    from: Address,
    to: Address,
    cells: u32,
    layers: u32,
    from_layers: u32,
}

impl Args for ConvertArgs {}

impl CudaDevice {
    /// Tables of `cells` cells for each of `layers` layers.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn whole_tables(&self, cells: u32, layers: u32) -> Result<WholeTables, CudaError> {
        let words = cells as usize * layers as usize;
        let mut host = self.queue.mapped(words)?;
        host.words_mut().iter_mut().zip(0..).for_each(|(cell, page)| *cell = page % cells);
        let bytes = words as u64 * 4;
        let [kernel] = self.queue.load(&WHOLE_TABLES)?;
        let (uploaded, converted) = (self.queue.memory(bytes)?, self.queue.memory(bytes)?);
        Ok(WholeTables { kernel, host, uploaded, converted, cells, layers })
    }

    /// Uploads the tables of the first `from_layers` layers and converts them for all.
    ///
    /// # Errors
    /// When the device fails.
    pub fn upload_whole(
        &mut self,
        tables: &mut WholeTables,
        from_layers: u32,
    ) -> Result<(), CudaError> {
        let words = tables.cells as usize * from_layers.min(tables.layers) as usize;
        let from = &tables.host.words_mut()[..words];
        let to = &tables.uploaded;
        // SAFETY: source and destination hold `words` words, and their drops wait for the device.
        unsafe { result::memcpy_htod_async(to.address, from, self.queue.stream.cu_stream()) }?;
        let args = ConvertArgs {
            from: tables.uploaded.address,
            to: tables.converted.address,
            cells: tables.cells,
            layers: tables.layers,
            from_layers,
        };
        self.queue.launch(&tables.kernel, (tables.kernel.most_blocks, 1), &args)
    }
}
