//! An engine whose plans run on the CUDA device too, as they would in front of a model.

use crate::engine::{Engine, EngineError};
use crate::kernels::cuda::{CudaDevice, CudaError};
use crate::report::{DeviceCost, percentiles};
use crate::{Geometry, Outcome, Plan};
use std::time::Instant;

/// Runs every plan's launches, then the plan on another engine.
pub struct OnCuda<E> {
    engine: E,
    device: CudaDevice,
    submit_ns: Vec<u64>,
    device_ns: Vec<u64>,
}

impl<E: Engine> OnCuda<E> {
    /// Device tables and rows for `geometry` beside `engine`.
    ///
    /// # Errors
    /// When there is no device.
    pub fn new(engine: E, geometry: &Geometry) -> Result<Self, CudaError> {
        let device = CudaDevice::new(geometry)?;
        Ok(Self { engine, device, submit_ns: Vec::new(), device_ns: Vec::new() })
    }

    /// What the launches cost, beside `host_ns` for a plan.
    #[must_use]
    pub fn cost(&self, host_ns: u64) -> DeviceCost {
        let submit = percentiles(self.submit_ns.iter().copied());
        let device = percentiles(self.device_ns.iter().copied());
        let core_ns = host_ns + submit.p50 + device.p50;
        DeviceCost {
            submit_ns_p50: submit.p50,
            submit_ns_p99: submit.p99,
            device_ns_p50: device.p50,
            device_ns_p99: device.p99,
            share_of_20_ms_step: core_ns as f64 / 20e6,
        }
    }
}

impl<E: Engine> Engine for OnCuda<E> {
    fn run(&mut self, plan: Plan<'_>, outcome: &mut Outcome) -> Result<u64, EngineError> {
        let mut submit_ns = 0;
        let device_us = self.device.elapsed_us(|device| {
            let start = Instant::now();
            device.submit(plan.launches())?;
            submit_ns = start.elapsed().as_nanos() as u64;
            Ok(())
        });
        let device_us = device_us.map_err(|error| EngineError(error.to_string()))?;
        self.submit_ns.push(submit_ns);
        self.device_ns.push((device_us * 1000.0) as u64);
        self.engine.run(plan, outcome)
    }
}
