//! The report of a run: figures for people and for machines, from one place.

use crate::run::{Account, Served};
use crate::{Core, DraftWindow, Geometry};
use serde::Serialize;
use std::fmt;

/// Figures of a run. Times are the engine's own, in nanoseconds, but for the host's.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests submitted.
    pub requests: u64,
    /// Requests that ran to their end.
    pub finished: u64,
    /// Requests refused or cancelled.
    pub failed: u64,
    /// Prompt tokens submitted.
    pub prompt_tokens: u64,
    /// Prompt tokens computed, recomputation included.
    pub computed_tokens: u64,
    /// Prompt tokens claimed from the prefix index, at first admission.
    pub reused_tokens: u64,
    /// Their share of the prompt tokens.
    pub reuse_ratio: f64,
    /// Admissions whose drafter window came along.
    pub draft_window_selected: u64,
    /// Admissions whose claim was cut for the drafter's window.
    pub draft_window_capped: u64,
    /// Tokens those computed again.
    pub draft_window_recomputed: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Steps with rows.
    pub steps: u64,
    /// Mean rows of a step.
    pub mean_batch: f64,
    /// Mean tokens a decode row emitted, its bonus token included.
    pub accept_length: f64,
    /// Rows that lost their pages.
    pub preemptions: u64,
    /// Time to the first token.
    pub ttft_ns: Percentiles,
    /// Time per output token after the first.
    pub tpot_ns: Percentiles,
    /// Time the whole run took.
    pub engine_ns: u64,
    /// Host time of plan and complete, median of steps.
    pub host_ns_per_step_p50: u64,
    /// The same, 99th percentile.
    pub host_ns_per_step_p99: u64,
    /// What the launches cost, when they ran on a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceCost>,
    /// Pages by group.
    pub groups: Vec<GroupReport>,
    /// Broken invariants and wrong page contents; none when not verified.
    pub violations: Option<u64>,
    /// Digest of all plans: equal for equal runs.
    pub plan_digest: String,
}

/// What running each plan's launches on a device costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeviceCost {
    /// Host time of a submit, median.
    pub submit_ns_p50: u64,
    /// The same, 99th percentile.
    pub submit_ns_p99: u64,
    /// Device time of a submit, its launch included, median.
    pub device_ns_p50: u64,
    /// The same, 99th percentile.
    pub device_ns_p99: u64,
    /// Share of a step of 20 ms that plan, submit and launches take, by their medians.
    pub share_of_20_ms_step: f64,
}

/// Median and tails.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
}

/// Pages of one group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupReport {
    /// Name.
    pub name: String,
    /// Pages requests can hold.
    pub pages: u32,
    /// Most held at once.
    pub peak_pages: u32,
    /// Pages claimed as they are.
    pub claimed_pages: u64,
    /// Partial pages claimed by copy.
    pub copied_pages: u64,
    /// Pages made findable.
    pub published_pages: u64,
    /// Cached pages taken for other content.
    pub evicted_pages: u64,
}

/// One line of `--requests-out`.
#[derive(Clone, Debug, Serialize)]
pub struct RequestLine<'a> {
    id: u64,
    prompt_tokens: u32,
    computed_tokens: u64,
    output_tokens: u32,
    matched_tokens: u32,
    claimed_tokens: u32,
    draft_window: DraftWindow,
    accept_length: f64,
    preemptions: u32,
    ttft_ns: Option<u64>,
    outcome: &'a str,
}

impl<'a> From<&'a Account> for RequestLine<'a> {
    fn from(account: &'a Account) -> Self {
        Self {
            id: account.id,
            prompt_tokens: account.prompt_tokens,
            computed_tokens: account.computed_tokens,
            output_tokens: account.output_tokens,
            matched_tokens: account.matched_tokens,
            claimed_tokens: account.claimed_tokens,
            draft_window: account.draft_window,
            accept_length: account.accept_length(),
            preemptions: account.preemptions,
            ttft_ns: account.first_ns.map(|first| first - account.arrival_ns),
            outcome: &account.outcome,
        }
    }
}

