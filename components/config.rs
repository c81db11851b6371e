//! Configuration: what an embedder writes down, from Rust or from TOML.
//!
//! A [`Config`] is only a description. [`Geometry::new`](crate::Geometry::new) checks it as a whole
//! and derives every limit from it, once, before anything is built.

use serde::{Deserialize, Serialize};

/// Everything the core needs to know, fixed at start-up.
///
/// ```
/// use paceline_components::{Config, Geometry};
///
/// let mut config = Config::m3();
/// config.max_batch = 32;
/// let geometry = Geometry::new(&config)?;
/// assert_eq!(geometry.groups.len(), 2);
///
/// config.page_tokens = 0;
/// let error = Geometry::new(&config).unwrap_err();
/// assert!(error.to_string().starts_with("page_tokens = 0"));
/// # Ok::<(), paceline_components::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the geometry, for reports.
    #[serde(default)]
    pub name: String,
    /// Consecutive positions in a page.
    pub page_tokens: u32,
    /// Bytes of accelerator memory for pages on this rank. Groups that state `pages` do not draw
    /// on it.
    #[serde(default)]
    pub hot_bytes: u64,
    /// Most rows of one step, dummy rows not counted.
    pub max_batch: u32,
    /// Most tokens all rows of one step compute.
    pub token_budget: u32,
    /// Most prompt tokens one row computes in one step.
    pub chunk_tokens: u32,
    /// Most tokens of a sequence, prompt and output together.
    pub max_seq_len: u32,
    /// Position-side extra of the engine, in tokens (K - 1 for most drafters).
    #[serde(default)]
    pub num_extra_kv_tokens: u32,
    /// Steps planned before an outcome is back: 0 or 1.
    #[serde(default)]
    pub overlap_depth: u32,
    /// Share of the token budget that decode rows are sure of while prompts wait, and prompts
    /// while decode rows run is the rest; what a side leaves the other takes.
    #[serde(default = "default_decode_share_percent")]
    pub decode_share_percent: u32,
    /// A waiting request passed over so often goes first and nothing is admitted past it.
    #[serde(default = "default_max_passed_over")]
    pub max_passed_over: u32,
    /// Most requests that wait in the inbox and the queue together.
    #[serde(default = "default_max_waiting")]
    pub max_waiting: u32,
    /// Batch sizes of captured graphs: a plan of decode rows alone is padded with dummy rows to
    /// the next of these. Empty: no padding.
    #[serde(default)]
    pub graph_batches: Vec<u32>,
    /// Whether ranks step together under attention-DP, so that an idle one needs a dummy row.
    #[serde(default)]
    pub attention_dp: bool,
    /// Typical tokens of a sequence: shares memory between target groups (kv-cache-rules §1.8).
    #[serde(default)]
    pub typical_seq_len: Option<u32>,
    /// What is published for other requests to claim.
    #[serde(default)]
    pub publish: PublishPolicy,
    /// Keep sinks and windows that end where a prompt ends longer than other window pages.
    #[serde(default)]
    pub protect_endpoints: bool,
    /// Seed of everything random in engines and reports; the core itself draws nothing.
    #[serde(default)]
    pub seed: u64,
    /// The speculative drafter, if there is one.
    #[serde(default)]
    pub drafter: Option<Drafter>,
    /// Lifecycle groups, target groups first.
    pub groups: Vec<GroupSpec>,
}

fn default_decode_share_percent() -> u32 {
    50
}
fn default_max_passed_over() -> u32 {
    64
}
fn default_max_waiting() -> u32 {
    65_536
}

/// A block drafter over the target's captured states (drafter.md A2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drafter {
    /// Label convention.
    pub kind: DrafterKind,
    /// Draft tokens proposed a step, K.
    pub draft_tokens: u32,
    /// Width of the drafter's block in positions, as the checkpoint says.
    pub block_width: u32,
    /// Drafter slots; default: `max_batch`. A row without one drafts nothing.
    #[serde(default)]
    pub slots: Option<u32>,
}

impl Drafter {
    /// A drafter with a slot for every row.
    #[must_use]
    pub fn new(kind: DrafterKind, draft_tokens: u32, block_width: u32) -> Self {
        Self { kind, draft_tokens, block_width, slots: None }
    }
}

/// Label convention of a block drafter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrafterKind {
    /// Slot j predicts its own position: K drafts need a block of K + 1.
    Dflash,
    /// Slot j predicts the next position: K drafts need a block of K.
    Dspark,
}

