//! Copies of pages and pieces, each beside a plain copy of as many bytes in the same run.

use super::{DeviceBenchError, percentile};
use crate::kernels::cuda::{CudaDevice, Staging};
use crate::kernels::{LaunchList, PageCopy, PieceCopy};
use crate::workload::rng::Rng;
use crate::{BufferSpec, Config, Geometry};
use serde::Serialize;
use std::fmt;

/// Bytes copied by each measurement: several times the cache.
const BYTES: u64 = 960 << 20;
const PAGE_TOKENS: u32 = 128;
/// Groups of the page copies: a list has a copy for each group and row.
const GROUPS: u32 = 8;
/// Bytes of a token in a buffer of a target layer: 8 heads of 128.
const TOKEN_BYTES: u32 = 1024;

/// One kind of copy.
#[derive(Clone, Debug, Serialize)]
pub struct CopyReport {
    /// `pages`, `gather`, `scatter`, `gather_heads`, `scatter_heads`.
    pub kind: &'static str,
    /// Bytes of a piece, of a head slice's run.
    pub piece_bytes: u32,
    /// Bytes copied.
    pub bytes: u64,
    /// Device time, median.
    pub us: f64,
    /// Device time of the driver's own copy of as many bytes, median.
    pub plain_us: f64,
    /// Share of the plain copy's speed.
    pub ratio: f64,
}

pub fn run(seed: u64) -> Result<Vec<CopyReport>, DeviceBenchError> {
    let mut rng = Rng(seed);
    let noise: Vec<u32> = (0..BYTES / 4).map(|_| rng.next_u64() as u32).collect();
    let mut reports = Vec::new();
    for piece_bytes in [256 << 10, 32 << 10, 4 << 10, 2 << 10] {
        reports.push(pages(piece_bytes, &noise, &mut rng)?);
    }
    let mut bench = Pieces::new(&noise)?;
    for piece_bytes in [256 << 10, 32 << 10, 4 << 10, 2 << 10] {
        reports.extend(bench.scattered(piece_bytes, &mut rng)?);
    }
    for heads in [4, 2, 1] {
        reports.extend(bench.heads(TOKEN_BYTES / 8 * heads)?);
    }
    Ok(reports)
}

/// A few repetitions in one measurement, so that its ends do not count.
const REPEATS: u32 = 5;

fn time(
    device: &mut CudaDevice,
    mut work: impl FnMut(&mut CudaDevice) -> Result<(), crate::kernels::cuda::CudaError>,
) -> Result<f64, DeviceBenchError> {
    let mut times = Vec::new();
    for _ in 0..12 {
        let us = device.elapsed_us(|device| (0..REPEATS).try_for_each(|_| work(device)))?;
        times.push(us / f64::from(REPEATS));
    }
    // The first ones warm up.
    Ok(percentile(&mut times[2..], 0.5))
}

fn report(kind: &'static str, piece_bytes: u32, bytes: u64, us: f64, plain_us: f64) -> CopyReport {
    CopyReport { kind, piece_bytes, bytes, us, plain_us, ratio: plain_us / us }
}

/// Every page of the lower half of each group goes to a page of the upper half, in random order,
/// as one launch list.
fn pages(piece_bytes: u32, noise: &[u32], rng: &mut Rng) -> Result<CopyReport, DeviceBenchError> {
    let copies = (BYTES / u64::from(piece_bytes) / u64::from(GROUPS)) as u32;
    let mut config = Config::small(PAGE_TOKENS, &[None; GROUPS as usize], 2 * copies);
    config.max_batch = copies;
    config.max_seq_len = 2 * PAGE_TOKENS;
    for group in &mut config.groups {
        group.layers[0].buffers = vec![BufferSpec::new("key", piece_bytes / PAGE_TOKENS)];
    }
    let geometry = Geometry::new(&config)?;
    let mut device = CudaDevice::with_pages(&geometry)?;
    let mut list = LaunchList::new(&geometry);
    list.begin(1);
    for group in 0..GROUPS {
        device.write_pool(group, 0, &noise[..noise.len() / GROUPS as usize])?;
        for (from, to) in (1..).zip(shuffled(copies, rng)) {
            let to = copies + 1 + to;
            list.push_copy(PageCopy { group, from, to, tokens: PAGE_TOKENS });
        }
    }
    list.seal();
    device.submit(&list)?;
    let us = time(&mut device, |device| device.replay(1))?;
    let (mut from, mut to) = (device.staging(BYTES, 1)?, device.staging(BYTES, 1)?);
    device.write_staging(&mut from, noise)?;
    let plain_us = time(&mut device, |device| device.plain_copy(&from, &mut to, BYTES))?;
    Ok(report("pages", piece_bytes, BYTES, us, plain_us))
}

