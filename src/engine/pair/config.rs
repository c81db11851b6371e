//! Sizes and conventions of a target/drafter pair (`config.json`).

use serde::Deserialize;

use super::error::PairError;

/// `config.json` of a pair.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PairConfig {
    /// Tokens in the vocabulary, specials included.
    pub vocab: usize,
    /// Width of the residual stream, of target and drafter alike.
    #[serde(rename = "d")]
    pub width: usize,
    /// Decoder layers of the target.
    pub layers: usize,
    /// Query heads of the target.
    pub heads: usize,
    /// Key/value heads of the target.
    pub kv_heads: usize,
    /// Values a head, of target and drafter alike.
    pub head_dim: usize,
    /// Inner width of the target's MLP.
    pub ff: usize,
    /// Base of the rotary frequencies.
    pub theta: f64,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// Longest position the target was built for.
    pub max_pos: usize,
    /// Layers of the drafter.
    pub d_layers: usize,
    /// Query heads of the drafter.
    pub d_heads: usize,
    /// Key/value heads of the drafter.
    pub d_kv_heads: usize,
    /// Inner width of the drafter's MLP.
    pub d_ff: usize,
    /// Target layers whose output (residual stream, before any norm) feeds the drafter.
    pub capture: Vec<usize>,
    /// A drafter query at position q reads positions `q - window + 1 ..`.
    pub window: usize,
    /// Drafts a step; also the width of the drafter's block.
    pub block: usize,
    /// Rank of the Markov head.
    pub markov_rank: usize,
    /// Vocabulary id that fills the block after the anchor.
    pub mask_id: u32,
    /// Ids that never match text.
    pub specials: Specials,
    tied_lm_head: bool,
    shift_label: bool,
}

/// Vocabulary ids with a meaning of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Specials {
    /// Start of a document.
    pub doc: u32,
    /// Fills the drafter's block.
    pub mask: u32,
    /// Before an input.
    #[serde(rename = "in")]
    pub input: u32,
    /// Before an answer.
    #[serde(rename = "out")]
    pub output: u32,
    /// End of an answer.
    pub end: u32,
}

/// What one decoder layer needs to know; the target's and the drafter's layers differ only here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerShape {
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// Inner width of the MLP.
    pub ff: usize,
    /// Added to the mean square in every norm.
    pub eps: f32,
}

impl LayerShape {
    /// Values in the queries of one token.
    #[must_use]
    pub fn query_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values in one K row (and in one V row).
    #[must_use]
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Columns of the fused query, key and value product.
    #[must_use]
    pub fn qkv_dim(&self) -> usize {
        self.query_dim() + 2 * self.kv_dim()
    }
}

impl PairConfig {
    /// Reads and checks `config.json`.
    ///
    /// # Errors
    /// When the text is not a configuration, or names a shape or convention this code does not serve.
    pub fn from_json(bytes: &[u8]) -> Result<Self, PairError> {
        let config: Self = serde_json::from_slice(bytes)
            .map_err(|source| PairError::Json { file: "config.json".into(), source })?;
        config.check()?;
        Ok(config)
    }

    /// Shape of the target's layers.
    #[must_use]
    pub fn target_shape(&self) -> LayerShape {
        LayerShape {
            width: self.width,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            ff: self.ff,
            eps: self.eps,
        }
    }

    /// Shape of the drafter's layers.
    #[must_use]
    pub fn draft_shape(&self) -> LayerShape {
        LayerShape {
            heads: self.d_heads,
            kv_heads: self.d_kv_heads,
            ff: self.d_ff,
            ..self.target_shape()
        }
    }

    /// Values captured a token: the residual streams of the captured layers, one after the other.
    #[must_use]
    pub fn capture_dim(&self) -> usize {
        self.capture.len() * self.width
    }

    fn check(&self) -> Result<(), PairError> {
        let rules = [
            (self.tied_lm_head, "tied_lm_head must be true"),
            (self.shift_label, "shift_label must be true"),
            (
                self.head_dim > 0 && self.head_dim.is_multiple_of(16),
                "head_dim must be a multiple of 16",
            ),
            (
                self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads),
                "kv_heads must divide heads",
            ),
            (
                self.d_kv_heads > 0 && self.d_heads.is_multiple_of(self.d_kv_heads),
                "d_kv_heads must divide d_heads",
            ),
            (self.capture.is_sorted_by(|a, b| a < b), "capture must ascend"),
            (
                self.capture.iter().all(|&layer| layer < self.layers),
                "capture must name target layers",
            ),
            (self.block >= 1 && self.block <= self.window, "block must be within 1..=window"),
            ((self.mask_id as usize) < self.vocab, "mask_id must be in the vocabulary"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(PairError::Config { rule }),
            None => Ok(()),
        }
    }
}
