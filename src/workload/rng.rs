//! A seeded pseudo-random generator: splitmix64.

use std::ops::RangeInclusive;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The splitmix64 generator; its state is the seed. Equal seeds give equal sequences on every
/// platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        finish(self.0)
    }

    /// A number less than `n`; 0 if `n` is 0. The bias is below `n` / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `range`, both ends included; its start if it is empty.
    pub fn uniform(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        match high.saturating_sub(low).checked_add(1) {
            Some(span) => low + self.below(span),
            None => self.next_u64(),
        }
    }

    /// Failures before the first success when each trial succeeds with probability `p` (mean `(1 -
    /// p) / p`). `p >= 1` gives 0; when `p` is zero, negative, NaN or vanishes beside 1, success
    /// never comes: `u64::MAX`.
    pub fn geometric(&mut self, p: f64) -> u64 {
        let threshold = ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let fail = if p > 0.0 { (1.0 - p).max(0.0) } else { 1.0 };
        // The largest k with fail^k >= threshold, bit by bit from the top. Only products: `ln` is
        // not the same on every platform.
        let mut powers = [fail; 64];
        for bit in 1..64 {
            powers[bit] = powers[bit - 1] * powers[bit - 1];
        }
        let mut reached = 1.0;
        let mut failures = 0;
        for bit in (0..64).rev() {
            if reached * powers[bit] >= threshold {
                reached *= powers[bit];
                failures |= 1 << bit;
            }
        }
        failures
    }
}

/// A hash of two numbers, well spread over 64 bits.
pub fn mix(a: u64, b: u64) -> u64 {
    finish(finish(a.wrapping_add(GOLDEN)) ^ b.wrapping_mul(GOLDEN))
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        // The reference implementation's first values for seed 1234567.
        let mut rng = Rng(1234567);
        assert_eq!(rng.next_u64(), 6457827717110365317);
        assert_eq!(rng.next_u64(), 3203168211198807973);
        assert_eq!(rng.next_u64(), 9817491932198370423);
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_both_ends() {
        let mut rng = Rng(1);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.uniform(5..=8)).collect();
        assert!(drawn.iter().all(|n| (5..=8).contains(n)));
        assert!((5..=8).all(|n| drawn.contains(&n)));
    }

    #[test]
    fn degenerate_arguments_do_not_panic() {
        let mut rng = Rng(1);
        let (low, high) = (8, 5);
        assert_eq!(rng.uniform(low..=high), 8);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.uniform(7..=7), 7);
        rng.uniform(0..=u64::MAX);
        assert_eq!(rng.geometric(1.0), 0);
        assert_eq!(rng.geometric(f64::INFINITY), 0);
        assert_eq!(rng.geometric(0.0), u64::MAX);
        assert_eq!(rng.geometric(-1.0), u64::MAX);
        assert_eq!(rng.geometric(f64::NAN), u64::MAX);
    }

    #[test]
    fn geometric_numbers_have_their_mean() {
        let mut rng = Rng(1);
        let sum: u64 = (0..100_000).map(|_| rng.geometric(0.1)).sum();
        let mean = sum as f64 / 100_000.0;
        assert!((mean - 9.0).abs() < 0.15, "mean {mean}");
    }
}