impl Report {
    /// The figures of what `core` served.
    pub fn new(served: &Served, core: &mut Core, violations: Option<u64>) -> Self {
        let stats = *core.stats();
        let accounts = &served.accounts;
        let finished = accounts.iter().filter(|a| a.outcome == "finished");
        let ttft = accounts.iter().filter_map(|a| Some(a.first_ns? - a.arrival_ns));
        let tpot = finished
            .clone()
            .filter(|a| a.output_tokens > 1)
            .filter_map(|a| Some((a.finish_ns - a.first_ns?) / u64::from(a.output_tokens - 1)));
        let finished = finished.count() as u64;
        let host = percentiles(served.host_ns.iter().copied());
        let steps = served.host_ns.len() as u64;
        let geometry = core.geometry().clone();
        let prompt_tokens = accounts.iter().map(|a| u64::from(a.prompt_tokens)).sum::<u64>();
        let reused_tokens = accounts.iter().map(|a| u64::from(a.claimed_tokens)).sum::<u64>();
        Self {
            requests: accounts.len() as u64,
            finished,
            failed: accounts.len() as u64 - finished,
            prompt_tokens,
            computed_tokens: stats.computed_tokens,
            reused_tokens,
            reuse_ratio: reused_tokens as f64 / prompt_tokens.max(1) as f64,
            draft_window_selected: stats.draft_window_selected,
            draft_window_capped: stats.draft_window_capped,
            draft_window_recomputed: stats.draft_window_recomputed,
            output_tokens: stats.output_tokens,
            steps,
            mean_batch: stats.rows as f64 / steps.max(1) as f64,
            accept_length: stats.decode_tokens as f64 / stats.decode_rows.max(1) as f64,
            preemptions: stats.preemptions,
            ttft_ns: percentiles(ttft),
            tpot_ns: percentiles(tpot),
            engine_ns: served.engine_ns,
            host_ns_per_step_p50: host.p50,
            host_ns_per_step_p99: host.p99,
            device: None,
            groups: groups(&geometry, core),
            violations,
            plan_digest: format!("{:032x}", served.digest),
        }
    }
}

fn groups(geometry: &Geometry, core: &mut Core) -> Vec<GroupReport> {
    let counts = core.pages();
    let groups = geometry.groups.iter().zip(counts);
    groups
        .map(|(group, count)| GroupReport {
            name: group.name.clone(),
            pages: group.pages,
            peak_pages: count.peak_held,
            claimed_pages: count.claimed_pages,
            copied_pages: count.copied_pages,
            published_pages: count.published_pages,
            evicted_pages: count.evicted_pages,
        })
        .collect()
}

pub(crate) fn percentiles(values: impl Iterator<Item = u64>) -> Percentiles {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let at = |percent: usize| {
        let rank = (values.len() * percent).div_ceil(100).max(1) - 1;
        values.get(rank).copied().unwrap_or(0)
    };
    Percentiles { p50: at(50), p90: at(90), p99: at(99) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "  {name:<26}{value}");
        row("requests", format!("{}", self.requests))?;
        row("finished / failed", format!("{} / {}", self.finished, self.failed))?;
        row("prompt tokens", thousands(self.prompt_tokens))?;
        row("computed tokens", thousands(self.computed_tokens))?;
        row(
            "reused prompt tokens",
            format!("{} ({:.1} %)", thousands(self.reused_tokens), self.reuse_ratio * 100.0),
        )?;
        row(
            "drafter window",
            format!(
                "{} selected, {} capped, {} tokens recomputed",
                self.draft_window_selected,
                self.draft_window_capped,
                thousands(self.draft_window_recomputed)
            ),
        )?;
        row("output tokens", thousands(self.output_tokens))?;
        row("steps", thousands(self.steps))?;
        row("mean batch", format!("{:.1} rows", self.mean_batch))?;
        row("acceptance length", format!("{:.2}", self.accept_length))?;
        row("preemptions", thousands(self.preemptions))?;
        row("engine time", format!("{:.1} s", self.engine_ns as f64 / 1e9))?;
        row("time to first token", milliseconds(&self.ttft_ns))?;
        row("time per output token", milliseconds(&self.tpot_ns))?;
        let (p50, p99) = (self.host_ns_per_step_p50, self.host_ns_per_step_p99);
        row(
            "host time per step",
            format!("p50 {:.1} µs, p99 {:.1} µs", p50 as f64 / 1e3, p99 as f64 / 1e3),
        )?;
        if let Some(device) = &self.device {
            row(
                "launches per step",
                format!(
                    "submit p50 {:.1} µs, p99 {:.1} µs; device p50 {:.1} µs, p99 {:.1} µs",
                    device.submit_ns_p50 as f64 / 1e3,
                    device.submit_ns_p99 as f64 / 1e3,
                    device.device_ns_p50 as f64 / 1e3,
                    device.device_ns_p99 as f64 / 1e3
                ),
            )?;
            let percent = device.share_of_20_ms_step * 100.0;
            row("core's share of 20 ms", format!("{percent:.3} %"))?;
        }
        for group in &self.groups {
            let share = f64::from(group.peak_pages) * 100.0 / f64::from(group.pages);
            row(
                &format!("peak pages, {}", group.name),
                format!("{} of {} ({share:.0} %)", group.peak_pages, group.pages),
            )?;
        }
        if let Some(violations) = self.violations {
            row("violations", thousands(violations))?;
        }
        row("plan digest", self.plan_digest.clone())
    }
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|chunk| std::str::from_utf8(chunk).unwrap_or_default())
        .collect();
    groups.join(",")
}

fn milliseconds(times: &Percentiles) -> String {
    let [p50, p90, p99] = [times.p50, times.p90, times.p99].map(|ns| ns as f64 / 1e6);
    format!("p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let p = percentiles(1..=200);
        assert_eq!((p.p50, p.p90, p.p99), (100, 180, 198));
        assert_eq!(percentiles(std::iter::empty()).p99, 0);
    }

    #[test]
    fn digits_come_in_groups_of_three() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
