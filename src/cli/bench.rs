//! `paceline bench`.

use clap::{Args, Subcommand, ValueEnum};
use paceline::bench::{PrefixBench, StepBench};
use std::process::ExitCode;

/// Parts that can be timed.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The steady decode step: plan and complete.
    #[command(
        after_help = "Example:\n  paceline bench step --requests 64 --context 131072 --page 128 \
        --groups full+window --k 7 --json"
    )]
    Step(Step),
    /// The prefix index: hash, insert, match, claim and evict one long prompt.
    #[command(after_help = "Example:\n  paceline bench prefix --context 131072 --page 128 --json")]
    Prefix(Prefix),
    /// The CUDA device: the same bytes as the host device, and what steps and copies cost. Ends
    /// with code 3 where there is no CUDA.
    #[command(after_help = "Examples:\n  paceline bench device --json\n  paceline bench device \
        --check-only\n  paceline bench device --part tables --part copies")]
    Device(super::bench_device::Device),
}

#[derive(Debug, Args)]
pub struct Prefix {
    /// Tokens of a prompt.
    #[arg(long, default_value_t = 131_072)]
    context: u32,
    /// Tokens in a page.
    #[arg(long, default_value_t = 128)]
    page: u32,
    /// Prompts timed.
    #[arg(long, default_value_t = 40)]
    rounds: u32,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Step {
    /// Requests that decode together.
    #[arg(long, default_value_t = 64)]
    requests: u32,
    /// Tokens of context each has.
    #[arg(long, default_value_t = 131_072)]
    context: u32,
    /// Tokens in a page.
    #[arg(long, default_value_t = 128)]
    page: u32,
    /// Lifecycle groups.
    #[arg(long, value_enum, default_value_t = Groups::FullWindow)]
    groups: Groups,
    /// Draft tokens a step.
    #[arg(long, default_value_t = 7)]
    k: u32,
    /// Pages of each group [default: what the run needs].
    #[arg(long)]
    pool_pages: Option<u32>,
    /// Longest sequence in tokens [default: what the run needs].
    #[arg(long)]
    max_seq_len: Option<u32>,
    /// Steps planned before an outcome is back.
    #[arg(long, default_value_t = 0)]
    overlap: u32,
    /// Steps timed.
    #[arg(long, default_value_t = 4000)]
    steps: u32,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Groups {
    #[value(name = "full")]
    Full,
    #[value(name = "full+window")]
    FullWindow,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Step(step) => step.run(),
            Self::Prefix(prefix) => prefix.run(),
            Self::Device(device) => device.run(),
        }
    }
}

impl Prefix {
    fn run(self) -> anyhow::Result<ExitCode> {
        let (context_tokens, page_tokens) = (self.context, self.page);
        let report = PrefixBench { context_tokens, page_tokens, rounds: self.rounds }.run()?;
        if self.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            println!(
                "{context_tokens} tokens in pages of {page_tokens}, two groups: hash, match and \
                 claim {:.0} Mtok/s, hash and insert {:.0} Mtok/s, eviction {:.0} ns a page",
                report.hash_match_claim_mtok_per_s,
                report.hash_insert_mtok_per_s,
                report.evict_ns_per_page
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Step {
    fn run(self) -> anyhow::Result<ExitCode> {
        let bench = StepBench {
            requests: self.requests,
            context_tokens: self.context,
            page_tokens: self.page,
            has_window: matches!(self.groups, Groups::FullWindow),
            draft_tokens: self.k,
            pool_pages: self.pool_pages,
            max_seq_len: self.max_seq_len,
            overlap_depth: self.overlap,
            steps: self.steps,
            ..StepBench::default()
        };
        let report = bench.run(|| crate::ALLOCATOR.stats().allocations as u64)?;
        if self.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            println!(
                "{} requests at {} tokens: {:.1} ns a request and step (p99 {:.1}), \
                 {} allocations a step, {} steps",
                self.requests,
                self.context,
                report.ns_per_request_step_p50,
                report.ns_per_request_step_p99,
                report.allocations_per_step,
                report.steps
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
