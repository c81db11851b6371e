//! Content tags on the CUDA device, beside the host's: every read and write of a step runs through
//! the device's own tables too.

use crate::Geometry;
use crate::kernels::cuda::{CudaDevice, CudaError};
use crate::kernels::tags::TagList;
use crate::kernels::{LaunchList, TAG_CHECK, TAG_SCRATCH, TAG_WRITE};
use std::ops::Range;

/// The device, and the accesses of the step so far.
///
/// Rows of a step touch no page that another one writes, so their accesses run side by side: a row
/// reads (target), writes, reads (drafter) and writes again, and all rows do so together.
pub struct DeviceTags {
    device: CudaDevice,
    phases: [TagList; 4],
    phase: usize,
}

impl DeviceTags {
    pub fn new(geometry: &Geometry) -> Result<Self, CudaError> {
        let device = CudaDevice::with_tags(geometry)?;
        Ok(Self { device, phases: Default::default(), phase: 0 })
    }

    /// Begins a row.
    pub fn begin_row(&mut self) {
        self.phase = 0;
    }

    pub fn check(&mut self, place: (u32, u32), range: Range<u32>, prefixes: &[u64]) {
        // What reaches past the known tokens is a violation that the host has found.
        if let Some(known) = prefixes.get(range.start as usize..range.end as usize) {
            self.phase += self.phase % 2;
            self.phases[self.phase].push(TAG_CHECK, place, range, known);
        }
    }

    /// Writes positions, each its content or scratch.
    pub fn write(
        &mut self,
        place: (u32, u32),
        range: Range<u32>,
        content: impl Fn(u32) -> Option<u64>,
    ) {
        self.phase |= 1;
        let list = &mut self.phases[self.phase];
        let prefixes: Vec<Option<u64>> = range.clone().map(content).collect();
        let mut first = range.start;
        for run in prefixes.chunk_by(|a, b| a.is_some() == b.is_some()) {
            let positions = first..first + run.len() as u32;
            first = positions.end;
            let known: Vec<u64> = run.iter().flatten().copied().collect();
            let kind = if known.is_empty() { TAG_SCRATCH } else { TAG_WRITE };
            list.push(kind, place, positions, &known);
        }
    }

    /// Runs the step's launches and accesses; what is wrong, one sentence each.
    pub fn step(&mut self, launches: &LaunchList) -> Vec<String> {
        let mut found = Vec::new();
        let mut done = self.device.submit(launches);
        for list in &mut self.phases {
            done = done.and_then(|()| {
                let errors = self.device.run_tags(list)?;
                found.extend(errors.into_iter().map(|error| format!("on the device: {error}")));
                Ok(())
            });
            list.clear();
        }
        found.extend(done.err().map(|error| error.to_string()));
        found
    }
}
