//! Which positions a run of tokens attends to.

use std::ops::Range;

use super::kv::Run;

/// Consecutive tokens of one sequence, and what they may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Where the tokens sit in their sequence.
    pub run: Run,
    /// Index of the first token in the batch.
    pub first_token: usize,
    pub reach: Reach,
}

/// The positions a token reads, seen from its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Everything up to itself.
    Causal,
    /// A drafter block: the newest `window - 1` positions before the token that are not in
    /// `hidden`, and the whole block.
    Block { window: usize, hidden: (usize, usize) },
}

impl Segment {
    /// Positions the token at `offset` reads, were none hidden.
    pub(super) fn reads(&self, offset: usize) -> Range<usize> {
        let position = self.run.position + offset;
        match self.reach {
            Reach::Causal => 0..position + 1,
            Reach::Block { window, .. } => {
                (position + 1).saturating_sub(window)..self.run.position + self.run.tokens
            }
        }
    }

    /// Positions that at least one of `tokens` tokens from `offset` on reads: the only rows that may
    /// be touched, since the others need not exist.
    pub(super) fn spans(&self, offset: usize, tokens: usize) -> [Range<usize>; 2] {
        let first = self.reads(offset).start;
        let end = self.reads(offset + tokens - 1).end;
        match self.reach {
            Reach::Block { hidden: (from, to), .. } if from < to => {
                let anchor = self.run.position;
                let from = from.clamp(first, anchor);
                [first..from, to.clamp(from, anchor)..end]
            }
            _ => [first..end, end..end],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Reach, Run, Segment};

    fn block(position: usize, hidden: (usize, usize)) -> Segment {
        let run = Run { sequence: 0, position, tokens: 7 };
        Segment { run, first_token: 0, reach: Reach::Block { window: 256, hidden } }
    }

    #[test]
    fn a_block_at_1000_reads_745_to_999_and_its_own_seven_slots() {
        let segment = block(1000, (0, 0));
        assert_eq!(segment.reads(0), 745..1007);
        assert_eq!(segment.reads(6), 751..1007);
        assert_eq!(segment.spans(0, 7), [745..1007, 1007..1007]);
    }

    #[test]
    fn hidden_positions_are_cut_out_of_the_context_only() {
        assert_eq!(block(1000, (0, 1000)).spans(0, 7), [745..745, 1000..1007]);
        assert_eq!(block(1000, (0, 936)).spans(0, 7), [745..745, 936..1007]);
        assert_eq!(block(1000, (992, 1000)).spans(0, 7), [745..992, 1000..1007]);
        assert_eq!(block(1000, (0, 2000)).spans(0, 7), [745..745, 1000..1007]);
        assert_eq!(block(1000, (0, 700)).spans(0, 7), [745..745, 745..1007]);
    }

    #[test]
    fn a_causal_token_reads_everything_up_to_itself() {
        let run = Run { sequence: 0, position: 10, tokens: 4 };
        let segment = Segment { run, first_token: 0, reach: Reach::Causal };
        assert_eq!(segment.reads(2), 0..13);
        assert_eq!(segment.spans(1, 2), [0..13, 13..13]);
    }
}
