//! One context and stream, the memory on both sides of it, and launches into it.

use super::CudaError;
use super::args::Address;
use super::compile::{Source, compile};
use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, result, sys};
use cudarc::nvrtc::Ptx;
use std::ffi::c_void;
use std::sync::Arc;

/// Threads of a block, in every kernel.
const BLOCK: u32 = 256;

/// Everything the device runs for us runs here, in order.
pub(super) struct Queue {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    architecture: String,
    processors: u32,
}

/// Parameters of a kernel: plain data, laid out as in `abi.h`.
pub(super) trait Args: Copy {}

/// A kernel and the most blocks of it that run at once.
pub(super) struct Kernel {
    function: CudaFunction,
    pub most_blocks: u32,
}

impl Kernel {
    /// Blocks to launch when each warp is to have a unit of work and no block waits for another.
    pub fn blocks(&self, units: u32) -> u32 {
        units.div_ceil(BLOCK / 32).clamp(1, self.most_blocks)
    }
}

impl Queue {
    pub fn new() -> Result<Self, CudaError> {
        // SAFETY: loads the library and nothing else; its initialisers have no requirements.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let context = CudaContext::new(0)?;
        let (major, minor) = context.compute_capability()?;
        if major < 8 {
            return Err(CudaError::TooOld { name: context.name()?, major, minor });
        }
        let processors =
            context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(Self {
            stream: context.new_stream()?,
            architecture: format!("sm_{major}{minor}"),
            processors: processors.unsigned_abs(),
            context,
        })
    }

    /// Compiles a file and loads its kernels, in the order of its entries.
    pub fn load<const N: usize>(&self, source: &Source) -> Result<[Kernel; N], CudaError> {
        let compiled = compile(source, &self.architecture, &[])?;
        let module = self.context.load_module(Ptx::from_binary(compiled.cubin))?;
        let kernels: Result<Vec<Kernel>, CudaError> = source
            .entries
            .iter()
            .map(|entry| {
                let function = module.load_function(entry)?;
                let blocks =
                    function.occupancy_max_active_blocks_per_multiprocessor(BLOCK, 0, None)?;
                Ok(Kernel { function, most_blocks: blocks * self.processors })
            })
            .collect();
        kernels?.try_into().map_err(|_| unreachable!("{} has {N} entries", source.name))
    }

    /// Launches a kernel that takes one record of parameters. Allocates nothing.
    pub fn launch(
        &self,
        kernel: &Kernel,
        (x, y): (u32, u32),
        args: &impl Args,
    ) -> Result<(), CudaError> {
        let mut params = [std::ptr::from_ref(args).cast_mut().cast::<c_void>()];
        // SAFETY: the driver copies the parameters before it returns; they are laid out as the
        // kernel declares them (`abi.h` asserts the sizes). Addresses in them are of memory that
        // the caller keeps until the stream is through, and what the kernel reaches behind them is
        // bounded by counts that the caller has checked.
        unsafe {
            result::launch_kernel(
                kernel.function.cu_function(),
                (x, y, 1),
                (BLOCK, 1, 1),
                0,
                self.stream.cu_stream(),
                &mut params,
            )
        }?;
        Ok(())
    }

    /// Device memory, zeroed; plain, so that other engines can register it for transfers.
    pub fn memory(&self, bytes: u64) -> Result<DeviceMemory, CudaError> {
        self.context.bind_to_thread()?;
        let bytes = usize::try_from(bytes.max(16)).expect("device memory fits the address space");
        // SAFETY: the memory is owned by the value returned and zeroed before anything reads it.
        let address = unsafe { result::malloc_sync(bytes) }?;
        let memory = DeviceMemory { address, bytes, context: self.context.clone() };
        // SAFETY: `memory` is alive and has `bytes` bytes.
        unsafe { result::memset_d8_async(address, 0, bytes, self.stream.cu_stream()) }?;
        self.stream.synchronize()?;
        Ok(memory)
    }

    /// Pinned host memory that the device reads over the bus.
    pub fn mapped(&self, words: usize) -> Result<Mapped, CudaError> {
        self.context.bind_to_thread()?;
        // SAFETY: the memory is owned by the value returned and filled before anything reads it.
        let host =
            unsafe { result::malloc_host(words.max(4) * 4, sys::CU_MEMHOSTALLOC_DEVICEMAP) }?;
        let mut mapped =
            Mapped { host: host.cast(), address: 0, words, context: self.context.clone() };
        // SAFETY: `host` was just allocated with `DEVICEMAP`.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut mapped.address, host, 0) }.result()?;
        mapped.words_mut().fill(0);
        Ok(mapped)
    }

    /// Copies to the start of `to` and waits.
    pub fn upload<T: Pod>(&self, to: &mut DeviceMemory, from: &[T]) -> Result<(), CudaError> {
        assert!(size_of_val(from) <= to.bytes, "an upload fits its destination");
        // SAFETY: both sides are alive and large enough until the wait below is over.
        unsafe { result::memcpy_htod_async(to.address, from, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    /// Copies the first `count` records of `from` and waits.
    pub fn download<T: Pod>(&self, from: &DeviceMemory, count: usize) -> Result<Vec<T>, CudaError> {
        let mut to = vec![T::zeroed(); count];
        assert!(size_of_val(to.as_slice()) <= from.bytes, "a download fits its source");
        // SAFETY: both sides are alive and large enough until the wait below is over; any bits
        // make a `Pod` record.
        unsafe { result::memcpy_dtoh_async(&mut to, from.address, self.stream.cu_stream()) }?;
        self.stream.synchronize()?;
        Ok(to)
    }

    /// The driver's own copy of the first `bytes`.
    pub fn plain_copy(
        &self,
        from: &DeviceMemory,
        to: &mut DeviceMemory,
        bytes: u64,
    ) -> Result<(), CudaError> {
        let bytes = bytes as usize;
        assert!(bytes <= from.bytes.min(to.bytes), "a copy fits both sides");
        let stream = self.stream.cu_stream();
        // SAFETY: both sides are large enough, and their drops wait for the device.
        Ok(unsafe { result::memcpy_dtod_async(to.address, from.address, bytes, stream) }?)
    }

    pub fn timer(&self) -> Result<CudaEvent, CudaError> {
        Ok(self.context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))?)
    }
}

/// Owned device memory.
pub(super) struct DeviceMemory {
    pub address: Address,
    pub bytes: usize,
    context: Arc<CudaContext>,
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `Queue::memory` and freed once; `cuMemFree` waits for the device, so
        // no kernel is left that uses it.
        self.context.record_err(unsafe { result::free_sync(self.address) });
    }
}

/// Owned pinned host memory, seen by the device at `address`.
pub(super) struct Mapped {
    host: *mut u32,
    pub address: Address,
    words: usize,
    context: Arc<CudaContext>,
}

impl Mapped {
    pub fn len(&self) -> usize {
        self.words
    }

    /// The words. The device may read them until the stream is through with the last launch that
    /// was given the address: wait before you write.
    pub fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: `words` words were allocated and are initialised; the host reaches them through
        // `self` alone, and the device never writes them.
        unsafe { std::slice::from_raw_parts_mut(self.host, self.words) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: allocated by `Queue::mapped` and freed once; `cuMemFreeHost` waits for the device.
        self.context.record_err(unsafe { result::free_host(self.host.cast()) });
    }
}
