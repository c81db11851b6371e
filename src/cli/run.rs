//! `paceline run`.

use super::pair::{self, PairArgs};
use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use paceline::engine::pair::prompts::EvalPrompt;
use paceline::engine::{Accept, Engine, Forced, StepTime};
use paceline::pair_report::{PairReport, PairServed};
use paceline::record::Recorder;
use paceline::report::{Report, RequestLine};
use paceline::run::{Options, Run as Serve, Served};
use paceline::workload::{self, Agentic, Workload};
use paceline::{Config, Core, Verifier};
use serde::Serialize;
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
  paceline run --engine pair --workload ladder,records --lengths 1024 --limit 4 --lossless
  paceline run --engine pair --prompt 'fn main() {'
  paceline run --concurrency 64 --requests-out requests.jsonl
  paceline run --record run.recording && paceline replay run.recording --check")]
pub struct Run {
    /// `agentic` (built in), a Mooncake trace (JSON lines, single rows or multi-turn), an Azure
    /// trace (CSV), or prompts of the pair: a list of ladder, code, records, rewrite.
    #[arg(long, default_value = "agentic")]
    workload: String,
    /// What runs the rows.
    #[arg(long, value_enum, default_value_t = EngineKind::Forced)]
    engine: EngineKind,
    /// Where the launches of each plan run, and with --verify the accesses to every page.
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    device: DeviceKind,
    /// `m3`, `pair`, or a TOML file; default: what the engine serves.
    #[arg(long)]
    geometry: Option<String>,
    /// Serve the first N requests only; of the pair's prompts, N of each kind and length.
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
    #[command(flatten)]
    pair: PairArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineKind {
    /// Accepts as told and keeps virtual time.
    Forced,
    /// A small real target and drafter on the CPU.
    Pair,
}

/// What a run leaves.
struct Done {
    report: Report,
    served: Served,
    found: Vec<String>,
    pair: Option<PairReport>,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a PairReport>,
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

impl Run {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let config = self.config()?;
        if let Some(text) = &self.pair.prompt {
            ensure!(self.engine == EngineKind::Pair, "--prompt: takes --engine pair");
            let options = self.pair.options(config.seed, self.time());
            super::prompt::stream(&config, options, text, self.pair.new_tokens)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (workload, prompts) = self.load(&config)?;
        for row in &workload.skipped_rows {
            eprintln!("skipped {row}");
        }
        let mut recorder = match &self.record {
            Some(path) => Some(recorder(path, &config)?),
            None => None,
        };
        let done = self.serve(&config, &workload, &prompts, recorder.as_mut())?;
        if let Some(recorder) = recorder {
            recorder.finish().context("recording")?;
        }
        if let Some(path) = &self.requests_out {
            write_requests(path, &done.served).with_context(|| path.display().to_string())?;
        }
        if self.json {
            let line = JsonLine { report: &done.report, pair: done.pair.as_ref() };
            println!("{}", serde_json::to_string(&line)?);
        } else {
            let engine = self.engine.to_possible_value();
            let engine = engine.as_ref().map_or("", |engine| engine.get_name());
            println!("{} on {}, {engine} engine", workload.name, config.name);
            print!("{}", done.report);
            done.pair.iter().for_each(|pair| print!("{pair}"));
        }
        let is_lossless = done.pair.as_ref().is_none_or(|pair| pair.lossless != Some(false));
        if !is_lossless {
            eprintln!("error: texts differ from those of plain decoding");
        }
        if done.found.is_empty() {
            return Ok(if is_lossless { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        for violation in &done.found {
            eprintln!("violation: {violation}");
        }
        self.keep_recording(&config, &workload, &prompts, &done.report)?;
        Ok(ExitCode::FAILURE)
    }

    /// A run is determined by its inputs: the recording of a violation is made by running again.
    fn keep_recording(
        &self,
        config: &Config,
        workload: &Workload,
        prompts: &[EvalPrompt],
        report: &Report,
    ) -> anyhow::Result<()> {
        let path = match &self.record {
            Some(path) => path.clone(),
            None => {
                let path =
                    PathBuf::from(format!("violation-{}.recording", &report.plan_digest[..8]));
                let mut recorder = recorder(&path, config)?;
                self.serve(config, workload, prompts, Some(&mut recorder))?;
                recorder.finish().context("recording")?;
                path
            }
        };
        eprintln!("replay with: paceline replay {} --check", path.display());
        Ok(())
    }

    fn time(&self) -> StepTime {
        StepTime {
            base_ns: self.step_base_us * 1000,
            prefill_token_ns: self.prefill_token_ns,
            decode_row_ns: self.decode_row_ns,
        }
    }

    fn serve(
        &self,
        config: &Config,
        workload: &Workload,
        prompts: &[EvalPrompt],
        recorder: Option<&mut Recorder<BufWriter<File>>>,
    ) -> anyhow::Result<Done> {
        if self.engine == EngineKind::Forced {
            let time = self.time();
            let mut engine =
                Forced::new(self.accept, time, config.seed, VOCABULARY, config.max_batch);
            let options = Options { concurrency: self.concurrency, ..Options::new(VOCABULARY) };
            return match self.device {
                DeviceKind::Host => self.serve_on(&mut engine, config, workload, options, recorder),
                #[cfg(feature = "cuda")]
                DeviceKind::Cuda => {
                    let geometry = paceline::Geometry::new(config)?;
                    let mut engine = paceline::engine::OnCuda::new(engine, &geometry)?;
                    let mut done =
                        self.serve_on(&mut engine, config, workload, options, recorder)?;
                    done.report.device = Some(engine.cost(done.report.host_ns_per_step_p50));
                    Ok(done)
                }
                #[cfg(not(feature = "cuda"))]
                DeviceKind::Cuda => {
                    anyhow::bail!("no CUDA: this binary was built without the feature `cuda`")
                }
            };
        }
        let model = pair::load()?;
        let engine_options = self.pair.options(config.seed, self.time());
        let mut engine = pair::engine(&model, config, engine_options)?;
        let options = Options {
            concurrency: self.concurrency,
            keep_texts: true,
            ..Options::new(pair::VOCABULARY)
        };
        let mut done = self.serve_on(&mut engine, config, workload, options, recorder)?;
        let plain = match self.pair.lossless {
            true => Some(pair::serve_plain(&model, config, workload, engine_options)?),
            false => None,
        };
        let steps = engine.take_steps();
        let run =
            PairServed { prompts, served: &done.served, steps: &steps, plain: plain.as_ref() };
        done.pair = Some(self.pair.report(&model, run));
        Ok(done)
    }

    fn verifier(&self, core: &Core) -> anyhow::Result<Option<Verifier>> {
        let verifier = self.verify.then(|| Verifier::new(core.geometry().clone()));
        #[cfg(feature = "cuda")]
        if self.device == DeviceKind::Cuda {
            return Ok(verifier.map(Verifier::on_cuda).transpose()?);
        }
        Ok(verifier)
    }

    fn serve_on<E: Engine>(
        &self,
        engine: &mut E,
        config: &Config,
        workload: &Workload,
        options: Options,
        recorder: Option<&mut Recorder<BufWriter<File>>>,
    ) -> anyhow::Result<Done> {
        let mut core = Core::new(config)?;
        let mut verifier = self.verifier(&core)?;
        let mut serve = Serve::new(&mut core, engine, workload, options);
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
        let report = Report::new(&served, &mut core, violations);
        Ok(Done { report, served, found, pair: None })
    }

    fn config(&self) -> anyhow::Result<Config> {
        let mut config =
            super::read_geometry(self.geometry.as_deref().unwrap_or(match self.engine {
                EngineKind::Forced => "m3",
                EngineKind::Pair => "pair",
            }))?;
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

    /// The workload, and its prompts when they are the pair's.
    fn load(&self, config: &Config) -> anyhow::Result<(Workload, Vec<EvalPrompt>)> {
        if let Some(prompts) = self.pair.prompts(&self.workload, self.limit)? {
            return Ok((self.pair.workload(&self.workload, &prompts), prompts));
        }
        let workload = if self.workload == "agentic" {
            Agentic { seed: config.seed, ..Agentic::default() }.generate()
        } else {
            workload::open(&self.workload, self.skip_bad)?
        };
        let workload = match self.limit {
            Some(requests) => workload.limit(requests),
            None => workload,
        };
        Ok((workload, Vec::new()))
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
