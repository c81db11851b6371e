//! Rotary position embedding: NeoX half-split, absolute positions.

/// Frequencies of a head, in the precision the angles need at long contexts.
#[derive(Debug)]
pub(super) struct Rotary {
    frequencies: Vec<f64>,
}

impl Rotary {
    pub(super) fn new(theta: f64, head_dim: usize) -> Self {
        let exponents = (0..head_dim).step_by(2).map(|i| -(i as f64) / head_dim as f64);
        Self { frequencies: exponents.map(|exponent| theta.powf(exponent)).collect() }
    }

    /// Appends one row of half a head of cosines and sines.
    pub(super) fn push_angles(&self, position: usize, cos: &mut Vec<f32>, sin: &mut Vec<f32>) {
        for frequency in &self.frequencies {
            let (s, c) = (position as f64 * frequency).sin_cos();
            cos.push(c as f32);
            sin.push(s as f32);
        }
    }
}
