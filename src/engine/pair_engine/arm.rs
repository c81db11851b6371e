//! What the drafter gets to see of the prompt: everything, or what a faulty transfer left.

use super::device_pages::DevicePages;
use crate::engine::pair::{Buffer, Kind, KvPages, Owner, PairConfig};
use std::str::FromStr;

/// What became of the drafter's context rows of the prompt. Everything but `Unified` is a fault
/// made on purpose, to be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftRows {
    /// All are there, as the core keeps them.
    #[default]
    Unified,
    /// None is there, and the drafter knows.
    Empty,
    /// All are read and are zero.
    Zeros,
    /// All are read and belong to the prompt computed before this one.
    Stale,
    /// Only so many of the newest are there, and the drafter knows.
    Newest(u32),
}

impl FromStr for DraftRows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unified" => Ok(Self::Unified),
            "empty" => Ok(Self::Empty),
            "zeros" => Ok(Self::Zeros),
            "stale" => Ok(Self::Stale),
            _ => {
                let tokens = text.strip_prefix("newest:").and_then(|tokens| tokens.parse().ok());
                tokens.map(Self::Newest).ok_or_else(|| {
                    format!("`{text}`: takes unified, empty, zeros, stale or newest:64")
                })
            }
        }
    }
}

impl DraftRows {
    /// Context positions before this one are hidden, of a prompt of `prompt_tokens`.
    pub(super) fn hidden_before(self, prompt_tokens: u32) -> u32 {
        match self {
            Self::Unified | Self::Zeros | Self::Stale => 0,
            Self::Empty => prompt_tokens,
            Self::Newest(tokens) => prompt_tokens.saturating_sub(tokens),
        }
    }
}

/// Rows that are read in place of a prompt's window. The pages keep the true rows, so that what
/// others claim of them stays true.
#[derive(Clone, Debug)]
pub(super) struct PromptRows {
    first: usize,
    end: usize,
    row_values: usize,
    /// `[buffers, end - first, row_values]`.
    values: Vec<f32>,
}

impl PromptRows {
    /// Zeros for the window at the end of a prompt.
    pub(super) fn zeros(config: &PairConfig, prompt_tokens: usize) -> Self {
        let first = prompt_tokens.saturating_sub(config.window);
        let row_values = config.draft_shape().kv_dim();
        let values = vec![0.0; 2 * config.d_layers * (prompt_tokens - first) * row_values];
        Self { first, end: prompt_tokens, row_values, values }
    }

    /// The rows that are really there, for positions before `from` zeros.
    pub(super) fn copied(
        config: &PairConfig,
        pages: &DevicePages<'_>,
        row: usize,
        prompt_tokens: usize,
        from: usize,
    ) -> Self {
        let mut rows = Self::zeros(config, prompt_tokens);
        for layer in 0..config.d_layers {
            for kind in [Kind::Key, Kind::Value] {
                let buffer = Buffer { owner: Owner::Draft, layer, kind };
                for position in rows.first.max(from)..rows.end {
                    let value = &pages.rows(row, buffer, position)[..rows.row_values];
                    let at = rows.at(buffer, position);
                    rows.values[at..at + rows.row_values].copy_from_slice(value);
                }
            }
        }
        rows
    }

    /// The same content at the end of another prompt; what is missing in front is zero.
    pub(super) fn moved_to(&self, config: &PairConfig, prompt_tokens: usize) -> Self {
        let mut moved = Self::zeros(config, prompt_tokens);
        let rows = (self.end - self.first).min(moved.end - moved.first);
        let count = rows * self.row_values;
        for (from, to) in self
            .values
            .chunks((self.end - self.first) * self.row_values)
            .zip(moved.values.chunks_mut((moved.end - moved.first) * self.row_values))
        {
            let (from_at, to_at) = (from.len() - count, to.len() - count);
            to[to_at..].copy_from_slice(&from[from_at..]);
        }
        moved
    }

    fn at(&self, buffer: Buffer, position: usize) -> usize {
        let index = 2 * buffer.layer + usize::from(buffer.kind == Kind::Value);
        (index * (self.end - self.first) + position - self.first) * self.row_values
    }

    /// Rows from `position` to the end of the prompt, if it lies in the window.
    pub(super) fn from(&self, buffer: Buffer, position: usize) -> Option<&[f32]> {
        let is_inside = (self.first..self.end).contains(&position);
        is_inside.then(|| {
            let at = self.at(buffer, position);
            &self.values[at..at + (self.end - position) * self.row_values]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_read_as_written() {
        assert_eq!("unified".parse(), Ok(DraftRows::Unified));
        assert_eq!("newest:64".parse(), Ok(DraftRows::Newest(64)));
        assert!("newest:".parse::<DraftRows>().is_err());
        assert_eq!(DraftRows::Newest(64).hidden_before(100), 36);
        assert_eq!(DraftRows::Empty.hidden_before(100), 100);
    }
}
