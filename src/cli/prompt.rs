//! `paceline run --prompt`: one text, its answer streamed as it is generated.

use paceline::engine::Engine;
use paceline::engine::pair::tokenizer::{StreamDecoder, Tokenizer};
use paceline::engine::pair_engine::PairOptions;
use paceline::{Config, Core, NewRequest, Outcome};
use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

/// Serves `text` and prints what comes.
pub fn stream(
    config: &Config,
    options: PairOptions,
    text: &str,
    new_tokens: u32,
) -> anyhow::Result<()> {
    let pair = super::pair::load()?;
    let tokenizer = Tokenizer::embedded()?;
    let specials = pair.config.specials;
    let mut core = Core::new(config)?;
    let mut engine = super::pair::engine(&pair, config, options)?;
    let prompt: Vec<u32> = std::iter::once(specials.doc).chain(tokenizer.encode(text)).collect();
    let stop_tokens = vec![specials.end, specials.doc];
    core.inbox().submit(NewRequest::new(0, prompt, new_tokens).stop_tokens(stop_tokens))?;
    let mut out = std::io::stdout().lock();
    write!(out, "{text}")?;
    let mut decoder = StreamDecoder::default();
    let mut in_flight: VecDeque<Outcome> = VecDeque::new();
    let (started, mut tokens) = (Instant::now(), 0usize);
    while !core.is_idle() {
        let plan = core.step()?;
        for output in plan.outputs() {
            tokens += output.tokens.len();
            for token in output.tokens.iter().filter(|token| **token != specials.end) {
                write!(out, "{}", decoder.push(&tokenizer, *token))?;
            }
            out.flush()?;
        }
        let has_rows = !plan.rows().is_empty();
        if has_rows {
            let mut outcome = Outcome::default();
            outcome.begin(plan.step());
            engine.run(plan, &mut outcome)?;
            in_flight.push_back(outcome);
        } else {
            engine.skip(plan);
        }
        let depth = if has_rows { config.overlap_depth as usize } else { 0 };
        if in_flight.len() > depth
            && let Some(outcome) = in_flight.pop_front()
        {
            core.complete(&outcome)?;
        }
    }
    writeln!(out, "{}", decoder.finish())?;
    let seconds = started.elapsed().as_secs_f64();
    let stats = core.stats();
    let acceptance = stats.decode_tokens as f64 / stats.decode_rows.max(1) as f64;
    eprintln!("\n{tokens} tokens in {seconds:.2} s, acceptance length {acceptance:.2}");
    Ok(())
}
