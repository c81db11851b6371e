//! Whether the device leaves the bytes that the host device leaves: tables, rows, pools, staging and
//! tag verdicts, after random launch lists and after whole runs of a core.

use super::DeviceBenchError;
use super::random;
use crate::engine::{Accept, Engine, Forced, StepTime};
use crate::kernels::cuda::CudaDevice;
use crate::kernels::{HostDevice, LaunchList, PieceCopy};
use crate::workload::rng::Rng;
use crate::{Config, Core, Geometry, Outcome};
use serde::Serialize;
use std::collections::VecDeque;

/// What was compared; a difference is an error.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Random launch lists.
    pub random_steps: u64,
    /// Lists of pieces packed and unpacked.
    pub piece_lists: u64,
    /// Tag lists.
    pub tag_lists: u64,
    /// Runs of a core.
    pub runs: u64,
    /// Their steps.
    pub run_steps: u64,
    /// Page copies among those.
    pub run_copies: u64,
}

pub fn run(seed: u64) -> Result<CheckReport, DeviceBenchError> {
    let mut report = CheckReport::default();
    let mut rng = Rng(seed);
    for (page_tokens, buffers) in random::page_shapes() {
        let what = format!("random lists, pages of {page_tokens} tokens of {buffers:?} bytes");
        let geometry = Geometry::new(&random::config(page_tokens, buffers))?;
        let mut both = Both::with_pages(&geometry, what, &mut rng)?;
        report.random_steps += both.random_steps(&geometry, &mut rng)?;
        report.piece_lists += both.piece_lists(&mut rng)?;
    }
    report.tag_lists = tags(&mut rng)?;
    for overlap_depth in [0, 1] {
        for (config, requests, has_pages) in run_configs() {
            let config = Config { overlap_depth, ..config };
            let (steps, copies) = serve(&config, requests, has_pages, &mut rng)?;
            report.run_steps += steps;
            report.run_copies += copies;
            report.runs += 1;
        }
    }
    Ok(report)
}

/// Geometries for whole runs, requests to serve, and whether pages are small enough to compare.
fn run_configs() -> Vec<(Config, u32, bool)> {
    let with_pages = |mut config: Config, pages: &[u32]| {
        let groups = config.groups.iter_mut().zip(pages);
        groups.for_each(|(group, pages)| group.pages = Some(*pages));
        config
    };
    vec![
        (Config::small(4, &[None, Some(8)], 200), 80, true),
        (with_pages(Config::pair(), &[500, 400]), 60, true),
        (with_pages(Config::m3(), &[4000, 4000]), 80, false),
    ]
}

/// The two devices.
struct Both {
    host: HostDevice,
    cuda: CudaDevice,
    what: String,
    pools: Vec<(u32, usize)>,
}

impl Both {
    fn new(geometry: &Geometry, what: String) -> Result<Self, DeviceBenchError> {
        let (host, cuda) = (HostDevice::new(geometry), CudaDevice::new(geometry)?);
        Ok(Self { host, cuda, what, pools: Vec::new() })
    }

    /// With the memory of all pages, filled.
    fn with_pages(
        geometry: &Geometry,
        what: String,
        rng: &mut Rng,
    ) -> Result<Self, DeviceBenchError> {
        let (host, cuda) = (HostDevice::with_pages(geometry), CudaDevice::with_pages(geometry)?);
        let pools = (0..).zip(&geometry.groups);
        let pools = pools.flat_map(|(group, g)| (0..g.pools.len()).map(move |pool| (group, pool)));
        let mut both = Self { host, cuda, what, pools: pools.collect() };
        for &(group, pool) in &both.pools {
            let words = both.host.pool_mut(group, pool);
            words.iter_mut().for_each(|word| *word = rng.next_u64() as u32);
            both.cuda.write_pool(group, pool, words)?;
        }
        Ok(both)
    }

    fn with_tags(geometry: &Geometry) -> Result<Self, DeviceBenchError> {
        let (host, cuda) = (HostDevice::with_tags(geometry), CudaDevice::with_tags(geometry)?);
        Ok(Self { host, cuda, what: "tag lists".to_owned(), pools: Vec::new() })
    }

    fn submit(&mut self, list: &LaunchList) -> Result<(), DeviceBenchError> {
        self.host.submit(list);
        Ok(self.cuda.submit(list)?)
    }

    fn differ(&self, at: String) -> DeviceBenchError {
        DeviceBenchError::Differ { what: self.what.clone(), at }
    }

    fn same(&self, name: &str, host: &[u32], cuda: &[u32]) -> Result<(), DeviceBenchError> {
        if host.len() > cuda.len() {
            let (host, cuda) = (host.len(), cuda.len());
            return Err(self.differ(format!("{name}: {host} words on the host, {cuda} on it")));
        }
        match host.iter().zip(cuda).position(|(host, cuda)| host != cuda) {
            None => Ok(()),
            Some(word) => {
                let (host, cuda) = (host[word], cuda[word]);
                Err(self.differ(format!("{name} word {word}: host {host:#x}, device {cuda:#x}")))
            }
        }
    }

    fn compare(&self) -> Result<(), DeviceBenchError> {
        self.same("tables", self.host.tables(), &self.cuda.tables()?)?;
        for (row, cuda) in (0..).zip(self.cuda.rows()?) {
            let host = self.host.row(row);
            if *host != cuda {
                return Err(self.differ(format!("row {row}: host {host:?}, device {cuda:?}")));
            }
        }
        for &(group, pool) in &self.pools {
            let name = format!("group {group} pool {pool}");
            self.same(&name, self.host.pool(group, pool), &self.cuda.pool(group, pool)?)?;
        }
        Ok(())
    }

