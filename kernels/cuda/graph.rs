//! The step buffers: a ring of mapped images, a captured graph and an event for each.
//!
//! A step writes its records into the next image and launches that image's graph: one kernel, no
//! copy. The event says when the device has read the image, so a step that is still in flight is
//! never overwritten.

use super::CudaError;
use super::args::StepArgs;
use super::queue::{Kernel, Mapped, Queue};
use crate::launch::LaunchList;
use cudarc::driver::{CudaEvent, CudaGraph, sys};

/// One more than the two steps that overlap depth 1 has in flight.
const RING: usize = 3;
/// Enough to apply the records of a usual step in one pass; a full one takes a few.
const STEP_BLOCKS: u32 = 16;

pub(super) struct Ring {
    buffers: [StepBuffer; RING],
    turn: usize,
    /// The graphs launch it: its module must outlive them.
    _step: Kernel,
}

pub(super) struct StepBuffer {
    graph: CudaGraph,
    read: CudaEvent,
    image: Mapped,
}

impl Ring {
    pub fn new(queue: &Queue, step: Kernel, args: StepArgs, words: u32) -> Result<Self, CudaError> {
        let buffer = || StepBuffer::new(queue, &step, args, words as usize);
        Ok(Self { buffers: [buffer()?, buffer()?, buffer()?], turn: 0, _step: step })
    }

    /// The buffer of the next step.
    pub fn advance(&mut self) -> &mut StepBuffer {
        self.turn = (self.turn + 1) % RING;
        &mut self.buffers[self.turn]
    }

    /// The buffer of the last step.
    pub fn current(&self) -> &StepBuffer {
        &self.buffers[self.turn]
    }
}

impl StepBuffer {
    fn new(
        queue: &Queue,
        step: &Kernel,
        mut args: StepArgs,
        words: usize,
    ) -> Result<Self, CudaError> {
        let image = queue.mapped(words)?;
        args.image = image.address;
        queue
            .stream
            .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let launched = queue.launch(step, (STEP_BLOCKS, 1), &args);
        let graph = queue.stream.end_capture(sys::CUgraphInstantiate_flags(0))?;
        launched?;
        let graph = graph.expect("a capture with one launch makes a graph");
        graph.upload()?;
        Ok(Self { graph, read: queue.context.new_event(None)?, image })
    }

    /// Takes in the records of a step, as soon as the device is through with the step before in
    /// this buffer.
    pub fn write(&mut self, list: &LaunchList) -> Result<(), CudaError> {
        if !self.read.try_is_complete()? {
            self.read.synchronize()?;
        }
        let words = self.image.words_mut();
        for (at, section) in list.used_sections() {
            words[at..at + section.len()].copy_from_slice(section);
        }
        Ok(())
    }

    /// Device address of a word of the image.
    pub fn address(&self, word: u32) -> u64 {
        self.image.address + u64::from(word) * 4
    }

    /// Launches the fused step.
    pub fn launch(&self, queue: &Queue) -> Result<(), CudaError> {
        self.graph.launch()?;
        Ok(self.read.record(&queue.stream)?)
    }
}
