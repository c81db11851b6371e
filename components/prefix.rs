//! Identity of shared content: the chain of page keys of a token sequence.
//!
//! A page's key depends on every token before it, on its own tokens, and on the extra keys of the
//! request; nothing else is compared, so the hash is SHA-256 (its first 128 bits name a page). Full
//! pages have a fixed length, so the chain is SHA-256's own compression chain from a typed root:
//! nothing is padded and nothing hashed twice. A page that holds part of a multimodal item folds
//! the item's digest in by a hash of another kind.

use serde::{Deserialize, Serialize};
use sha2::digest::generic_array::{GenericArray, typenum::U64};
use sha2::{Digest, Sha256, compress256};

/// Name of a full page's content and of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageKey(pub u128);

/// What keeps equal tokens apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraKeys {
    /// Name of the LoRA adapter.
    #[serde(default)]
    pub lora: Option<String>,
    /// Salt of the tenant.
    #[serde(default)]
    pub salt: Option<String>,
    /// Multimodal items, in order of position.
    #[serde(default)]
    pub items: Vec<Item>,
}

/// A multimodal item behind placeholder tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Position of its first placeholder.
    pub position: u32,
    /// Number of placeholders.
    pub tokens: u32,
    /// Digest of its content, in full width.
    pub digest: [u8; 32],
}

impl ExtraKeys {
    /// State of the chain in front of the first token. Kinds are tagged and lengths written, so
    /// that no two kinds can give the same bytes.
    fn root(&self) -> [u32; 8] {
        let mut hasher = Sha256::new();
        hasher.update(b"paceline root");
        for (tag, key) in [(1u8, &self.lora), (2, &self.salt)] {
            if let Some(key) = key {
                hasher.update([tag]);
                hasher.update((key.len() as u64).to_le_bytes());
                hasher.update(key.as_bytes());
            }
        }
        state(hasher)
    }

    /// Folds the items that overlap the page at `first` into its state.
    fn fold(&self, page: &mut [u32; 8], first: u32, page_tokens: u32) {
        for item in &self.items {
            if item.position < first + page_tokens && first < item.position + item.tokens {
                let mut hasher = Sha256::new();
                hasher.update(b"paceline item");
                hasher.update(bytes(page));
                hasher.update(item.position.wrapping_sub(first).to_le_bytes());
                hasher.update(item.tokens.to_le_bytes());
                hasher.update(item.digest);
                *page = state(hasher);
            }
        }
    }
}

fn state(hasher: Sha256) -> [u32; 8] {
    let digest = hasher.finalize();
    std::array::from_fn(|word| {
        u32::from_be_bytes(std::array::from_fn(|byte| digest[4 * word + byte]))
    })
}

fn bytes(state: &[u32; 8]) -> [u8; 32] {
    std::array::from_fn(|byte| state[byte / 4].to_be_bytes()[byte % 4])
}

fn key(state: &[u32; 8]) -> PageKey {
    PageKey(state[..4].iter().fold(0, |key, word| key << 32 | u128::from(*word)))
}

/// Keys of a sequence's full pages. Every token is hashed once, when its page is full.
///
/// ```
/// use paceline_components::{ExtraKeys, KeyChain};
/// let tokens: Vec<u32> = (0..10).collect();
/// let mut chain = KeyChain::new(4, ExtraKeys::default());
/// chain.extend(&tokens);
/// assert_eq!(chain.keys().len(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct KeyChain {
    page_tokens: u32,
    extra: ExtraKeys,
    root: PageKey,
    state: [u32; 8],
    keys: Vec<PageKey>,
}

impl Default for KeyChain {
    fn default() -> Self {
        let (state, root, keys) = ([0; 8], PageKey(0), Vec::new());
        Self { page_tokens: 1, extra: ExtraKeys::default(), root, state, keys }
    }
}

impl KeyChain {
    /// The chain in front of the first token.
    #[must_use]
    pub fn new(page_tokens: u32, extra: ExtraKeys) -> Self {
        let state = extra.root();
        Self { page_tokens, root: key(&state), state, extra, keys: Vec::new() }
    }

    /// Makes room for the pages of `tokens` tokens.
    pub fn reserve(&mut self, tokens: u32) {
        let pages = (tokens / self.page_tokens) as usize;
        self.keys.reserve(pages.saturating_sub(self.keys.len()));
    }

    /// Hashes the pages that `tokens`, the whole sequence, has filled since.
    pub fn extend(&mut self, tokens: &[u32]) {
        const BLOCKS: usize = 8;
        let page = self.page_tokens as usize;
        let mut blocks = [GenericArray::<u8, U64>::default(); BLOCKS];
        for ids in tokens.chunks_exact(page).skip(self.keys.len()) {
            for ids in ids.chunks(16 * BLOCKS) {
                let count = ids.len().div_ceil(16);
                for (block, ids) in blocks.iter_mut().zip(ids.chunks(16)) {
                    let ids: &[u8] = bytemuck::cast_slice(ids);
                    block[..ids.len()].copy_from_slice(ids);
                    block[ids.len()..].fill(0);
                }
                compress256(&mut self.state, &blocks[..count]);
            }
            if !self.extra.items.is_empty() {
                let first = self.keys.len() as u32 * self.page_tokens;
                self.extra.fold(&mut self.state, first, self.page_tokens);
            }
            self.keys.push(key(&self.state));
        }
    }

