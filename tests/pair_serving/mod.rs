//! Serves prompts on the pair through the core, every page followed.
#![allow(dead_code, reason = "each test binary uses its part")]

use paceline::engine::pair::Pair;
use paceline::engine::pair::prompts::EvalPrompt;
use paceline::engine::pair_engine::{Acceptance, DecodeStep, PairEngine, PairOptions};
use paceline::run::{Options, Run, RunError};
use paceline::workload::{Session, Text, Turn, Workload, eval};
use paceline::{Config, Core, Verifier};
use std::sync::{Arc, LazyLock};

pub static PAIR: LazyLock<Arc<Pair>> = LazyLock::new(|| Arc::new(Pair::embedded().unwrap()));

pub const NEW_TOKENS: u32 = 128;
/// Longer than any run: later waves start when earlier ones have ended.
const WAVE_NS: u64 = 1 << 50;

/// What was served, request by request in the order of the waves.
pub struct Serving {
    pub prompts: Vec<Vec<u32>>,
    pub texts: Vec<Vec<u32>>,
    pub steps: Vec<Vec<DecodeStep>>,
    pub claimed: Vec<u32>,
    pub computed: Vec<u64>,
    pub preemptions: u64,
    /// What the verifier found.
    pub violations: Vec<String>,
}

impl Serving {
    /// Acceptance length over some requests.
    pub fn acceptance(&self, requests: impl IntoIterator<Item = usize>) -> f64 {
        let mut sum = Acceptance::default();
        for request in requests {
            let prompt = self.prompts[request].len() as u32;
            let steps = self.steps[request].iter().copied();
            let config = &PAIR.config;
            let text = &self.texts[request];
            let block = config.block as u32;
            sum.add(Acceptance::of(steps, prompt, text, block, config.specials));
        }
        sum.length()
    }
}

/// `count` prompts of a kind and length.
pub fn prompts(kind: &str, length: usize, count: usize) -> Vec<Vec<u32>> {
    let found: Vec<EvalPrompt> = eval::select(&[kind], &[length], Some(count)).unwrap();
    assert_eq!(found.len(), count);
    found.into_iter().map(|prompt| prompt.tokens).collect()
}

/// Serves waves of prompts, each after the one before has ended.
pub fn try_serve(
    config: &Config,
    options: PairOptions,
    waves: &[Vec<Vec<u32>>],
    new_tokens: u32,
) -> Result<Serving, RunError> {
    let sessions = waves.iter().enumerate().flat_map(|(wave, prompts)| {
        prompts.iter().map(move |prompt| Session {
            start_ns: wave as u64 * WAVE_NS,
            turns: vec![Turn {
                delay_ns: 0,
                input: Text::Ids(prompt.clone()),
                output_tokens: new_tokens,
            }],
            priority: 0,
        })
    });
    let sessions = sessions.collect();
    let workload = Workload { name: "pair".to_owned(), sessions, skipped_rows: Vec::new() };
    let mut core = Core::new(config).unwrap();
    let mut engine = PairEngine::new(PAIR.clone(), core.geometry(), options)?;
    let mut verifier = Verifier::new(core.geometry().clone());
    let run = Options { keep_texts: true, audit_every: 16, ..Options::new(2048) };
    let run: Run<'_, _, std::io::Sink> = Run::new(&mut core, &mut engine, &workload, run);
    let served = run.verify(&mut verifier).serve(|_| {})?;
    let mut steps = vec![Vec::new(); served.accounts.len()];
    engine.take_steps().iter().for_each(|step| steps[step.request as usize].push(*step));
    Ok(Serving {
        prompts: waves.concat(),
        texts: served.accounts.iter().map(|account| account.text.clone()).collect(),
        steps,
        claimed: served.accounts.iter().map(|account| account.claimed_tokens).collect(),
        computed: served.accounts.iter().map(|account| account.computed_tokens).collect(),
        preemptions: core.stats().preemptions,
        violations: verifier.violations().0.to_vec(),
    })
}

/// The same, and nothing may be wrong.
pub fn serve(config: &Config, options: PairOptions, waves: &[Vec<Vec<u32>>]) -> Serving {
    let serving = try_serve(config, options, waves, NEW_TOKENS).unwrap();
    assert_eq!(serving.violations, Vec::<String>::new());
    serving
}

/// The texts of plain decoding, one request at a time.
pub fn plain_texts(waves: &[Vec<Vec<u32>>]) -> Vec<Vec<u32>> {
    let mut config = Config::pair();
    config.max_batch = 1;
    config.publish = paceline::PublishPolicy::Off;
    let options = PairOptions { speculate: false, ..PairOptions::default() };
    serve(&config, options, waves).texts
}
