//! What a run on the pair accepted, kind by kind and length by length.

use crate::engine::pair::PairConfig;
use crate::engine::pair::prompts::EvalPrompt;
use crate::engine::pair_engine::{Acceptance, DecodeStep, DraftRows};
use crate::run::Served;
use serde::Serialize;
use std::fmt;

/// Figures of a run of evaluation prompts.
#[derive(Clone, Debug, Serialize)]
pub struct PairReport {
    /// Tokens a second the engine really emitted, prompts included in the time.
    pub tokens_per_s: f64,
    /// The same over the steps that computed no prompt.
    pub decode_tokens_per_s: f64,
    /// Whether every text is that of plain decoding; none when that was not asked for.
    pub lossless: Option<bool>,
    /// By kind and length, in order of the prompts.
    pub prompts: Vec<PromptGroup>,
}

/// Figures of the prompts of one kind and length.
#[derive(Clone, Debug, Serialize)]
pub struct PromptGroup {
    /// Kind.
    pub kind: String,
    /// Tokens of each prompt.
    pub length: usize,
    /// Prompts.
    pub prompts: usize,
    /// Mean tokens a step, counted as `acceptance.json` counts.
    pub acceptance: f64,
    /// What `acceptance.json` says of the group, when all its prompts were served.
    pub recorded: Option<f64>,
    /// Whether their texts are those of plain decoding; none when that was not asked for.
    pub lossless: Option<bool>,
}

/// What was served.
#[derive(Clone, Copy, Debug)]
pub struct PairServed<'a> {
    /// The prompts, by request id.
    pub prompts: &'a [EvalPrompt],
    /// The run; its accounts keep texts.
    pub served: &'a Served,
    /// The engine's steps.
    pub steps: &'a [DecodeStep],
    /// A run of the same prompts without speculation, to compare texts with.
    pub plain: Option<&'a Served>,
}

impl PairReport {
    /// The figures of a run; `recorded` looks up what is known of a group, such as `ladder/1024`,
    /// and of how many prompts.
    #[must_use]
    pub fn new(
        config: &PairConfig,
        run: PairServed<'_>,
        recorded: impl Fn(&str) -> Option<(f64, usize)>,
    ) -> Self {
        let mut steps: Vec<Vec<DecodeStep>> = vec![Vec::new(); run.prompts.len()];
        for step in run.steps {
            if let Some(steps) = steps.get_mut(step.request as usize) {
                steps.push(*step);
            }
        }
        let is_alike = |a: &EvalPrompt, b: &EvalPrompt| (&a.kind, a.length) == (&b.kind, b.length);
        let accounts = &run.served.accounts;
        let mut groups = Vec::new();
        let mut first = 0;
        for prompts in run.prompts.chunk_by(is_alike) {
            let requests = first..first + prompts.len();
            first = requests.end;
            let mut sum = Acceptance::default();
            for (account, steps) in accounts[requests.clone()].iter().zip(&steps[requests.clone()])
            {
                let (steps, block) = (steps.iter().copied(), config.block as u32);
                let (prompt, text) = (account.prompt_tokens, &account.text);
                sum.add(Acceptance::of(steps, prompt, text, block, config.specials));
            }
            let (kind, length) = (prompts[0].kind.clone(), prompts[0].length);
            let known = recorded(&format!("{kind}/{length}"));
            groups.push(PromptGroup {
                kind,
                length,
                prompts: prompts.len(),
                acceptance: sum.length(),
                recorded: known.filter(|(_, of)| *of == prompts.len()).map(|(length, _)| length),
                lossless: run.plain.map(|plain| {
                    let texts = |served: &Served| {
                        let accounts = served.accounts[requests.clone()].iter();
                        accounts.map(|account| account.text.clone()).collect::<Vec<_>>()
                    };
                    texts(plain) == texts(run.served)
                }),
            });
        }
        let emitted: u64 = accounts.iter().map(|account| u64::from(account.output_tokens)).sum();
        Self {
            tokens_per_s: emitted as f64 * 1e9 / run.served.wall.total_ns.max(1) as f64,
            decode_tokens_per_s: run.served.wall.decode_tokens_per_s(),
            lossless: run.plain.map(|_| groups.iter().all(|group| group.lossless == Some(true))),
            prompts: groups,
        }
    }
}

/// What `acceptance.json` says of greedy decoding for a group such as `ladder/1024`, and the prompts
/// it says it of.
#[must_use]
pub fn recorded_acceptance(group: &str, draft_rows: DraftRows) -> Option<(f64, usize)> {
    let json = include_bytes!("../tests/data/pair/acceptance.json");
    let all: serde_json::Value = serde_json::from_slice(json).ok()?;
    let arm = match draft_rows {
        DraftRows::Unified => "full".to_owned(),
        DraftRows::Empty => "empty".to_owned(),
        DraftRows::Zeros => "zeros".to_owned(),
        DraftRows::Stale => "stale".to_owned(),
        DraftRows::Newest(tokens) => format!("newest_{tokens}"),
    };
    let group = &all["greedy"]["by_group"][group];
    Some((group[&arm].as_f64()?, group["_text"]["prompts"].as_u64()? as usize))
}

/// `yes`, `no`, or a dash when it was not asked for.
#[must_use]
pub fn yes_no(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "-",
    }
}

impl fmt::Display for PairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:<26}{:.0}", "tokens per second", self.tokens_per_s)?;
        writeln!(f, "  {:<26}{:.0}", "decode tokens per second", self.decode_tokens_per_s)?;
        writeln!(
            f,
            "  {:<10}{:>7}{:>9}{:>12}{:>10}{:>10}",
            "prompts", "length", "count", "acceptance", "recorded", "lossless"
        )?;
        for group in &self.prompts {
            let recorded = group.recorded.map_or("-".to_owned(), |found| format!("{found:.2}"));
            writeln!(
                f,
                "  {:<10}{:>7}{:>9}{:>12.2}{:>10}{:>10}",
                group.kind,
                group.length,
                group.prompts,
                group.acceptance,
                recorded,
                yes_no(group.lossless)
            )?;
        }
        Ok(())
    }
}