    /// Random lists, several in flight together.
    fn random_steps(
        &mut self,
        geometry: &Geometry,
        rng: &mut Rng,
    ) -> Result<u64, DeviceBenchError> {
        const STEPS: u64 = 96;
        let mut list = LaunchList::new(geometry);
        for step in 1..=STEPS {
            random::fill(&mut list, geometry, step, rng);
            self.submit(&list)?;
            if rng.below(8) == 0 {
                self.compare()?;
            }
        }
        self.compare()?;
        Ok(STEPS)
    }

    /// Random pieces of each pool are packed; other bytes are unpacked to where they were.
    fn piece_lists(&mut self, rng: &mut Rng) -> Result<u64, DeviceBenchError> {
        let mut lists = 0;
        for (group, pool) in self.pools.clone() {
            for unit in [1, 4, 16, 16] {
                let pool_bytes = size_of_val(self.host.pool(group, pool)) as u64;
                let (pieces, packed_bytes) = random::pieces(pool_bytes, unit, rng);
                let mut packed = vec![0; packed_bytes.div_ceil(4) as usize];
                let mut staging = self.cuda.staging(packed_bytes + 4, pieces.len())?;
                self.host.gather(group, pool, &pieces, &mut packed);
                staging.set(&pieces)?;
                self.cuda.gather(group, pool, &mut staging)?;
                self.same("staging", &packed, &self.cuda.read_staging(&staging)?)?;

                packed.iter_mut().for_each(|word| *word = rng.next_u64() as u32);
                self.cuda.write_staging(&mut staging, &packed)?;
                let back: Vec<PieceCopy> = pieces.iter().map(PieceCopy::back).collect();
                self.host.scatter(group, pool, &back, &packed);
                staging.set(&back)?;
                self.cuda.scatter(group, pool, &staging)?;
                lists += 2;
            }
        }
        self.compare()?;
        Ok(lists)
    }
}

/// Tags are written, copied with their pages and checked, right and wrong.
fn tags(rng: &mut Rng) -> Result<u64, DeviceBenchError> {
    const ROUNDS: u64 = 24;
    let geometry = Geometry::new(&Config::small(4, &[None, Some(24)], 120))?;
    let mut both = Both::with_tags(&geometry)?;
    let mut tags = random::Tags::new(&geometry);
    let mut list = LaunchList::new(&geometry);
    tags.back_rows(&mut list);
    both.submit(&list)?;
    for round in 0..ROUNDS {
        for tag_list in [tags.writes(rng), tags.checks(rng)] {
            let (host, cuda) = (both.host.run_tags(&tag_list), both.cuda.run_tags(&tag_list)?);
            if host != cuda {
                return Err(both.differ(format!("verdicts: host {host:?}, device {cuda:?}")));
            }
        }
        tags.copies(&mut list, round + 2, rng);
        both.submit(&list)?;
        for group in 0..geometry.groups.len() as u32 {
            let host = bytemuck::cast_slice(both.host.tags(group));
            both.same(&format!("tags of group {group}"), host, &both.cuda.pool(group, 0)?)?;
        }
    }
    Ok(2 * ROUNDS)
}

/// Serves random requests, with every plan run on both devices; steps and page copies.
fn serve(
    config: &Config,
    requests: u32,
    has_pages: bool,
    rng: &mut Rng,
) -> Result<(u64, u64), DeviceBenchError> {
    const MOST_STEPS: u64 = 100_000;
    let failed = |error: &dyn std::fmt::Display| DeviceBenchError::Run(error.to_string());
    let mut core = Core::new(config)?;
    let what = format!("run of {} at overlap depth {}", config.name, config.overlap_depth);
    let geometry = core.geometry().clone();
    let mut both = match has_pages {
        true => Both::with_pages(&geometry, what, rng)?,
        false => Both::new(&geometry, what)?,
    };
    let accept = Accept::Uniform(1, 8);
    let mut engine = Forced::new(accept, StepTime::default(), 1, 5000, config.max_batch);
    let mut in_flight: VecDeque<Outcome> = VecDeque::new();
    let (mut submitted, mut copies) = (0, 0);
    for step in 1..=MOST_STEPS {
        while submitted < requests && rng.below(3) == 0 {
            let request = random::request(submitted, config, rng);
            core.inbox().submit(request).map_err(|error| failed(&error))?;
            submitted += 1;
        }
        let plan = core.step().map_err(|error| failed(&error))?;
        both.submit(plan.launches())?;
        copies += plan.launches().copies().len() as u64;
        let has_rows = !plan.rows().is_empty();
        if has_rows {
            let mut outcome = Outcome::default();
            outcome.begin(plan.step());
            engine.run(plan, &mut outcome).map_err(|error| failed(&error))?;
            in_flight.push_back(outcome);
        }
        let depth = if has_rows { config.overlap_depth as usize } else { 0 };
        if in_flight.len() > depth {
            let outcome = in_flight.pop_front().expect("just counted");
            core.complete(&outcome).map_err(|error| failed(&error))?;
        } else if submitted == requests && core.is_idle() {
            both.compare()?;
            return Ok((step, copies));
        }
        if step % 16 == 0 {
            both.compare()?;
        }
    }
    Err(DeviceBenchError::Run(format!("{}: no end after {MOST_STEPS} steps", both.what)))
}