/// What is published for other requests to claim (kv-cache-rules §3.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishPolicy {
    /// Every full page as it settles, generated tokens included.
    #[default]
    AllReusable,
    /// A prompt when it is computed, and the whole sequence when it ends.
    PerRequest,
    /// The same, and windows of a conversation's earlier turns are dropped.
    PerConversation,
    /// Nothing; nothing is claimed either.
    Off,
}

/// Layers whose pages live and die together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Name, unique among the groups.
    pub name: String,
    /// Whose keys and values these are.
    pub owner: Owner,
    /// Sliding window in tokens, the query's own included; none keeps every page.
    #[serde(default)]
    pub window_tokens: Option<u32>,
    /// Leading tokens that the window never drops.
    #[serde(default)]
    pub sink_tokens: u32,
    /// How prefix reuse treats the group; default: required for the target, optional for a
    /// windowed drafter (kv-cache-rules §1.4).
    #[serde(default)]
    pub policy: Option<ReusePolicy>,
    /// Pages requests can hold, guard and dummy pages not counted; default: from `hot_bytes`.
    #[serde(default)]
    pub pages: Option<u32>,
    /// Layers, in model order.
    pub layers: Vec<LayerSpec>,
}

/// Whose keys and values a group holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The target model.
    Target,
    /// The drafter.
    Draft,
}

/// How prefix reuse treats a group (kv-cache-rules §1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReusePolicy {
    /// Constrains the match.
    Required,
    /// Rides along when its window is complete.
    Optional,
    /// Never shared.
    Private,
}

/// `count` equal layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// How many layers.
    pub count: u32,
    /// Buffers of each layer, in order.
    pub buffers: Vec<BufferSpec>,
}

impl LayerSpec {
    /// Bytes of a token in all of the layers.
    #[must_use]
    pub fn bytes_per_token(&self) -> u64 {
        let layer: u64 = self.buffers.iter().map(|b| u64::from(b.bytes_per_token)).sum();
        layer * u64::from(self.count)
    }
}

/// One buffer of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// Role, unique in its layer: `key`, `value`, `index_key`, …
    pub role: String,
    /// Bytes one token takes.
    pub bytes_per_token: u32,
    /// KV heads in them, split over tensor-parallel ranks; none: every rank has a copy.
    #[serde(default)]
    pub heads: Option<u32>,
    /// Buffers of different groups never share a pool, even if equal in size
    /// (kv-cache-rules §1.5.6).
    #[serde(default)]
    pub coalescing_group: u32,
}

impl BufferSpec {
    /// A buffer of coalescing group 0 that is not split.
    #[must_use]
    pub fn new(role: &str, bytes_per_token: u32) -> Self {
        Self { role: role.to_owned(), bytes_per_token, heads: None, coalescing_group: 0 }
    }

    /// Splits the buffer over tensor-parallel ranks by `heads`.
    #[must_use]
    pub fn heads(mut self, heads: u32) -> Self {
        self.heads = Some(heads);
        self
    }
}

