//! A request: spawned at submit, despawned when it finishes, is cancelled or is refused.
//!
//! While it waits it keeps its tokens; while it runs they live on its batch row, and a preemption
//! brings them back.

use crate::prefix::{ExtraKeys, KeyChain};
use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

/// What an embedder asks for.
///
/// ```
/// use paceline_components::NewRequest;
/// let request = NewRequest::new(7, vec![1, 2, 3], 16).stop_tokens(vec![0]).class(1);
/// assert_eq!(request.prompt.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRequest {
    /// Id, unique among live requests; the embedder's own.
    pub id: u64,
    /// Prompt token ids.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub max_new_tokens: u32,
    /// Tokens that end the output; a stop token is part of it.
    pub stop_tokens: Vec<u32>,
    /// Priority class: lower goes first, equals by arrival.
    #[serde(default)]
    pub class: u8,
    /// What keeps equal tokens of other requests apart.
    #[serde(default)]
    pub extra: ExtraKeys,
    /// The conversation it is a turn of, for the `per_conversation` policy.
    #[serde(default)]
    pub conversation: Option<u64>,
}

impl NewRequest {
    /// A request of class 0 without stop tokens.
    #[must_use]
    pub fn new(id: u64, prompt: Vec<u32>, max_new_tokens: u32) -> Self {
        Self { id, prompt, max_new_tokens, ..Self::default() }
    }

    /// Ends the output at any of `tokens`.
    #[must_use]
    pub fn stop_tokens(mut self, tokens: Vec<u32>) -> Self {
        self.stop_tokens = tokens;
        self
    }

    /// Shares pages only with requests of equal extra keys.
    #[must_use]
    pub fn extra_keys(mut self, extra: ExtraKeys) -> Self {
        self.extra = extra;
        self
    }

    /// Makes it a turn of a conversation.
    #[must_use]
    pub fn conversation(mut self, id: u64) -> Self {
        self.conversation = Some(id);
        self
    }

    /// Sets the priority class.
    #[must_use]
    pub fn class(mut self, class: u8) -> Self {
        self.class = class;
        self
    }
}

/// Tokens of a sequence, prompt then output, and where it must end.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// Tokens that end the output.
    pub stop_tokens: Vec<u32>,
    /// Keys of the pages the tokens fill.
    pub chain: KeyChain,
}

impl Text {
    /// Hashes the pages that the first `tokens` tokens have filled since.
    pub fn extend_keys(&mut self, tokens: u32) {
        self.chain.extend(&self.tokens[..tokens as usize]);
    }
}

/// What stays the same while a request lives, and what is counted of it.
#[derive(Component, Clone, Debug)]
pub struct Request {
    /// The embedder's id.
    pub id: u64,
    /// Place in the order of arrival, kept over preemptions.
    pub arrival: u64,
    /// Priority class.
    pub class: u8,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Most tokens the sequence may reach.
    pub limit_tokens: u32,
    /// Prompt tokens computed, recomputation included.
    pub computed_tokens: u64,
    /// Times it lost its pages.
    pub preemptions: u32,
    /// The conversation it is a turn of.
    pub conversation: Option<u64>,
    /// The batch row it runs on.
    pub row: Option<u32>,
}

/// Tokens of a waiting request.
#[derive(Component, Debug, Default)]
pub struct WaitingText(pub Text);