fn shuffled(count: u32, rng: &mut Rng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    order
}

/// One pool of `BYTES`, and two stagings of as many.
struct Pieces {
    device: CudaDevice,
    staging: Staging,
    spare: Staging,
}

impl Pieces {
    fn new(noise: &[u32]) -> Result<Self, DeviceBenchError> {
        let slot_bytes = PAGE_TOKENS * TOKEN_BYTES;
        // Guard page included.
        let pages = (BYTES / u64::from(slot_bytes)) as u32 - 1;
        let mut config = Config::small(PAGE_TOKENS, &[None], pages);
        config.groups[0].layers[0].buffers = vec![BufferSpec::new("key", TOKEN_BYTES)];
        let mut device = CudaDevice::with_pages(&Geometry::new(&config)?)?;
        device.write_pool(0, 0, noise)?;
        let staging = device.staging(BYTES, (BYTES / 2048) as usize)?;
        let mut spare = device.staging(BYTES, 1)?;
        device.write_staging(&mut spare, noise)?;
        Ok(Self { device, staging, spare })
    }

    /// Every piece of the pool to a random place in staging, and back.
    fn scattered(
        &mut self,
        piece_bytes: u32,
        rng: &mut Rng,
    ) -> Result<[CopyReport; 2], DeviceBenchError> {
        let bytes = u64::from(piece_bytes);
        let order = shuffled((BYTES / bytes) as u32, rng);
        let pieces = (0..).zip(order).map(|(from, to)| PieceCopy {
            from: from * bytes,
            to: u64::from(to) * bytes,
            bytes: piece_bytes,
            runs: 1,
            ..PieceCopy::default()
        });
        self.measure(["gather", "scatter"], piece_bytes, BYTES, &pieces.collect::<Vec<_>>())
    }

    /// A slice of the heads of each page, packed and unpacked.
    fn heads(&mut self, slice_bytes: u32) -> Result<[CopyReport; 2], DeviceBenchError> {
        let page_bytes = u64::from(PAGE_TOKENS * TOKEN_BYTES);
        let packed_bytes = u64::from(PAGE_TOKENS * slice_bytes);
        let pages = BYTES / page_bytes;
        let pieces = (0..pages).map(|page| PieceCopy {
            from: page * page_bytes,
            to: page * packed_bytes,
            bytes: slice_bytes,
            runs: PAGE_TOKENS,
            from_stride: TOKEN_BYTES,
            to_stride: slice_bytes,
        });
        let kinds = ["gather_heads", "scatter_heads"];
        self.measure(kinds, slice_bytes, pages * packed_bytes, &pieces.collect::<Vec<_>>())
    }

    fn measure(
        &mut self,
        [gather, scatter]: [&'static str; 2],
        piece_bytes: u32,
        bytes: u64,
        pieces: &[PieceCopy],
    ) -> Result<[CopyReport; 2], DeviceBenchError> {
        let (staging, spare) = (&mut self.staging, &self.spare);
        let plain_us = time(&mut self.device, |device| device.plain_copy(spare, staging, bytes))?;
        staging.set(pieces)?;
        let gather_us = time(&mut self.device, |device| device.gather(0, 0, staging))?;
        let back: Vec<PieceCopy> = pieces.iter().map(PieceCopy::back).collect();
        staging.set(&back)?;
        let scatter_us = time(&mut self.device, |device| device.scatter(0, 0, staging))?;
        Ok([
            report(gather, piece_bytes, bytes, gather_us, plain_us),
            report(scatter, piece_bytes, bytes, scatter_us, plain_us),
        ])
    }
}

impl fmt::Display for CopyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terabytes = 2.0 * self.bytes as f64 / self.us / 1e6;
        write!(
            f,
            "{:14} {:>7} B pieces: {:8.1} us, {:.2} TB/s read and written, {:.1} % of a plain copy",
            self.kind,
            self.piece_bytes,
            self.us,
            terabytes,
            self.ratio * 100.0
        )
    }
}