impl Config {
    /// The built-in geometries, by name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "m3" => Some(Self::m3()),
            "pair" => Some(Self::pair()),
            _ => None,
        }
    }

    /// What one of `tp` tensor-parallel ranks holds: `ceil(heads / tp)` heads of every split buffer
    /// (kv-cache-rules §1.2).
    #[must_use]
    pub fn sharded(mut self, tp: u32) -> Self {
        let layers = self.groups.iter_mut().flat_map(|group| &mut group.layers);
        for buffer in layers.flat_map(|layer| &mut layer.buffers) {
            if let Some(heads) = buffer.heads.filter(|heads| *heads > 0) {
                let mine = heads.div_ceil(tp.max(1));
                buffer.bytes_per_token = buffer.bytes_per_token / heads * mine;
                buffer.heads = Some(mine);
            }
        }
        self
    }

    /// A MiniMax-M3.1-like target with a DSpark drafter: FP8 K/V for 3 dense and 58 sparse layers,
    /// 8 KV heads of 128, an index-K buffer on the sparse layers, a BF16 draft group of 5 layers
    /// with a window of 4096, K = 7, pages of 128 tokens, 1M context, 80 GiB of pages.
    #[must_use]
    pub fn m3() -> Self {
        let split = |role, bytes| BufferSpec::new(role, bytes).heads(8);
        let kv = |bytes| vec![split("key", bytes), split("value", bytes)];
        let mut sparse = kv(8 * 128);
        sparse.push(BufferSpec::new("index_key", 128));
        Self {
            name: "m3".to_owned(),
            page_tokens: 128,
            hot_bytes: 80 << 30,
            max_batch: 64,
            token_budget: 8192,
            chunk_tokens: 8192,
            max_seq_len: 1 << 20,
            num_extra_kv_tokens: 6,
            drafter: Some(Drafter::new(DrafterKind::Dspark, 7, 7)),
            groups: vec![
                GroupSpec {
                    name: "target".to_owned(),
                    owner: Owner::Target,
                    window_tokens: None,
                    sink_tokens: 0,
                    policy: None,
                    pages: None,
                    layers: vec![
                        LayerSpec { count: 3, buffers: kv(8 * 128) },
                        LayerSpec { count: 58, buffers: sparse },
                    ],
                },
                GroupSpec {
                    name: "draft".to_owned(),
                    owner: Owner::Draft,
                    window_tokens: Some(4096),
                    sink_tokens: 0,
                    policy: None,
                    pages: None,
                    layers: vec![LayerSpec { count: 5, buffers: kv(8 * 128 * 2) }],
                },
            ],
            ..Self::base()
        }
    }

    /// The small real pair: a target of 7 layers and a drafter of 3 with a window of 256, K = 7,
    /// two KV heads of 64 in f32, pages of 32 tokens, 16K context.
    #[must_use]
    pub fn pair() -> Self {
        let split = |role| BufferSpec::new(role, 2 * 64 * 4).heads(2);
        let kv = || vec![split("key"), split("value")];
        Self {
            name: "pair".to_owned(),
            page_tokens: 32,
            hot_bytes: 1 << 30,
            max_batch: 16,
            token_budget: 2048,
            chunk_tokens: 1024,
            max_seq_len: 16_384,
            num_extra_kv_tokens: 6,
            drafter: Some(Drafter::new(DrafterKind::Dspark, 7, 7)),
            groups: vec![
                GroupSpec {
                    name: "target".to_owned(),
                    owner: Owner::Target,
                    window_tokens: None,
                    sink_tokens: 0,
                    policy: None,
                    pages: None,
                    layers: vec![LayerSpec { count: 7, buffers: kv() }],
                },
                GroupSpec {
                    name: "draft".to_owned(),
                    owner: Owner::Draft,
                    window_tokens: Some(256),
                    sink_tokens: 0,
                    policy: None,
                    pages: None,
                    layers: vec![LayerSpec { count: 3, buffers: kv() }],
                },
            ],
            ..Self::base()
        }
    }

    /// Small groups of one layer for tests and sketches: `windows` lists a window for each group
    /// (none for full attention), each with `pages` pages. The first group is the target's;
    /// no drafter.
    #[must_use]
    pub fn small(page_tokens: u32, windows: &[Option<u32>], pages: u32) -> Self {
        let group = |(index, window): (usize, &Option<u32>)| GroupSpec {
            name: format!("group{index}"),
            owner: Owner::Target,
            window_tokens: *window,
            sink_tokens: 0,
            policy: None,
            pages: Some(pages),
            layers: vec![LayerSpec { count: 1, buffers: vec![BufferSpec::new("key", 8)] }],
        };
        Self {
            name: "small".to_owned(),
            page_tokens,
            max_batch: 8,
            token_budget: 64,
            chunk_tokens: 64,
            max_seq_len: 4096,
            groups: windows.iter().enumerate().map(group).collect(),
            ..Self::base()
        }
    }

    fn base() -> Self {
        Self {
            name: String::new(),
            page_tokens: 0,
            hot_bytes: 0,
            max_batch: 0,
            token_budget: 0,
            chunk_tokens: 0,
            max_seq_len: 0,
            num_extra_kv_tokens: 0,
            overlap_depth: 0,
            decode_share_percent: default_decode_share_percent(),
            max_passed_over: default_max_passed_over(),
            max_waiting: default_max_waiting(),
            graph_batches: Vec::new(),
            attention_dp: false,
            typical_seq_len: None,
            publish: PublishPolicy::AllReusable,
            protect_endpoints: false,
            seed: 0,
            drafter: None,
            groups: Vec::new(),
        }
    }
}
