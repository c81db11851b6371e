//! The recorded cases of `golden.json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::error::PairError;

/// One prompt with everything recorded about it.
#[derive(Debug, Deserialize)]
pub struct GoldenCase {
    /// Kind of text.
    pub cat: String,
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// The target's greedy text.
    pub continuation: Vec<u32>,
    /// Distance of the two largest logits at each token of the text.
    pub margin: Vec<f32>,
    /// The speculative loop for each arm.
    pub spec: BTreeMap<String, GoldenArm>,
    /// Logits of the target.
    pub target_checks: Vec<TargetCheck>,
    /// Captured residual streams.
    pub capture_checks: Vec<CaptureCheck>,
    /// Context K/V of the drafter.
    pub context_kv_checks: Vec<ContextCheck>,
    /// The first block of the full arm, slot by slot.
    pub draft_checks: Vec<DraftCheck>,
}

/// The speculative loop with part of the prompt's context rows.
#[derive(Debug, Deserialize)]
pub struct GoldenArm {
    /// Rows `prompt - keep[1] .. prompt - keep[0]` are there, the other prompt rows are masked.
    pub keep: [usize; 2],
    /// Emitted tokens a step.
    #[serde(rename = "AL")]
    pub acceptance_length: f32,
    /// The steps.
    pub steps: Vec<GoldenStep>,
}

/// One draft and verify.
#[derive(Debug, Deserialize)]
pub struct GoldenStep {
    /// Position of the anchor.
    pub anchor: usize,
    /// Drafts.
    pub drafts: Vec<u32>,
    /// Drafts kept.
    pub accepted: usize,
    /// Confidence of each draft.
    pub confidence: Vec<f32>,
}

/// Some logits at a position.
#[derive(Debug, Deserialize)]
pub struct TargetCheck {
    /// Position within prompt and text.
    pub position: usize,
    /// The likeliest token after it.
    pub argmax: u32,
    /// Logarithm of the sum of exponentials of all logits.
    pub logsumexp: f32,
    /// Tokens whose logits are recorded.
    pub vocab: Vec<usize>,
    /// Their logits.
    pub logits: Vec<f32>,
}

/// The first values of each captured layer at a position.
#[derive(Debug, Deserialize)]
pub struct CaptureCheck {
    /// Position within the prompt.
    pub position: usize,
    /// Eight values a captured layer.
    pub first8_per_layer: Vec<Vec<f32>>,
}

/// The first values of a context row.
#[derive(Debug, Deserialize)]
pub struct ContextCheck {
    /// Position within the prompt.
    pub position: usize,
    /// Layer of the drafter.
    pub layer: usize,
    /// Key, after norm and rotation.
    pub k_first8: Vec<f32>,
    /// Value.
    pub v_first8: Vec<f32>,
}

/// One slot of a block.
#[derive(Debug, Deserialize)]
pub struct DraftCheck {
    /// Slot of the block.
    pub slot: usize,
    /// The likeliest token before the Markov bias.
    pub base_argmax: u32,
    /// Tokens whose logits are recorded.
    pub vocab: Vec<usize>,
    /// Their logits before the Markov bias.
    pub base_logits: Vec<f32>,
    /// Hidden state after the final norm.
    pub hidden_first8: Vec<f32>,
}

#[derive(Deserialize)]
struct GoldenFile {
    cases: Vec<GoldenCase>,
}

/// Reads `golden.json`.
///
/// # Errors
/// When the bytes are not JSON of that form.
pub fn golden_cases(json: &[u8]) -> Result<Vec<GoldenCase>, PairError> {
    let file: GoldenFile = serde_json::from_slice(json)
        .map_err(|source| PairError::Json { file: "golden.json".into(), source })?;
    Ok(file.cases)
}
