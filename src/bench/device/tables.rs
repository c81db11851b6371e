//! The step on the device: what a submit costs the host, what the fused kernel costs the device at
//! any table length, and what whole tables would cost.

use super::{DeviceBenchError, percentile};
use crate::kernels::cuda::CudaDevice;
use crate::{Config, Core, NewRequest, Outcome};
use serde::Serialize;
use std::fmt;
use std::time::Instant;

const ROWS: u32 = 64;
const CONTEXT_TOKENS: u32 = 8192;
const STEPS: u32 = 2000;
/// Steps whose device time is taken, and how often each is replayed for it.
const TIMED_STEPS: u32 = 64;
const REPLAYS: u32 = 200;
/// Layers with tables of their own in the design that deltas replace.
const LAYERS: u32 = 61;

/// A steady decode step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepCost {
    /// Longest sequence: columns of the tables.
    pub max_seq_len: u32,
    /// Table records of a step, mean.
    pub mean_deltas: f64,
    /// Host time of a submit, median.
    pub submit_ns_p50: f64,
    /// The same, 99th percentile.
    pub submit_ns_p99: f64,
    /// Heap allocations of a submit.
    pub allocations_per_submit: f64,
    /// Device time of a step, median of steps.
    pub device_us_p50: f64,
    /// The same, 99th percentile.
    pub device_us_p99: f64,
}

/// Steps at two lengths, and whole tables.
#[derive(Clone, Debug, Serialize)]
pub struct TablesReport {
    /// Rows of a step.
    pub rows: u32,
    /// The fused step.
    pub steps: Vec<StepCost>,
    /// Device time to upload the table of each layer and convert it.
    pub whole_tables_us: f64,
    /// Device time to upload one table and convert it for each layer.
    pub shared_table_us: f64,
    /// Layers of both.
    pub layers: u32,
}

pub fn run(allocations: impl Fn() -> u64) -> Result<TablesReport, DeviceBenchError> {
    let mut steps = Vec::new();
    for max_seq_len in [1 << 20, 1 << 15] {
        steps.push(decode(max_seq_len, &allocations)?);
    }
    let core = Core::new(&config(1 << 20))?;
    let mut device = CudaDevice::new(core.geometry())?;
    let mut tables = device.whole_tables(ROWS * core.geometry().columns, LAYERS)?;
    let mut time = |layers| -> Result<f64, DeviceBenchError> {
        let mut times = Vec::new();
        for _ in 0..20 {
            times.push(device.elapsed_us(|device| device.upload_whole(&mut tables, layers))?);
        }
        Ok(percentile(&mut times, 0.5))
    };
    let (whole_tables_us, shared_table_us) = (time(LAYERS)?, time(1)?);
    Ok(TablesReport { rows: ROWS, steps, whole_tables_us, shared_table_us, layers: LAYERS })
}

fn config(max_seq_len: u32) -> Config {
    let mut config = Config { max_batch: ROWS, max_seq_len, ..Config::m3() };
    for group in &mut config.groups {
        group.pages = Some(ROWS * (3 * CONTEXT_TOKENS).div_ceil(config.page_tokens) + 256);
    }
    config
}

fn decode(max_seq_len: u32, allocations: impl Fn() -> u64) -> Result<StepCost, DeviceBenchError> {
    let mut decoding = Decoding::new(max_seq_len)?;
    let mut device = CudaDevice::new(decoding.core.geometry())?;
    let mut times = Vec::with_capacity(STEPS as usize);
    let mut device_times = Vec::with_capacity(TIMED_STEPS as usize);
    let (mut deltas, mut allocated) = (0, 0);
    for step in 0..STEPS + 100 {
        decoding.plan();
        let list = decoding.core.plan().launches();
        let before = allocations();
        let start = Instant::now();
        device.submit(list)?;
        let time = start.elapsed();
        if step >= 100 {
            allocated += allocations() - before;
            times.push(time.as_nanos() as f64);
            deltas += list.deltas().len();
        }
        // As in a real step, the device is through long before the next one.
        device.synchronize()?;
        if step >= 100 && step % (STEPS / TIMED_STEPS) == 0 {
            let replayed = device.elapsed_us(|device| device.replay(REPLAYS))?;
            device_times.push(replayed / f64::from(REPLAYS));
        }
        decoding.complete();
    }
    Ok(StepCost {
        max_seq_len,
        mean_deltas: deltas as f64 / f64::from(STEPS),
        submit_ns_p50: percentile(&mut times, 0.5),
        submit_ns_p99: percentile(&mut times, 0.99),
        allocations_per_submit: allocated as f64 / f64::from(STEPS),
        device_us_p50: percentile(&mut device_times, 0.5),
        device_us_p99: percentile(&mut device_times, 0.99),
    })
}

/// A core with every row decoding.
struct Decoding {
    core: Core,
    outcome: Outcome,
    tokens: Vec<u32>,
    random: u64,
}

impl Decoding {
    fn new(max_seq_len: u32) -> Result<Self, DeviceBenchError> {
        let config = config(max_seq_len);
        let core = Core::new(&config)?;
        for request in 0..ROWS {
            // Lengths differ so that rows cross pages in different steps, tokens so that none is
            // shared.
            let prompt = (0..CONTEXT_TOKENS - request * 37 % 128).map(|t| t ^ request << 20);
            let request = NewRequest::new(u64::from(request), prompt.collect(), max_seq_len);
            core.inbox().submit(request).map_err(|e| DeviceBenchError::Run(e.to_string()))?;
        }
        let most = core.geometry().lookahead.step_tokens();
        let tokens = (0..ROWS * most).collect();
        let mut decoding = Self { core, outcome: Outcome::default(), tokens, random: 42 };
        while decoding.core.stats().decode_rows < u64::from(ROWS) * 2 {
            decoding.plan();
            decoding.complete();
        }
        Ok(decoding)
    }

    fn plan(&mut self) {
        self.core.step().expect("no step is in flight");
    }

    /// Answers the last plan: each row emits one to all of its tokens.
    fn complete(&mut self) {
        self.outcome.begin(self.core.plan().step());
        for row in self.core.plan().rows() {
            let (least, most) = row.emits();
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let drawn = least + (self.random >> 33) as u32 % (most - least + 1);
            self.outcome.push_row(&self.tokens[..drawn as usize]);
        }
        self.core.complete(&self.outcome).expect("the outcome fits the step");
    }
}

impl fmt::Display for TablesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(
                f,
                "step of {} rows, tables of {} tokens: submit {:.2} us (p99 {:.2}), device {:.2} us \
                 (p99 {:.2}), {} allocations, {:.1} deltas",
                self.rows,
                step.max_seq_len,
                step.submit_ns_p50 / 1000.0,
                step.submit_ns_p99 / 1000.0,
                step.device_us_p50,
                step.device_us_p99,
                step.allocations_per_submit,
                step.mean_deltas
            )?;
        }
        writeln!(
            f,
            "whole tables of {} layers instead: upload and convert {:.0} us; one table for all \
             layers {:.0} us",
            self.layers, self.whole_tables_us, self.shared_table_us
        )
    }
}
