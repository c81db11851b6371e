//! The forced engine: accepts as told, makes tokens up, and keeps virtual time.
//!
//! A token depends on its request and position alone, and the accepted length on seed, request and
//! position: however requests are batched, preempted or resumed, they say the same.

use crate::engine::{Engine, EngineError};
use crate::workload::rng::{Rng, mix};
use crate::{Outcome, Plan};
use paceline_kernels::{FLAG_BOUND, FLAG_DUMMY, FLAG_PREFILL, RowMeta};
use std::str::FromStr;

/// How many tokens a decode row emits, its bonus token included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accept {
    /// Always so many.
    Fixed(u32),
    /// Evenly between two numbers.
    Uniform(u32, u32),
    /// Each draft is accepted with this probability while those before it were.
    Geometric(f64),
}

impl FromStr for Accept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "`{text}`: takes a number of tokens (4), a range (uniform:1-8) or a probability \
                 (geometric:0.8)"
            )
        };
        if let Some(range) = text.strip_prefix("uniform:") {
            let (least, most) = range.split_once('-').ok_or_else(expected)?;
            let number = |n: &str| n.parse().ok().filter(|n| *n > 0).ok_or_else(expected);
            let (least, most) = (number(least)?, number(most)?);
            if least > most { Err(expected()) } else { Ok(Self::Uniform(least, most)) }
        } else if let Some(chance) = text.strip_prefix("geometric:") {
            let chance = chance.parse().ok().filter(|c| (0.0..=1.0).contains(c));
            chance.map(Self::Geometric).ok_or_else(expected)
        } else {
            text.parse().ok().filter(|n| *n > 0).map(Self::Fixed).ok_or_else(expected)
        }
    }
}

impl Accept {
    fn draw(self, rng: &mut Rng, most: u32) -> u32 {
        let drawn = match self {
            Self::Fixed(count) => u64::from(count),
            Self::Uniform(least, most) => rng.uniform(u64::from(least)..=u64::from(most)),
            Self::Geometric(chance) => rng.geometric(1.0 - chance).saturating_add(1),
        };
        drawn.min(u64::from(most)) as u32
    }
}

/// Virtual time of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// Of any step.
    pub base_ns: u64,
    /// For each prompt token computed.
    pub prefill_token_ns: u64,
    /// For each decode row.
    pub decode_row_ns: u64,
}

impl StepTime {
    /// Time a row adds to a step.
    #[must_use]
    pub fn row_ns(&self, row: &RowMeta) -> u64 {
        if row.has(FLAG_PREFILL) {
            self.prefill_token_ns * u64::from(row.tokens)
        } else {
            self.decode_row_ns
        }
    }
}

impl Default for StepTime {
    fn default() -> Self {
        Self { base_ns: 12_000_000, prefill_token_ns: 40_000, decode_row_ns: 100_000 }
    }
}

/// The engine.
#[derive(Clone, Debug)]
pub struct Forced {
    accept: Accept,
    time: StepTime,
    seed: u64,
    vocabulary: u32,
    /// Positions each row's device state has final.
    lengths: Vec<u32>,
    emitted: Vec<u32>,
}

impl Forced {
    /// An engine for batches of up to `max_batch` rows.
    #[must_use]
    pub fn new(accept: Accept, time: StepTime, seed: u64, vocabulary: u32, max_batch: u32) -> Self {
        let lengths = vec![0; max_batch as usize + 1];
        Self { accept, time, seed, vocabulary, lengths, emitted: Vec::new() }
    }

    fn run_row(&mut self, row: &RowMeta) {
        let length = &mut self.lengths[row.row as usize];
        if row.has(FLAG_BOUND) {
            *length = row.start;
        }
        let (least, most) = row.emits();
        let count = if row.has(FLAG_PREFILL) {
            *length = row.start_bound + row.tokens;
            least
        } else {
            let draw = mix(mix(self.seed, row.request()), u64::from(*length));
            let count = self.accept.draw(&mut Rng(draw), most).max(least);
            *length += count;
            count
        };
        // The tokens after the last final position: history is one short of the known tokens.
        for position in *length + 1 - count..*length + 1 {
            let token = mix(row.request() ^ 0x7ac3, u64::from(position)) as u32;
            self.emitted.push(16 + token % (self.vocabulary - 16));
        }
    }
}

impl Engine for Forced {
    fn run(&mut self, plan: Plan<'_>, outcome: &mut Outcome) -> Result<u64, EngineError> {
        let mut time = self.time.base_ns;
        for row in plan.rows() {
            self.emitted.clear();
            if !row.has(FLAG_DUMMY) {
                self.run_row(row);
            }
            outcome.push_row(&self.emitted);
            time += self.time.row_ns(row);
        }
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_is_read_as_written() {
        assert_eq!("4".parse(), Ok(Accept::Fixed(4)));
        assert_eq!("uniform:1-8".parse(), Ok(Accept::Uniform(1, 8)));
        assert_eq!("geometric:0.8".parse(), Ok(Accept::Geometric(0.8)));
        for wrong in ["0", "uniform:8-1", "uniform:3", "geometric:1.5", "often"] {
            assert!(wrong.parse::<Accept>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn geometric_acceptance_has_its_mean() {
        let mut rng = Rng(3);
        let drawn: u32 = (0..50_000).map(|_| Accept::Geometric(0.8).draw(&mut rng, 8)).sum();
        let expected = (1.0 - 0.8f64.powi(8)) / (1.0 - 0.8);
        assert!((f64::from(drawn) / 50_000.0 - expected).abs() < 0.03);
    }
}