    /// Keys of the full pages, in order.
    #[must_use]
    pub fn keys(&self) -> &[PageKey] {
        &self.keys
    }

    /// Key of the place in front of the first token.
    #[must_use]
    pub fn root(&self) -> PageKey {
        self.root
    }

    /// Position of the first multimodal item's token at or after `position`: a partial page is
    /// only compared by its tokens, so it must not reach into an item.
    #[must_use]
    pub fn next_item(&self, position: u32) -> u32 {
        let ahead = self.extra.items.iter().filter(|item| item.position + item.tokens > position);
        ahead.map(|item| item.position.max(position)).min().unwrap_or(u32::MAX)
    }
}

/// What became of the drafter's window when a request took its claim (kv-cache-rules §6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftWindow {
    /// Nothing was claimed, or there is no optional group.
    #[default]
    None,
    /// Complete where the match ends.
    Selected,
    /// Complete at the last full page of the match: the claim ends there.
    Retried,
    /// Missing: the claim is cut so that the prompt's rest rewrites the window.
    Capped,
    /// Missing, and the prompt's rest is longer than the window: the claim stands.
    Uncapped,
}

/// A page became findable or ceased to be: what router events are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A full page is findable in a group.
    Stored {
        /// Its content.
        key: PageKey,
        /// The page before it, or the root of its namespace.
        parent: PageKey,
        /// The group.
        group: u32,
        /// Leading tokens it covers.
        coverage_tokens: u32,
    },
    /// It is no longer.
    Removed {
        /// Its content.
        key: PageKey,
        /// The group.
        group: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(tokens: &[u32], extra: ExtraKeys) -> Vec<PageKey> {
        let mut chain = KeyChain::new(4, extra);
        chain.extend(tokens);
        chain.keys().to_vec()
    }

    fn lora(name: &str) -> ExtraKeys {
        ExtraKeys { lora: Some(name.to_owned()), ..ExtraKeys::default() }
    }

    fn salt(name: &str) -> ExtraKeys {
        ExtraKeys { salt: Some(name.to_owned()), ..ExtraKeys::default() }
    }

    fn image(position: u32, digest: u8) -> ExtraKeys {
        let mut bytes = [7; 32];
        bytes[0] = digest;
        ExtraKeys {
            items: vec![Item { position, tokens: 3, digest: bytes }],
            ..ExtraKeys::default()
        }
    }

    #[test]
    fn one_shot_and_incremental_chains_agree() {
        let tokens: Vec<u32> = (0..1000).collect();
        for page_tokens in [1, 4, 16, 100, 128, 300] {
            let mut whole = KeyChain::new(page_tokens, ExtraKeys::default());
            whole.extend(&tokens);
            let mut steps = KeyChain::new(page_tokens, ExtraKeys::default());
            (1..=tokens.len()).for_each(|end| steps.extend(&tokens[..end]));
            assert_eq!(whole.keys(), steps.keys());
            assert_eq!(whole.keys().len(), 1000 / page_tokens as usize);
        }
    }

    #[test]
    fn an_equal_page_after_another_page_has_another_key() {
        let a = keys(&[1, 2, 3, 4, 9, 9, 9, 9], ExtraKeys::default());
        let b = keys(&[1, 2, 3, 5, 9, 9, 9, 9], ExtraKeys::default());
        assert_ne!(a[0], b[0]);
        assert_ne!(a[1], b[1]);
    }

    #[test]
    fn a_lora_name_and_an_equal_salt_never_share() {
        let tokens = [1, 2, 3, 4];
        let all = [
            keys(&tokens, ExtraKeys::default()),
            keys(&tokens, lora("x")),
            keys(&tokens, salt("x")),
            keys(&tokens, lora("")),
            keys(&tokens, ExtraKeys { salt: Some("x".into()), ..lora("x") }),
            keys(&tokens, image(2, 0)),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b), "{i}");
        }
    }

    #[test]
    fn two_images_that_differ_in_one_byte_differ_from_the_page_they_touch() {
        let tokens: Vec<u32> = (0..16).collect();
        let (a, b) = (keys(&tokens, image(6, 0)), keys(&tokens, image(6, 1)));
        assert_eq!(a[0], b[0], "the image starts in the second page");
        assert!((1..4).all(|page| a[page] != b[page]));
        assert_ne!(a[1], keys(&tokens, image(5, 0))[1], "the same image elsewhere");
    }

    #[test]
    fn a_partial_page_stops_in_front_of_an_item() {
        let chain = KeyChain::new(4, image(6, 0));
        assert_eq!([0, 6, 8, 9].map(|p| chain.next_item(p)), [6, 6, 8, u32::MAX]);
    }
}
