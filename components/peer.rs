//! What two workers must agree on before pages move between them, and who shares drafter context
//! (kv-cache-rules §7.6, §7.9).
//!
//! Anything that differs and matters is refused when peers register, by name and with both values;
//! nothing is found out at the first transfer.

use crate::config::Owner;
use crate::geometry::Geometry;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a worker keeps its drafter's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftKv {
    /// In the target's cache: pages move with the target's.
    Unified,
    /// In a pool of its own whose pages do not move.
    Separate,
}

/// What a worker tells a peer of its cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerLayout {
    /// Tokens of a page.
    pub page_tokens: u32,
    /// How the drafter's keys and values are kept.
    pub draft_kv: DraftKv,
    /// Width of the drafter's block.
    pub block_width: u32,
    /// Groups whose pages move.
    pub groups: Vec<PeerGroup>,
}

/// One group of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerGroup {
    /// Name.
    pub name: String,
    /// Whose keys and values.
    pub owner: Owner,
    /// Window in tokens.
    pub window_tokens: Option<u32>,
    /// Layers.
    pub layers: u32,
    /// Bytes of a token in all layers, over all tensor-parallel ranks.
    pub bytes_per_token: u64,
}

/// Two workers that cannot exchange pages.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("peers differ in {field}: {ours} here, {theirs} there")]
pub struct PeerMismatch {
    /// What differs.
    pub field: String,
    /// Its value on this side.
    pub ours: String,
    /// Its value on the other.
    pub theirs: String,
}

impl PeerLayout {
    /// The layout of a worker with `geometry`; a separate draft pool does not take part.
    #[must_use]
    pub fn new(geometry: &Geometry, draft_kv: DraftKv) -> Self {
        let takes_part = |owner| owner == Owner::Target || draft_kv == DraftKv::Unified;
        let specs = geometry.config.groups.iter().filter(|spec| takes_part(spec.owner));
        let groups = specs.map(|spec| PeerGroup {
            name: spec.name.clone(),
            owner: spec.owner,
            window_tokens: spec.window_tokens,
            layers: spec.layers.iter().map(|layer| layer.count).sum(),
            bytes_per_token: spec.layers.iter().map(crate::LayerSpec::bytes_per_token).sum(),
        });
        Self {
            page_tokens: geometry.config.page_tokens,
            draft_kv,
            block_width: geometry.block_width,
            groups: groups.collect(),
        }
    }

    /// Layers whose drafter context moves.
    #[must_use]
    pub fn draft_layers(&self) -> u32 {
        let draft = self.groups.iter().filter(|group| group.owner == Owner::Draft);
        draft.map(|group| group.layers).sum()
    }

    /// Accepts `peer` if pages mean the same on both sides.
    ///
    /// # Errors
    /// The first thing that differs.
    pub fn check(&self, peer: &Self) -> Result<(), PeerMismatch> {
        let (ours, theirs) = (self.draft_layers(), peer.draft_layers());
        differ("draft layers", &ours, &theirs)?;
        differ("draft_kv", &self.draft_kv, &peer.draft_kv)?;
        differ("page_tokens", &self.page_tokens, &peer.page_tokens)?;
        differ("block_width", &self.block_width, &peer.block_width)?;
        differ("number of groups", &self.groups.len(), &peer.groups.len())?;
        for (ours, theirs) in self.groups.iter().zip(&peer.groups) {
            let field = |name: &str| format!("{name} of group `{}`", ours.name);
            differ(&field("owner"), &ours.owner, &theirs.owner)?;
            differ(&field("window_tokens"), &ours.window_tokens, &theirs.window_tokens)?;
            differ(&field("layers"), &ours.layers, &theirs.layers)?;
            differ(&field("bytes_per_token"), &ours.bytes_per_token, &theirs.bytes_per_token)?;
        }
        Ok(())
    }
}

fn differ<T: PartialEq + std::fmt::Debug>(
    field: &str,
    ours: &T,
    theirs: &T,
) -> Result<(), PeerMismatch> {
    if ours == theirs || crate::is_broken(crate::Fault::UncheckedPeer) {
        return Ok(());
    }
    let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
    Err(PeerMismatch { field: field.to_owned(), ours, theirs })
}

/// What a worker was asked to do with its drafter's keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedDraftKv {
    /// Nothing was said: share where possible.
    #[default]
    Unset,
    /// Share, or fall back where the worker's own checks refuse.
    Auto,
    /// Share or fail at start.
    On,
    /// Never share.
    Off,
}

/// A worker that was told to share and cannot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("shared draft KV was asked for (1) and cannot be had: {blocker}")]
pub struct CannotShare {
    /// What is in the way.
    pub blocker: String,
}

impl SharedDraftKv {
    /// What a worker does; `blocker` is what its checks found in the way.
    ///
    /// # Errors
    /// When it was told to share and cannot.
    pub fn decide(self, blocker: Option<&str>) -> Result<DraftKv, CannotShare> {
        match (self, blocker) {
            (Self::Off, _) => Ok(DraftKv::Separate),
            (_, None) => Ok(DraftKv::Unified),
            (Self::On, Some(blocker)) if !crate::is_broken(crate::Fault::SilentFallback) => {
                Err(CannotShare { blocker: blocker.to_owned() })
            }
            (_, Some(_)) => Ok(DraftKv::Separate),
        }
    }

    /// What whoever starts the workers tells them: it keeps what the user said, and otherwise lets
    /// them decide if both sides look alike. It never says `1` and does not judge page sizes.
    #[must_use]
    pub fn launch(self, sides_look_alike: bool) -> Self {
        match self {
            Self::Off | Self::On => self,
            Self::Unset | Self::Auto if sides_look_alike => {
                if crate::is_broken(crate::Fault::LauncherJudges) { Self::On } else { Self::Auto }
            }
            Self::Unset | Self::Auto => Self::Off,
        }
    }
}
