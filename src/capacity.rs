//! What the memory of a rank holds: pages, tokens and bytes by group, and what a split by bytes per
//! token would have given.

use crate::{Config, ConfigError, Geometry};
use serde::Serialize;
use std::fmt;

/// Memory of one rank.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// Geometry.
    pub name: String,
    /// Tensor-parallel ranks.
    pub tp: u32,
    /// Bytes for pages on each.
    pub gpu_bytes: u64,
    /// Rows of a step.
    pub max_batch: u32,
    /// Sequences that can hold pages at once.
    pub admissible_sequences: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Longest sequence in tokens.
    pub max_seq_len: u32,
    /// Groups.
    pub groups: Vec<GroupCapacity>,
}

/// Memory of one group on one rank.
#[derive(Clone, Debug, Serialize)]
pub struct GroupCapacity {
    /// Name.
    pub name: String,
    /// Window in tokens.
    pub window_tokens: Option<u32>,
    /// Bytes of a token in all its layers.
    pub bytes_per_token: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages each admissible sequence needs at most, for a windowed group.
    pub pages_per_sequence: Option<u32>,
    /// Pages.
    pub pages: u64,
    /// Tokens they hold.
    pub tokens: u64,
    /// Bytes they take.
    pub bytes: u64,
    /// Bytes a split by bytes per token would give.
    pub bytes_by_token_split: u64,
    /// Tokens that would hold.
    pub tokens_by_token_split: u64,
}

impl Capacity {
    /// The memory of one of `tp` ranks under `config`, whose buffers are the whole model's.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn new(config: &Config, tp: u32) -> Result<Self, ConfigError> {
        if tp == 0 {
            return Err(ConfigError::new("tp", tp, "takes at least 1"));
        }
        let geometry = Geometry::new(&config.clone().sharded(tp))?;
        let page_tokens = u64::from(config.page_tokens);
        let token_bytes: u64 = geometry.groups.iter().map(|g| g.page_bytes() / page_tokens).sum();
        let group = |group: &crate::GroupGeometry| {
            let bytes_per_token = group.page_bytes() / page_tokens;
            let tokens_by_token_split = config.hot_bytes / token_bytes;
            let headroom = geometry.lookahead.headroom_tokens();
            let window_tokens = group.retention.window_tokens;
            let pages = u64::from(group.pages);
            GroupCapacity {
                name: group.name.clone(),
                window_tokens,
                bytes_per_token,
                page_bytes: group.page_bytes(),
                pages_per_sequence: window_tokens
                    .map(|window| crate::window_pages(window, headroom, config.page_tokens)),
                pages,
                tokens: pages * page_tokens,
                bytes: pages * group.page_bytes(),
                bytes_by_token_split: tokens_by_token_split * bytes_per_token,
                tokens_by_token_split,
            }
        };
        Ok(Self {
            name: config.name.clone(),
            tp,
            gpu_bytes: config.hot_bytes,
            max_batch: config.max_batch,
            admissible_sequences: geometry.admissible_sequences(),
            page_tokens: config.page_tokens,
            max_seq_len: config.max_seq_len,
            groups: geometry.groups.iter().map(group).collect(),
        })
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        writeln!(
            f,
            "{}: {:.0} GiB on each of {} ranks, {} rows ({} admissible sequences), pages of {} \
             tokens, up to {} tokens a sequence",
            self.name,
            gib(self.gpu_bytes),
            self.tp,
            self.max_batch,
            self.admissible_sequences,
            self.page_tokens,
            self.max_seq_len
        )?;
        writeln!(
            f,
            "{:<10}{:>8}{:>12}{:>10}{:>10}{:>12}{:>10} | split by bytes per token",
            "group", "window", "bytes/token", "pages/seq", "pages", "tokens", "GiB"
        )?;
        for group in &self.groups {
            let some = |value: Option<u32>| value.map_or("-".to_owned(), |v| v.to_string());
            writeln!(
                f,
                "{:<10}{:>8}{:>12}{:>10}{:>10}{:>12}{:>10.2} | {:.2} GiB, {} tokens",
                group.name,
                some(group.window_tokens),
                group.bytes_per_token,
                some(group.pages_per_sequence),
                group.pages,
                group.tokens,
                gib(group.bytes),
                gib(group.bytes_by_token_split),
                group.tokens_by_token_split
            )?;
        }
        Ok(())
    }
}
