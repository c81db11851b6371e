//! Loading a pair, from a folder or from bytes built into the program.

use std::path::Path;
use std::sync::Arc;

use super::config::PairConfig;
use super::drafter::Drafter;
use super::error::PairError;
use super::target::Target;

/// A target and its drafter.
#[derive(Debug)]
pub struct Pair {
    /// Sizes and conventions of both.
    pub config: Arc<PairConfig>,
    /// The target.
    pub target: Target,
    /// The drafter.
    pub drafter: Drafter,
}

/// The three files of a pair.
#[derive(Clone, Copy, Debug)]
pub struct PairBytes<'a> {
    /// `config.json`.
    pub config: &'a [u8],
    /// `target.safetensors`.
    pub target: &'a [u8],
    /// `drafter.safetensors`.
    pub drafter: &'a [u8],
}

impl Pair {
    /// Reads the files of a pair.
    ///
    /// # Errors
    /// When a file or a tensor is not what the configuration says; the error names both.
    pub fn from_bytes(files: PairBytes<'_>) -> Result<Self, PairError> {
        let config = Arc::new(PairConfig::from_json(files.config)?);
        let target = Target::from_bytes(files.target, Arc::clone(&config))?;
        let drafter = Drafter::from_bytes(files.drafter, Arc::clone(&config), &target)?;
        Ok(Self { config, target, drafter })
    }

    /// Reads the files of a pair from a folder.
    ///
    /// # Errors
    /// When a file cannot be read, or as [`Pair::from_bytes`].
    pub fn from_folder(folder: &Path) -> Result<Self, PairError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|source| PairError::Read { path, source })
        };
        Self::from_bytes(PairBytes {
            config: &read("config.json")?,
            target: &read("target.safetensors")?,
            drafter: &read("drafter.safetensors")?,
        })
    }
}
