//! `paceline run`.

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use paceline::engine::{Accept, Engine, Forced, StepTime};
use paceline::record::Recorder;
use paceline::report::{Report, RequestLine};
use paceline::run::{Options, Run as Serve, Served};
use paceline::workload::{self, Agentic, Workload};
use paceline::{Config, Core, Verifier};
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Serves a workload.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  paceline run
  paceline run --workload trace.jsonl --limit 1000 --verify
  paceline run --accept geometric:0.8 --overlap 1 --json
  paceline run --concurrency 64 --requests-out requests.jsonl
  paceline run --record run.recording && paceline replay run.recording --check")]
pub struct Run {
    /// `agentic` (built in), a Mooncake trace (JSON lines, single rows or multi-turn) or an Azure
    /// trace (CSV).
    #[arg(long, default_value = "agentic")]
    workload: String,
    /// What runs the rows.
    #[arg(long, value_enum, default_value_t = EngineKind::Forced)]
    engine: EngineKind,
    /// Where the launches of each plan run, and with --verify the accesses to every page.
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    device: DeviceKind,
    /// `m3`, `pair`, or a TOML file.
    #[arg(long, default_value = "m3")]
    geometry: String,
    /// Serve the first N requests only.
    #[arg(long)]
    limit: Option<usize>,
    /// Keep N requests in flight instead of following the arrivals.
    #[arg(long)]
    concurrency: Option<usize>,
    /// Steps planned before an outcome is back, 0 or 1.
    #[arg(long)]
    overlap: Option<u32>,
    /// Follow every page read and written, and audit every invariant.
    #[arg(long)]
    verify: bool,
    /// Tokens a decode row emits: 4, uniform:1-8, geometric:0.8.
    #[arg(long, default_value = "geometric:0.7")]
    accept: Accept,
    /// Seed of the engine and of the built-in workload.
    #[arg(long)]
    seed: Option<u64>,
    /// Leave out bad rows of a trace, and say which.
    #[arg(long)]
    skip_bad: bool,
    /// Tokens in a page.
    #[arg(long, value_parser = super::parse_tokens)]
    page: Option<u32>,
    /// Pages of every group.
    #[arg(long)]
    pool_pages: Option<u32>,
    /// Accelerator memory for pages, 80GiB for example.
    #[arg(long, value_parser = super::parse_bytes)]
    hot_bytes: Option<u64>,
    /// Most rows of a step.
    #[arg(long)]
    max_batch: Option<u32>,
    /// Virtual time of any step, in microseconds.
    #[arg(long, default_value_t = 12_000)]
    step_base_us: u64,
    /// Virtual time of a prompt token, in nanoseconds.
    #[arg(long, default_value_t = 40_000)]
    prefill_token_ns: u64,
    /// Virtual time of a decode row, in nanoseconds.
    #[arg(long, default_value_t = 100_000)]
    decode_row_ns: u64,
    /// Write one JSON line for each request, in order of arrival.
    #[arg(long)]
    requests_out: Option<PathBuf>,
    /// Write every input of the core, to be replayed.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Print one JSON line instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineKind {
    /// Accepts as told and keeps virtual time.
    Forced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceKind {
    /// On the host, when verifying.
    Host,
    /// On a GPU, and on the host when verifying.
    Cuda,
}

/// Token ids of the forced engine are below this.
const VOCABULARY: u32 = 200_000;

/// What a newcomer sees: the agentic workload, verified.
pub fn first_run() -> anyhow::Result<ExitCode> {
    use clap::Parser;
    let crate::cli::Cli { command } = crate::cli::Cli::parse_from(["paceline", "run", "--verify"]);
    let Some(crate::cli::Command::Run(run)) = command else { bail!("run is a command") };
    let code = run.run()?;
    print!(
        "\nTry next:\n  paceline run --overlap 1 --accept uniform:1-8 --verify\n  \
         paceline run --workload YOUR_TRACE.jsonl --verify\n  \
         paceline run --record run.recording && paceline replay run.recording --check\n  \
         paceline bench step\n  paceline --help\n"
    );
    Ok(code)
}

impl Run {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let config = self.config()?;
        let workload = self.load(&config)?;
        for row in &workload.skipped_rows {
            eprintln!("skipped {row}");
        }
        let mut recorder = match &self.record {
            Some(path) => Some(recorder(path, &config)?),
            None => None,
        };
        let (report, served, found) = self.serve(&config, &workload, recorder.as_mut())?;
        if let Some(recorder) = recorder {
            recorder.finish().context("recording")?;
        }
        if let Some(path) = &self.requests_out {
            write_requests(path, &served).with_context(|| path.display().to_string())?;
        }
        if self.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            println!("{} on {}, forced engine", workload.name, config.name);
            print!("{report}");
        }
        if found.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        for violation in &found {
            eprintln!("violation: {violation}");
        }
        self.keep_recording(&config, &workload, &report)?;
        Ok(ExitCode::FAILURE)
    }

    /// A run is determined by its inputs: the recording of a violation is made by running again.
    fn keep_recording(
        &self,
        config: &Config,
        workload: &Workload,
        report: &Report,
    ) -> anyhow::Result<()> {
        let path = match &self.record {
            Some(path) => path.clone(),
            None => {
                let path =
                    PathBuf::from(format!("violation-{}.recording", &report.plan_digest[..8]));
                let mut recorder = recorder(&path, config)?;
                self.serve(config, workload, Some(&mut recorder))?;
                recorder.finish().context("recording")?;
                path
            }
        };
        eprintln!("replay with: paceline replay {} --check", path.display());
        Ok(())
    }

    fn serve(
        &self,
        config: &Config,
        workload: &Workload,
        recorder: Option<&mut Recorder<BufWriter<File>>>,
    ) -> anyhow::Result<(Report, Served, Vec<String>)> {
        let mut core = Core::new(config)?;
        let time = StepTime {
            base_ns: self.step_base_us * 1000,
            prefill_token_ns: self.prefill_token_ns,
            decode_row_ns: self.decode_row_ns,
        };
        let mut engine = Forced::new(self.accept, time, config.seed, VOCABULARY, config.max_batch);
        let verifier = self.verify.then(|| Verifier::new(core.geometry().clone()));
        match self.device {
            DeviceKind::Host => self.drive(&mut core, &mut engine, verifier, workload, recorder),
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda => {
                let verifier = verifier.map(Verifier::on_cuda).transpose()?;
                let mut engine = paceline::engine::OnCuda::new(engine, core.geometry())?;
                let mut done = self.drive(&mut core, &mut engine, verifier, workload, recorder)?;
                done.0.device = Some(engine.cost(done.0.host_ns_per_step_p50));
                Ok(done)
            }
            #[cfg(not(feature = "cuda"))]
            DeviceKind::Cuda => bail!("no CUDA: this binary was built without the feature `cuda`"),
        }
    }

    fn drive(
        &self,
        core: &mut Core,
        engine: &mut impl Engine,
        mut verifier: Option<Verifier>,
        workload: &Workload,
        recorder: Option<&mut Recorder<BufWriter<File>>>,
    ) -> anyhow::Result<(Report, Served, Vec<String>)> {
        let options =
            Options { concurrency: self.concurrency, vocabulary: VOCABULARY, audit_every: 64 };
        let mut serve = Serve::new(core, engine, workload, options);
        if let Some(verifier) = &mut verifier {
            serve = serve.verify(verifier);
        }
        if let Some(recorder) = recorder {
            serve = serve.record(recorder);
        }
        let bar = progress_bar(workload.requests() as u64);
        let served = serve.serve(|finished| bar.set_position(finished));
        bar.finish_and_clear();
        let served = served?;
        if let Some(verifier) = &mut verifier {
            core.audit().into_iter().for_each(|broken| verifier.report(broken));
        }
        let violations = verifier.as_ref().map(|verifier| verifier.violations().1);
        let found = verifier.map_or(Vec::new(), |verifier| verifier.violations().0.to_vec());
        Ok((Report::new(&served, core, violations), served, found))
    }

    fn config(&self) -> anyhow::Result<Config> {
        let mut config = super::read_geometry(&self.geometry)?;
        if let Some(depth) = self.overlap {
            config.overlap_depth = depth;
        }
        if let Some(seed) = self.seed {
            config.seed = seed;
        }
        if let Some(page_tokens) = self.page {
            config.page_tokens = page_tokens;
        }
        if let Some(bytes) = self.hot_bytes {
            config.hot_bytes = bytes;
        }
        if let Some(rows) = self.max_batch {
            config.max_batch = rows;
        }
        if self.pool_pages.is_some() {
            config.groups.iter_mut().for_each(|group| group.pages = self.pool_pages);
        }
        Ok(config)
    }

    fn load(&self, config: &Config) -> anyhow::Result<Workload> {
        let workload = if self.workload == "agentic" {
            Agentic { seed: config.seed, ..Agentic::default() }.generate()
        } else {
            workload::open(&self.workload, self.skip_bad)?
        };
        Ok(match self.limit {
            Some(requests) => workload.limit(requests),
            None => workload,
        })
    }
}

fn recorder(path: &Path, config: &Config) -> anyhow::Result<Recorder<BufWriter<File>>> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    Recorder::new(BufWriter::new(file), config).context("recording")
}

fn write_requests(path: &Path, served: &Served) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for account in &served.accounts {
        serde_json::to_writer(&mut file, &RequestLine::from(account))?;
        writeln!(file)?;
    }
    Ok(file.flush()?)
}

fn progress_bar(requests: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} requests, {eta} left");
    ProgressBar::new(requests).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
