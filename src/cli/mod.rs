//! The command line.

mod bench;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A scheduling core for LLM inference servers.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time a part of the core.
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(bench) => bench.run(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
