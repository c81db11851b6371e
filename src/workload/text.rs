//! Token ids made from block ids: the traces name blocks of text, the engine wants tokens.

use super::rng::mix;

/// Tokens of one block id, as in the Mooncake traces.
pub const BLOCK_TOKENS: u32 = 512;

/// Token ids below this are kept for stop tokens.
const FIRST_TOKEN: u32 = 16;

/// A token-id source: equal blocks mean equal tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// Blocks of [`BLOCK_TOKENS`] tokens each, the last one perhaps shorter.
    Blocks {
        /// One id for each block.
        hash_ids: Vec<u64>,
        /// Tokens over all blocks.
        tokens: u32,
    },
    /// The token ids themselves.
    Ids(Vec<u32>),
}

impl Text {
    /// The number of tokens that [`append_to`](Self::append_to) appends. Blocks without an id have
    /// no text.
    pub fn tokens(&self) -> u32 {
        match self {
            Text::Blocks { hash_ids, tokens } => {
                let covered = hash_ids.len().saturating_mul(BLOCK_TOKENS as usize);
                (*tokens).min(u32::try_from(covered).unwrap_or(u32::MAX))
            }
            Text::Ids(ids) => u32::try_from(ids.len()).unwrap_or(u32::MAX),
        }
    }

    /// Appends the tokens to `out`. Token `i` of block `h` depends on `h`, `i` and `vocab` alone,
    /// is less than `vocab` and never a stop token (below 16), unless the vocabulary has no other.
    /// Explicit ids are appended as they are.
    pub fn append_to(&self, vocab: u32, out: &mut Vec<u32>) {
        let hash_ids = match self {
            Text::Blocks { hash_ids, .. } => hash_ids,
            Text::Ids(ids) => return out.extend_from_slice(ids),
        };
        let (first, span) = match vocab.checked_sub(FIRST_TOKEN) {
            None | Some(0) => (0, vocab.max(1)),
            Some(span) => (FIRST_TOKEN, span),
        };
        let tokens = self.tokens() as usize;
        out.reserve(tokens);
        let all = hash_ids
            .iter()
            .flat_map(|&hash_id| (0..u64::from(BLOCK_TOKENS)).map(move |i| mix(hash_id, i)));
        // The remainder is less than `span`, a u32.
        out.extend(all.take(tokens).map(|mixed| first + (mixed % u64::from(span)) as u32));
    }

    /// The blocks as (id, tokens) pairs; explicit token ids are cut into blocks named by their
    /// content.
    pub(super) fn blocks(&self) -> Vec<(u64, u32)> {
        match self {
            Text::Blocks { hash_ids, .. } => {
                let mut left = self.tokens();
                let sized = hash_ids.iter().map(|&hash_id| {
                    let tokens = left.min(BLOCK_TOKENS);
                    left -= tokens;
                    (hash_id, tokens)
                });
                sized.take_while(|&(_, tokens)| tokens > 0).collect()
            }
            Text::Ids(ids) => ids
                .chunks(BLOCK_TOKENS as usize)
                .map(|chunk| {
                    let name = chunk.iter().fold(0, |name, &id| mix(name, u64::from(id)));
                    (name, chunk.len() as u32)
                })
                .collect(),
        }
    }
}
