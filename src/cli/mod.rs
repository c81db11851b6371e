//! The command line.

mod bench;
mod bench_device;
mod capacity;
mod first_run;
mod pair;
mod prompt;
mod replay;
mod run;

use anyhow::Context;
use clap::{Parser, Subcommand};
use paceline::Config;
use std::process::ExitCode;

/// A scheduling core for LLM inference servers: target and drafter in one paged KV cache.
///
/// Without a command it serves prompts on a small real model pair, with its drafter's window,
/// without it and without a drafter, and says what to try next.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a workload and report on it.
    Run(Box<run::Run>),
    /// Replay a recording: every plan must come out the same, byte for byte.
    Replay(replay::Replay),
    /// Show what the memory of a rank holds, group by group.
    Capacity(capacity::Capacity),
    /// Time a part of the core.
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Runs the command line.
pub fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .init();
    let result = match Cli::parse().command {
        Some(Command::Run(run)) => run.run(),
        Some(Command::Replay(replay)) => replay.run(),
        Some(Command::Capacity(capacity)) => capacity.run(),
        Some(Command::Bench(bench)) => bench.run(),
        None => first_run::first_run(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// A built-in geometry, or one from a TOML file.
fn read_geometry(name: &str) -> anyhow::Result<Config> {
    if let Some(config) = Config::preset(name) {
        return Ok(config);
    }
    let text = std::fs::read_to_string(name)
        .with_context(|| format!("--geometry {name}: neither m3, pair nor a readable file"))?;
    toml::from_str(&text).with_context(|| name.to_owned())
}

/// Reads a number of bytes: `80GiB`, `512MiB`, `1073741824`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    units
        .iter()
        .find_map(|(unit, shift)| {
            let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            (number >= 0.0).then(|| (number * (1u64 << shift) as f64) as u64)
        })
        .ok_or_else(|| format!("`{text}`: takes a number of bytes, 80GiB or 512MiB for example"))
}

/// Reads a number of tokens: `4096`, `32K`, `1M`.
pub fn parse_tokens(text: &str) -> Result<u32, String> {
    let units = [("K", 10), ("M", 20), ("", 0)];
    units
        .iter()
        .find_map(|(unit, shift)| {
            let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(1 << shift)
        })
        .ok_or_else(|| format!("`{text}`: takes a number of tokens, 4096, 32K or 1M for example"))
}
