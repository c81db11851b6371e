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
    /// What `acceptance.json` says of all prompts of the group, where it says something.
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
    /// The figures of a run; `recorded` looks up what is known of a group, such as `ladder/1024`.
    #[must_use]
    pub fn new(
        config: &PairConfig,
        run: PairServed<'_>,
        recorded: impl Fn(&str) -> Option<f64>,
    ) -> Self {
        let mut steps: Vec<Vec<DecodeStep>> = vec![Vec::new(); run.prompts.len()];
        for step in run.steps {
            if let Some(steps) = steps.get_mut(step.request as usize) {
                steps.push(*step);
            }
        }
        let mut groups: Vec<(PromptGroup, Acceptance)> = Vec::new();
        let accounts = &run.served.accounts;
        for (index, (prompt, account)) in run.prompts.iter().zip(accounts).enumerate() {
            let block = config.block as u32;
            let tokens = account.prompt_tokens;
            let steps = std::mem::take(&mut steps[index]);
            let count = Acceptance::of(steps, tokens, &account.text, block, config.specials);
            let is_new = groups.last().is_none_or(|(group, _)| {
                (&group.kind, group.length) != (&prompt.kind, prompt.length)
            });
            if is_new {
                let name = format!("{}/{}", prompt.kind, prompt.length);
                groups.push((
                    PromptGroup {
                        kind: prompt.kind.clone(),
                        length: prompt.length,
                        prompts: 0,
                        acceptance: 0.0,
                        recorded: recorded(&name),
                        lossless: run.plain.map(|_| true),
                    },
                    Acceptance::default(),
                ));
            }
            let Some((group, sum)) = groups.last_mut() else { continue };
            group.prompts += 1;
            sum.add(count);
            group.acceptance = sum.length();
            let is_same = run.plain.map(|plain| plain.accounts[index].text == account.text);
            group.lossless = group.lossless.zip(is_same).map(|(all, this)| all && this);
        }
        let prompts: Vec<PromptGroup> = groups.into_iter().map(|(group, _)| group).collect();
        let emitted: u64 = accounts.iter().map(|account| u64::from(account.output_tokens)).sum();
        Self {
            tokens_per_s: emitted as f64 * 1e9 / run.served.wall.total_ns.max(1) as f64,
            decode_tokens_per_s: run.served.wall.decode_tokens_per_s(),
            lossless: run.plain.map(|_| prompts.iter().all(|group| group.lossless == Some(true))),
            prompts,
        }
    }
}

/// What `acceptance.json` says of greedy decoding for a group such as `ladder/1024`.
#[must_use]
pub fn recorded_acceptance(group: &str, draft_rows: DraftRows) -> Option<f64> {
    let json = include_bytes!("../tests/data/pair/acceptance.json");
    let all: serde_json::Value = serde_json::from_slice(json).ok()?;
    let arm = match draft_rows {
        DraftRows::Unified => "full".to_owned(),
        DraftRows::Empty => "empty".to_owned(),
        DraftRows::Zeros => "zeros".to_owned(),
        DraftRows::Stale => "stale".to_owned(),
        DraftRows::Newest(tokens) => format!("newest_{tokens}"),
    };
    all["greedy"]["by_group"][group][&arm].as_f64()
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
