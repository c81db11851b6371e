//! Acceptance length, counted as `acceptance.json` counts it.

use super::DecodeStep;
use crate::engine::pair::Specials;

/// Tokens emitted and the steps they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// Tokens, the one after the drafts included.
    pub tokens: u64,
    /// Steps.
    pub steps: u64,
}

impl Acceptance {
    /// Counts the steps of one request whose `block` drafts all lie before the end of its text: the
    /// first end of answer or document, that token included.
    #[must_use]
    pub fn of(
        steps: impl IntoIterator<Item = DecodeStep>,
        prompt_tokens: u32,
        text: &[u32],
        block: u32,
        specials: Specials,
    ) -> Self {
        let stop = text.iter().position(|token| [specials.end, specials.doc].contains(token));
        let end = stop.map_or(text.len(), |stop| stop + 1) as u32;
        let mut sum = Self::default();
        for step in steps {
            if step.anchor - prompt_tokens + block < end {
                sum.add(Self { tokens: u64::from(step.emitted), steps: 1 });
            }
        }
        sum
    }

    /// Adds another count.
    pub fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.steps += other.steps;
    }

    /// Mean tokens a step; 0 without steps.
    #[must_use]
    pub fn length(&self) -> f64 {
        self.tokens as f64 / self.steps.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_when_its_drafts_lie_before_the_end() {
        let specials = Specials { doc: 0, mask: 1, input: 2, output: 3, end: 4 };
        let steps = [(100, 8), (108, 2), (110, 5)].map(|(anchor, emitted)| DecodeStep {
            request: 0,
            anchor,
            emitted,
        });
        let mut text = vec![9; 20];
        let count = |text: &[u32]| Acceptance::of(steps, 100, text, 7, specials);
        assert_eq!(count(&text), Acceptance { tokens: 15, steps: 3 });
        text[15] = 4;
        assert_eq!(count(&text), Acceptance { tokens: 10, steps: 2 });
        text[14] = 0;
        assert_eq!(count(&text), Acceptance { tokens: 8, steps: 1 });
    }
}
