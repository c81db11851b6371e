//! From logits to a token.

use super::kernels::{Exponentials, Largest, run};
use super::random::{Draw, uniform};

/// How a request chooses its tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Seed of the request.
    pub seed: u64,
}

impl Sampling {
    /// The likeliest token, always.
    pub const GREEDY: Self = Self { temperature: 0.0, seed: 0 };
}

/// Index of the largest logit, the first of several.
#[must_use]
pub fn likeliest(logits: &[f32]) -> u32 {
    let top = run(Largest(logits));
    logits.iter().position(|logit| *logit == top).unwrap_or(0) as u32
}

/// Softmax of `logits / temperature`; at temperature 0 all mass on the likeliest.
pub fn distribution(logits: &[f32], temperature: f32, out: &mut [f32]) {
    if temperature <= 0.0 {
        out.fill(0.0);
        out[likeliest(logits) as usize] = 1.0;
        return;
    }
    for (out, logit) in out.iter_mut().zip(logits) {
        *out = logit / temperature;
    }
    let top = run(Largest(out));
    let sum = run(Exponentials { scores: out, top });
    out.iter_mut().for_each(|weight| *weight /= sum);
}

/// The token at `uniform` of the way through non-negative weights, which need not sum to one.
#[must_use]
pub fn pick(weights: &[f32], uniform: f64) -> u32 {
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let goal = uniform * total;
    let (mut below, mut last) = (0.0, 0);
    for (token, weight) in weights.iter().enumerate() {
        if *weight > 0.0 {
            below += f64::from(*weight);
            last = token as u32;
            if goal < below {
                break;
            }
        }
    }
    last
}

/// The token the target alone would emit at `position`, from the logits of the token before it.
/// `scratch` is overwritten.
pub fn emit(logits: &[f32], sampling: Sampling, position: usize, scratch: &mut Vec<f32>) -> u32 {
    if sampling.temperature <= 0.0 {
        return likeliest(logits);
    }
    scratch.resize(logits.len(), 0.0);
    distribution(logits, sampling.temperature, scratch);
    pick(scratch, uniform(sampling.seed, position, Draw::Token))
}

#[cfg(test)]
mod tests {
    use super::{Sampling, distribution, emit, likeliest, pick};

    #[test]
    fn the_first_of_equal_logits_wins() {
        assert_eq!(likeliest(&[1.0, 3.0, 3.0, 2.0]), 1);
    }

    #[test]
    fn a_token_without_weight_is_never_picked() {
        let weights = [0.0, 0.25, 0.0, 0.75, 0.0];
        assert_eq!(pick(&weights, 0.0), 1);
        assert_eq!(pick(&weights, 0.249), 1);
        assert_eq!(pick(&weights, 0.25), 3);
        assert_eq!(pick(&weights, 1.0 - f64::EPSILON), 3);
    }

    #[test]
    fn temperature_sharpens_until_only_the_likeliest_is_left() {
        let (mut warm, mut cold, mut zero) = ([0.0; 3], [0.0; 3], [0.0; 3]);
        let logits = [1.0, 2.0, 0.0];
        distribution(&logits, 1.0, &mut warm);
        distribution(&logits, 0.5, &mut cold);
        distribution(&logits, 0.0, &mut zero);
        assert!((warm.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((warm[1] / warm[0] - 1f32.exp()).abs() < 1e-5);
        assert!((cold[1] / cold[0] - 2f32.exp()).abs() < 1e-5);
        assert_eq!(zero, [0.0, 1.0, 0.0]);
    }

    #[test]
    fn the_token_at_a_position_depends_on_the_seed_alone() {
        let logits = [0.0; 64];
        let mut scratch = Vec::new();
        let mut text = |seed| -> Vec<u32> {
            let sampling = Sampling { temperature: 1.0, seed };
            (0..32).map(|position| emit(&logits, sampling, position, &mut scratch)).collect()
        };
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
