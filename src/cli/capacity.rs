//! `paceline capacity`.

use super::{parse_bytes, parse_tokens, read_geometry};
use clap::Args;
use paceline::capacity::Capacity as Table;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  paceline capacity --geometry m3 --gpu-bytes 80GiB --tp 2 \
    --max-batch 64 --max-seq-len 1M")]
pub struct Capacity {
    /// `m3`, `pair`, or a TOML file.
    #[arg(long, default_value = "m3")]
    geometry: String,
    /// Memory for pages on each rank [default: the geometry's].
    #[arg(long, value_parser = parse_bytes)]
    gpu_bytes: Option<u64>,
    /// Tensor-parallel ranks.
    #[arg(long, default_value_t = 1)]
    tp: u32,
    /// Most rows of a step [default: the geometry's].
    #[arg(long)]
    max_batch: Option<u32>,
    /// Longest sequence [default: the geometry's].
    #[arg(long, value_parser = parse_tokens)]
    max_seq_len: Option<u32>,
    /// Steps planned before an outcome is back, 0 or 1.
    #[arg(long)]
    overlap: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Capacity {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut config = read_geometry(&self.geometry)?;
        config.hot_bytes = self.gpu_bytes.unwrap_or(config.hot_bytes);
        config.max_batch = self.max_batch.unwrap_or(config.max_batch);
        config.max_seq_len = self.max_seq_len.unwrap_or(config.max_seq_len);
        config.overlap_depth = self.overlap.unwrap_or(config.overlap_depth);
        let table = Table::new(&config, self.tp)?;
        if self.json {
            println!("{}", serde_json::to_string(&table)?);
        } else {
            print!("{table}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
