//! `paceline replay`.

use anyhow::Context;
use clap::Args;
use paceline::record::replay;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  paceline run --record run.recording\n  \
    paceline replay run.recording --check")]
pub struct Replay {
    /// What `paceline run --record` wrote.
    file: PathBuf,
    /// Audit every invariant and follow every page read and written.
    #[arg(long)]
    check: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.file.display().to_string();
        let file = File::open(&self.file).with_context(|| name.clone())?;
        let replayed = replay(BufReader::new(file), self.check).with_context(|| name)?;
        if self.json {
            println!("{}", serde_json::to_string(&replayed)?);
        } else {
            println!("{} steps came out the same, {} requests", replayed.steps, replayed.requests);
            if self.check {
                println!("{} violations", replayed.violations);
            }
            for violation in &replayed.found {
                println!("  {violation}");
            }
        }
        Ok(if replayed.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
