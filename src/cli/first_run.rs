//! What a newcomer sees: the pair, with its drafter's window, without it, and without a drafter.

use super::pair::{VOCABULARY, engine, load, serve_plain};
use paceline::engine::pair::Pair;
use paceline::engine::pair::prompts::EvalPrompt;
use paceline::engine::pair_engine::{DraftRows, PairOptions};
use paceline::pair_report::{PairReport, PairServed, recorded_acceptance, yes_no};
use paceline::run::{Options, Run, Served};
use paceline::workload::eval;
use paceline::{Config, Core};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Kind, length and prompts of each block of the table.
const PROMPTS: [(&str, usize, usize); 3] =
    [("ladder", 1024, 4), ("ladder", 2048, 4), ("records", 1024, 4)];

/// Serves the table's prompts and prints it.
pub fn first_run() -> anyhow::Result<ExitCode> {
    let pair = load()?;
    println!(
        "A real target and its drafter on the CPU, greedy, {} new tokens a prompt.\n",
        eval::NEW_TOKENS
    );
    println!(
        "  {:<15}{:<25}{:>11}{:>11}{:>11}{:>10}",
        "prompts", "drafter", "acceptance", "tokens/s", "decode t/s", "lossless"
    );
    let mut is_lossless = true;
    for (kind, length, limit) in PROMPTS {
        let prompts = eval::select(&[kind], &[length], Some(limit))?;
        is_lossless &= compare(&pair, &prompts)?;
    }
    print!(
        "\nAcceptance: tokens a step, counted as tests/data/pair/acceptance.json does. Tokens/s: with \
         the\nprompts' time; decode t/s: without. Lossless: every text is that of plain decoding.\n\n\
         Try next:\n  \
         paceline run --engine pair --workload rewrite --lengths 1024 --limit 4 --lossless\n  \
         paceline run --engine pair --workload records --lengths 1024 --drafter-kv newest:64\n  \
         paceline run --engine pair --prompt 'fn main() {{'\n  \
         paceline run --verify        (the agentic workload on a forced engine, page by page)\n  \
         paceline run --record run.recording && paceline replay run.recording --check\n  \
         paceline bench step\n  paceline --help\n"
    );
    Ok(if is_lossless { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Serves `prompts` three times; whether all texts are the same.
fn compare(pair: &Arc<Pair>, prompts: &[EvalPrompt]) -> anyhow::Result<bool> {
    let config = Config::pair();
    let options = PairOptions::default();
    let plain =
        serve_plain(pair, &config, &eval::workload("plain", prompts, eval::NEW_TOKENS), options)?;
    let mut is_lossless = true;
    for (name, draft_rows) in [
        ("window kept (unified)", DraftRows::Unified),
        ("window missing (empty)", DraftRows::Empty),
    ] {
        let report = serve(pair, &config, prompts, PairOptions { draft_rows, ..options }, &plain)?;
        is_lossless &= report.lossless == Some(true);
        print_row(name, &report)?;
    }
    let run = PairServed { prompts, served: &plain, steps: &[], plain: None };
    let report = PairReport::new(&pair.config, run, |_| None);
    print_row("none", &report)?;
    Ok(is_lossless)
}

fn serve(
    pair: &Arc<Pair>,
    config: &Config,
    prompts: &[EvalPrompt],
    options: PairOptions,
    plain: &Served,
) -> anyhow::Result<PairReport> {
    let mut core = Core::new(config)?;
    let mut engine = engine(pair, config, options)?;
    let workload = eval::workload("first", prompts, eval::NEW_TOKENS);
    let run = Options { keep_texts: true, ..Options::new(VOCABULARY) };
    let serve: Run<'_, _, std::io::Sink> = Run::new(&mut core, &mut engine, &workload, run);
    let served = serve.serve(|_| {})?;
    let steps = engine.take_steps();
    let run = PairServed { prompts, served: &served, steps: &steps, plain: Some(plain) };
    let recorded = |group: &str| recorded_acceptance(group, options.draft_rows);
    Ok(PairReport::new(&pair.config, run, recorded))
}

fn print_row(drafter: &str, report: &PairReport) -> anyhow::Result<()> {
    let Some(group) = report.prompts.first() else { return Ok(()) };
    let lossless = if drafter == "none" { "reference" } else { yes_no(group.lossless) };
    println!(
        "  {:<15}{drafter:<25}{:>11.2}{:>11.0}{:>11.0}{lossless:>10}",
        format!("{}/{}", group.kind, group.length),
        if drafter == "none" { 1.0 } else { group.acceptance },
        report.tokens_per_s,
        report.decode_tokens_per_s,
    );
    Ok(std::io::stdout().flush()?)
}
