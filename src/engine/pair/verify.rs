//! How many drafts to keep, and the token after them. Every rule emits the target's distribution;
//! they differ in how many drafts survive.

use super::random::{Draw, uniform};
use super::sample::{Sampling, distribution, emit, pick};

/// When a draft counts as right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is the token the target samples at that place with the request's seed. The text is that
    /// of plain decoding, token for token.
    ExactMatch,
    /// With probability `min(1, target / drafter)`, draft by draft.
    Rejection,
    /// The longest prefix whose joint probability ratio passes (Sun et al. 2024); on average never
    /// shorter than [`Rule::Rejection`] keeps.
    Block,
}

/// One sequence's drafts and what the target thinks of them.
#[derive(Clone, Copy, Debug)]
pub struct VerifyRow<'a> {
    /// Position of the anchor, the token before the first draft.
    pub position: usize,
    /// Drafts the target ran; fewer than a block when the verify length was cut.
    pub drafts: &'a [u32],
    /// Distributions the drafts were chosen from, `[drafts or more, vocab]`; may be empty for
    /// [`Rule::ExactMatch`] and at temperature 0.
    pub draft_probabilities: &'a [f32],
    /// The target's logits after the anchor and after each draft, `[drafts + 1, vocab]`.
    pub logits: &'a [f32],
    /// How the request samples. At temperature 0 every rule is greedy verification.
    pub sampling: Sampling,
}

/// What a verify step emits: `accepted` drafts, then `next`, which is the new anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Drafts kept, from the first on.
    pub accepted: usize,
    /// The token after them.
    pub next: u32,
}

/// Memory of a verification, reused.
#[derive(Debug, Default)]
pub struct VerifyScratch {
    target: Vec<f32>,
    residual: Vec<f32>,
}

/// Applies `rule` to one sequence.
///
/// # Panics
/// When the logits are not one row more than the drafts, or distributions the rule needs are missing.
pub fn verify(rule: Rule, row: &VerifyRow<'_>, scratch: &mut VerifyScratch) -> Verdict {
    let rows = row.drafts.len() + 1;
    let vocab = row.logits.len() / rows;
    assert_eq!(vocab * rows, row.logits.len(), "one row of logits more than drafts");
    if rule == Rule::ExactMatch || row.sampling.temperature <= 0.0 {
        return match_exactly(row, vocab, &mut scratch.target);
    }
    scratch.target.resize(row.logits.len(), 0.0);
    for (logits, out) in row.logits.chunks(vocab).zip(scratch.target.chunks_mut(vocab)) {
        distribution(logits, row.sampling.temperature, out);
    }
    let odds = Odds {
        target: &scratch.target,
        draft: &row.draft_probabilities[..row.drafts.len() * vocab],
        drafts: row.drafts,
        vocab,
    };
    let chance = |slot| uniform(row.sampling.seed, row.position, Draw::Accept { slot });
    let (accepted, weight) = match rule {
        Rule::Block => odds.longest_block(chance),
        _ => (odds.first_rejection(chance), 1.0),
    };
    let weights = odds.residual(accepted, weight, &mut scratch.residual);
    let next = pick(weights, uniform(row.sampling.seed, row.position, Draw::Replacement));
    Verdict { accepted, next }
}

fn match_exactly(row: &VerifyRow<'_>, vocab: usize, scratch: &mut Vec<f32>) -> Verdict {
    let mut accepted = 0;
    loop {
        let logits = &row.logits[accepted * vocab..(accepted + 1) * vocab];
        let next = emit(logits, row.sampling, row.position + 1 + accepted, scratch);
        if row.drafts.get(accepted) != Some(&next) {
            return Verdict { accepted, next };
        }
        accepted += 1;
    }
}

/// Distributions of target and drafter over the places of the drafts.
struct Odds<'a> {
    target: &'a [f32],
    draft: &'a [f32],
    drafts: &'a [u32],
    vocab: usize,
}

impl Odds<'_> {
    fn at<'a>(&self, probabilities: &'a [f32], slot: usize) -> &'a [f32] {
        &probabilities[slot * self.vocab..(slot + 1) * self.vocab]
    }

    /// Target over drafter probability of the draft in a slot.
    fn ratio(&self, slot: usize) -> f64 {
        let token = self.drafts[slot] as usize;
        let (target, draft) = (self.at(self.target, slot)[token], self.at(self.draft, slot)[token]);
        f64::from(target) / f64::from(draft)
    }

    fn first_rejection(&self, chance: impl Fn(usize) -> f64) -> usize {
        (0..self.drafts.len())
            .find(|&slot| chance(slot) >= self.ratio(slot))
            .unwrap_or(self.drafts.len())
    }

    /// Length kept, and the joint ratio of what is kept.
    fn longest_block(&self, chance: impl Fn(usize) -> f64) -> (usize, f64) {
        let (mut kept, mut weight_kept, mut weight) = (0, 1.0f64, 1.0f64);
        for slot in 0..self.drafts.len() {
            weight = (weight * self.ratio(slot)).min(1.0);
            let after = slot + 1;
            let bar = if after == self.drafts.len() {
                weight
            } else {
                let mass = self.residual_mass(after, weight);
                // Zero over zero when both distributions agree and nothing was lost so far: then a
                // later place decides.
                if mass > 0.0 { mass / (mass + 1.0 - weight) } else { 0.0 }
            };
            if chance(slot) < bar {
                (kept, weight_kept) = (after, weight);
            }
        }
        (kept, weight_kept)
    }

    fn excess(&self, slot: usize, weight: f64) -> impl Iterator<Item = f64> {
        let pairs = self.at(self.target, slot).iter().zip(self.at(self.draft, slot));
        pairs.map(move |(target, draft)| (weight * f64::from(*target) - f64::from(*draft)).max(0.0))
    }

    fn residual_mass(&self, slot: usize, weight: f64) -> f64 {
        self.excess(slot, weight).sum()
    }

    /// Weights of the token after `accepted` drafts: what the target has in excess of the drafter,
    /// or the target's own distribution when no draft is left.
    fn residual<'a>(&'a self, accepted: usize, weight: f64, out: &'a mut Vec<f32>) -> &'a [f32] {
        let target = self.at(self.target, accepted);
        if accepted == self.drafts.len() {
            return target;
        }
        out.clear();
        out.extend(self.excess(accepted, weight).map(|excess| excess as f32));
        // A rejection has zero excess only by rounding, when both distributions are the same.
        if out.iter().all(|excess| *excess == 0.0) { target } else { out }
    }
}

#[cfg(test)]
#[path = "tests/verify.rs"]
mod tests;
