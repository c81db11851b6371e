//! Random numbers by counter: what is drawn depends on the request's seed and on what it is for,
//! never on the batch, the schedule or what was drawn before.

/// What a number decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The token after a position, where the target alone decides. Independent of speculation, so
    /// that exact-match sampling emits the text of plain sampling.
    Token,
    /// The draft in a slot of the block anchored at a position.
    Draft {
        /// Slot of the block.
        slot: usize,
    },
    /// Whether the draft in a slot is accepted. Keyed by anchor and slot rather than by the draft's
    /// own position: block verification looks at drafts it then drops, and a number used again at
    /// the same position in the next step would no longer be uniform.
    Accept {
        /// Slot of the block.
        slot: usize,
    },
    /// The token that replaces the first rejected draft, or follows the last accepted one.
    Replacement,
}

/// A number in `[0, 1)`.
#[must_use]
pub fn uniform(seed: u64, position: usize, draw: Draw) -> f64 {
    let (kind, slot) = match draw {
        Draw::Token => (0, 0),
        Draw::Draft { slot } => (1, slot),
        Draw::Accept { slot } => (2, slot),
        Draw::Replacement => (3, 0),
    };
    let key = mix(mix(mix(seed) ^ position as u64) ^ ((slot as u64) << 2 | kind));
    (key >> 11) as f64 / (1u64 << 53) as f64
}

/// One step of SplitMix64, a bijection whose outputs look independent for consecutive inputs.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Draw, uniform};

    #[test]
    fn numbers_over_seeds_positions_and_slots_are_uniform() {
        let mut bins = [0u32; 16];
        for seed in 0..40 {
            for position in 0..100 {
                for slot in 0..7 {
                    for draw in [Draw::Draft { slot }, Draw::Accept { slot }] {
                        bins[(uniform(seed, position, draw) * 16.0) as usize] += 1;
                    }
                }
            }
        }
        let expected = 40.0 * 100.0 * 14.0 / 16.0;
        let chi_square: f64 =
            bins.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
        assert!(chi_square < 40.0, "{chi_square}");
    }

    #[test]
    fn the_same_question_has_the_same_answer_and_another_question_another() {
        let draws = [
            uniform(1, 5, Draw::Token),
            uniform(2, 5, Draw::Token),
            uniform(1, 6, Draw::Token),
            uniform(1, 5, Draw::Draft { slot: 0 }),
            uniform(1, 5, Draw::Draft { slot: 1 }),
            uniform(1, 5, Draw::Accept { slot: 0 }),
            uniform(1, 5, Draw::Replacement),
        ];
        assert_eq!(draws[0], uniform(1, 5, Draw::Token));
        for (i, a) in draws.iter().enumerate() {
            assert!(draws[..i].iter().all(|b| a != b));
        }
    }
}
