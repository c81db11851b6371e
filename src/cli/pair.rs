//! What `paceline run` needs for the pair: its engine, its prompts, its figures.

use anyhow::Context;
use clap::Args;
use paceline::engine::StepTime;
use paceline::engine::pair::Pair;
use paceline::engine::pair::prompts::EvalPrompt;
use paceline::engine::pair_engine::{DraftRows, PairEngine, PairOptions, SamplingMode};
use paceline::pair_report::{PairReport, PairServed, recorded_acceptance};
use paceline::run::Served;
use paceline::workload::{Workload, eval};
use paceline::{Config, Geometry};
use std::sync::Arc;

/// Token ids of the pair are below this.
pub const VOCABULARY: u32 = 2048;

/// Options of the pair engine.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Pair engine")]
pub struct PairArgs {
    /// Prompt lengths of ladder, code, records and rewrite: 1024,2048; all when left out.
    #[arg(long, value_delimiter = ',', value_parser = super::parse_tokens)]
    pub lengths: Vec<u32>,
    /// Serve this text and stream the answer.
    #[arg(long)]
    pub prompt: Option<String>,
    /// Tokens to generate for a prompt.
    #[arg(long, default_value_t = eval::NEW_TOKENS)]
    pub new_tokens: u32,
    /// What the drafter gets of a prompt: unified, or a fault on purpose: empty, zeros, stale,
    /// newest:64.
    #[arg(long, default_value = "unified")]
    pub drafter_kv: DraftRows,
    /// Whether to draft: on or off.
    #[arg(long, default_value = "on", value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub speculation: bool,
    /// How tokens are chosen and drafts accepted: greedy, exact, rejection, block.
    #[arg(long, default_value = "greedy")]
    pub sampling: SamplingMode,
    /// Temperature of the sampled modes.
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f32,
    /// Run again without speculation and compare every text.
    #[arg(long)]
    pub lossless: bool,
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}`: takes on or off")),
    }
}

impl PairArgs {
    /// The engine's options.
    pub fn options(&self, seed: u64, time: StepTime) -> PairOptions {
        let (rule, temperature) = self.sampling.rule(self.temperature);
        let draft_rows = self.drafter_kv;
        PairOptions { speculate: self.speculation, rule, temperature, seed, draft_rows, time }
    }

    /// The prompts of a list of kinds; none when `workload` is no such list.
    pub fn prompts(
        &self,
        workload: &str,
        limit: Option<usize>,
    ) -> anyhow::Result<Option<Vec<EvalPrompt>>> {
        let Some(kinds) = eval::kinds(workload) else { return Ok(None) };
        let lengths: Vec<usize> = self.lengths.iter().map(|length| *length as usize).collect();
        let prompts = eval::select(&kinds, &lengths, limit)?;
        anyhow::ensure!(
            !prompts.is_empty(),
            "--lengths: no prompt of {workload} has such a length"
        );
        Ok(Some(prompts))
    }

    /// The prompts as a workload.
    pub fn workload(&self, name: &str, prompts: &[EvalPrompt]) -> Workload {
        eval::workload(name, prompts, self.new_tokens)
    }

    /// The figures of a run.
    pub fn report(&self, pair: &Pair, run: PairServed<'_>) -> PairReport {
        let is_recorded = self.speculation
            && self.sampling == SamplingMode::Greedy
            && self.new_tokens == eval::NEW_TOKENS;
        PairReport::new(&pair.config, run, |group| {
            recorded_acceptance(group, self.drafter_kv).filter(|_| is_recorded)
        })
    }
}

/// The built-in pair.
pub fn load() -> anyhow::Result<Arc<Pair>> {
    Ok(Arc::new(Pair::embedded().context("built-in pair")?))
}

/// An engine over the pages of `config`.
pub fn engine(
    pair: &Arc<Pair>,
    config: &Config,
    options: PairOptions,
) -> anyhow::Result<PairEngine> {
    Ok(PairEngine::new(pair.clone(), &Geometry::new(config)?, options)?)
}

/// Serves the same without speculation.
pub fn serve_plain(
    pair: &Arc<Pair>,
    config: &Config,
    workload: &Workload,
    options: PairOptions,
) -> anyhow::Result<Served> {
    let mut core = paceline::Core::new(config)?;
    let options = PairOptions { speculate: false, ..options };
    let mut engine = engine(pair, config, options)?;
    let run =
        paceline::run::Options { keep_texts: true, ..paceline::run::Options::new(VOCABULARY) };
    let serve: paceline::run::Run<'_, _, std::io::Sink> =
        paceline::run::Run::new(&mut core, &mut engine, workload, run);
    Ok(serve.serve(|_| {})?)
}
