//! The verifier: follows a run on the host device with content tags and names every wrong page,
//! stale row, missing slot and foreign write.
//!
//! It plays the kernels of a step through the device's block tables: target keys and values at
//! every position computed, drafter context at every position that became final, drafter scratch
//! behind it. What a position must hold is known from the tokens alone. Rejected drafts and scratch
//! write tags that nothing may read.

#[cfg(feature = "cuda")]
mod device_tags;

use crate::{Geometry, NewRequest, Outcome, Owner, Plan};
use paceline_components::NO_SLOT;
use paceline_kernels::tags::{SCRATCH, extend_prefix, tag};
use paceline_kernels::{
    FLAG_BOUND, FLAG_DUMMY, FLAG_LAST_CHUNK, FLAG_PREFILL, FLAG_SEED, HostDevice, RowMeta,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Most violations kept as text; all are counted.
const KEPT: usize = 20;

/// Checks a run.
pub struct Verifier {
    geometry: Arc<Geometry>,
    device: HostDevice,
    /// Prefix hash after each known token, by request.
    prefixes: HashMap<u64, Vec<u64>>,
    /// Positions final on the device, by batch row.
    lengths: Vec<u32>,
    /// Context length of each drafter slot on the device.
    contexts: Vec<u32>,
    /// Batch rows that went without a drafter slot for a step: they may lack context.
    slotless: Vec<bool>,
    /// Ended requests and the step that said so: steps in flight may still name them.
    ended: VecDeque<(u64, u64)>,
    violations: Vec<String>,
    count: u64,
    #[cfg(feature = "cuda")]
    device_tags: Option<device_tags::DeviceTags>,
}

impl Verifier {
    /// A verifier with empty pages.
    #[must_use]
    pub fn new(geometry: Arc<Geometry>) -> Self {
        Self {
            device: HostDevice::with_tags(&geometry),
            prefixes: HashMap::new(),
            lengths: vec![0; geometry.config.max_batch as usize + 1],
            contexts: vec![0; geometry.drafter_slots() as usize],
            slotless: vec![false; geometry.config.max_batch as usize],
            ended: VecDeque::new(),
            violations: Vec::new(),
            count: 0,
            #[cfg(feature = "cuda")]
            device_tags: None,
            geometry,
        }
    }

    /// Follows every access on the CUDA device too.
    ///
    /// # Errors
    /// When there is no device.
    #[cfg(feature = "cuda")]
    pub fn on_cuda(mut self) -> Result<Self, paceline_kernels::cuda::CudaError> {
        self.device_tags = Some(device_tags::DeviceTags::new(&self.geometry)?);
        Ok(self)
    }

    /// What was found, and how often in all.
    #[must_use]
    pub fn violations(&self) -> (&[String], u64) {
        (&self.violations, self.count)
    }

    /// The device it runs on.
    #[must_use]
    pub fn device(&self) -> &HostDevice {
        &self.device
    }

    /// Adds a violation found elsewhere.
    pub fn report(&mut self, violation: String) {
        self.count += 1;
        if self.violations.len() < KEPT {
            self.violations.push(violation);
        }
    }

    /// Learns the tokens of a request before its first step.
    pub fn submit(&mut self, request: &NewRequest) {
        let mut prefix = 0;
        let chain = request.prompt.iter().map(|token| {
            prefix = extend_prefix(prefix, *token);
            prefix
        });
        self.prefixes.insert(request.id, chain.collect());
    }

    /// Runs a planned step with its outcome.
    pub fn step(&mut self, plan: Plan<'_>, outcome: &Outcome) {
        self.device.submit(plan.launches());
        self.forget(plan);
        let mut tokens = outcome.tokens.as_slice();
        for (row, &count) in plan.rows().iter().zip(&outcome.counts) {
            let (emitted, rest) = tokens.split_at(count as usize);
            tokens = rest;
            #[cfg(feature = "cuda")]
            self.device_tags.iter_mut().for_each(device_tags::DeviceTags::begin_row);
            if let Err(what) = self.run_row(plan, row, emitted) {
                self.report(format!("step {} request {}: {what}", plan.step(), row.request()));
            }
        }
        #[cfg(feature = "cuda")]
        if let Some(tags) = &mut self.device_tags {
            for what in tags.step(plan.launches()) {
                self.report(format!("step {}: {what}", plan.step()));
            }
        }
    }

    fn forget(&mut self, plan: Plan<'_>) {
        let step = plan.step();
        for event in plan.events() {
            if let crate::Event::Finished { request, .. } = event {
                self.ended.push_back((step, *request));
            }
        }
        while let Some((ended, request)) = self.ended.front().copied()
            && ended + 2 < step
        {
            self.ended.pop_front();
            self.prefixes.remove(&request);
        }
    }

    fn run_row(&mut self, plan: Plan<'_>, row: &RowMeta, emitted: &[u32]) -> Result<(), String> {
        if row.has(FLAG_DUMMY) {
            return self.run_dummy(row);
        }
        let mut prefixes = self
            .prefixes
            .remove(&row.request())
            .ok_or_else(|| "a row runs for a request that is not live".to_owned())?;
        let result = self.run_live(plan, row, emitted, &mut prefixes);
        self.prefixes.insert(row.request(), prefixes);
        result
    }

    /// A dummy row writes to its own pages and reads nothing that matters.
    fn run_dummy(&mut self, row: &RowMeta) -> Result<(), String> {
        if row.slot != self.geometry.drafter_slots() {
            return Err(format!("a dummy row has drafter slot {}", row.slot));
        }
        let width = row.tokens + self.geometry.lookahead.extra_tokens;
        self.write(row.row, 0..width, |_| None, |_| true)
    }

    fn run_live(
        &mut self,
        plan: Plan<'_>,
        row: &RowMeta,
        emitted: &[u32],
        prefixes: &mut Vec<u64>,
    ) -> Result<(), String> {
        if row.has(FLAG_BOUND) {
            self.lengths[row.row as usize] = row.start;
            self.slotless[row.row as usize] = false;
        }
        let start = self.lengths[row.row as usize];
        if start < row.start || start > row.start_bound {
            return Err(format!("starts at {start}, outside {}..={}", row.start, row.start_bound));
        }
        if row.has(FLAG_PREFILL) {
            let mut prefix = if start == 0 { 0 } else { prefixes[start as usize - 1] };
            for (token, known) in plan.inputs(row).iter().zip(&prefixes[start as usize..]) {
                prefix = extend_prefix(prefix, *token);
                if prefix != *known {
                    return Err("computes other tokens than its own".to_owned());
                }
            }
        }
        let mut prefix = prefixes.last().copied().unwrap_or(0);
        for token in emitted {
            prefix = extend_prefix(prefix, *token);
            prefixes.push(prefix);
        }
        self.target(row, start, prefixes, emitted.len() as u32)?;
        let end =
            if row.has(FLAG_PREFILL) { start + row.tokens } else { start + emitted.len() as u32 };
        self.lengths[row.row as usize] = end;
        self.drafter(row, start, end, prefixes)
    }

    /// The target reads its window and writes every position it computes; rejected drafts leave
    /// scratch.
    fn target(
        &mut self,
        row: &RowMeta,
        start: u32,
        prefixes: &[u64],
        emitted: u32,
    ) -> Result<(), String> {
        self.read(row.row, 0..start, Owner::Target, prefixes)?;
        let valid = if row.has(FLAG_PREFILL) { row.tokens } else { emitted };
        let content =
            |position: u32| (position < start + valid).then(|| prefixes[position as usize]);
        self.write(row.row, start..start + row.tokens, content, |owner| owner == Owner::Target)
    }

    /// The drafter stores context for what became final, then reads its window and writes its
    /// block behind the context. A row without a slot does neither.
    fn drafter(
        &mut self,
        row: &RowMeta,
        start: u32,
        end: u32,
        prefixes: &[u64],
    ) -> Result<(), String> {
        if row.slot == NO_SLOT {
            self.slotless[row.row as usize] = true;
            return Ok(());
        }
        let context_tokens = &mut self.contexts[row.slot as usize];
        if row.has(FLAG_SEED) {
            *context_tokens = start;
        }
        if *context_tokens != start {
            return Err(format!(
                "drafter slot {} has {context_tokens} context tokens at position {start}",
                row.slot
            ));
        }
        *context_tokens = end;
        let is_draft = |owner| owner == Owner::Draft;
        let context = |position: u32| Some(prefixes[position as usize]);
        self.write(row.row, start..end, context, is_draft)?;
        if row.has(FLAG_PREFILL) && !row.has(FLAG_LAST_CHUNK) {
            return Ok(());
        }
        for group in self.geometry.groups.iter().filter(|g| g.owner == Owner::Draft) {
            let window = group.retention.window_tokens.unwrap_or(u32::MAX);
            let is_short = row.context_first > (end + 1).saturating_sub(window);
            if is_short && !self.slotless[row.row as usize] {
                return Err(format!(
                    "the drafter is starved: context from {} at {end} in group `{}`",
                    row.context_first, group.name
                ));
            }
        }
        self.read(row.row, row.context_first..end, Owner::Draft, prefixes)?;
        self.write(row.row, end..end + self.geometry.block_width, |_| None, is_draft)
    }

    /// Reads what a query at the end of `range` sees of it, in every group of `owner`.
    fn read(
        &mut self,
        row: u32,
        range: std::ops::Range<u32>,
        owner: Owner,
        prefixes: &[u64],
    ) -> Result<(), String> {
        for (group, geometry) in self.geometry.groups.iter().enumerate() {
            if geometry.owner != owner {
                continue;
            }
            let group = group as u32;
            let page = geometry.retention.page_tokens;
            let window = geometry.retention.window_tokens.unwrap_or(u32::MAX);
            let first = (range.end + 1).saturating_sub(window);
            let sinks = (geometry.retention.sink_pages * page).min(first);
            for run in [range.start..sinks, first.max(range.start)..range.end] {
                #[cfg(feature = "cuda")]
                if let Some(tags) = &mut self.device_tags {
                    tags.check((group, row), run.clone(), prefixes);
                }
                let expected = |p: u32| prefixes.get(p as usize).map_or(0, |h| tag(group, *h, p));
                self.device
                    .check_tags(group, row, run, expected)
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Writes `positions`, each the content of a prefix hash or scratch.
    fn write(
        &mut self,
        row: u32,
        positions: std::ops::Range<u32>,
        content: impl Fn(u32) -> Option<u64>,
        is_written: impl Fn(Owner) -> bool,
    ) -> Result<(), String> {
        for group in 0..self.geometry.groups.len() {
            if !is_written(self.geometry.groups[group].owner) {
                continue;
            }
            let group = group as u32;
            #[cfg(feature = "cuda")]
            if let Some(tags) = &mut self.device_tags {
                tags.write((group, row), positions.clone(), &content);
            }
            for position in positions.clone() {
                let tag = content(position).map_or(SCRATCH, |prefix| tag(group, prefix, position));
                self.device
                    .write_tag(group, row, position, tag)
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}
