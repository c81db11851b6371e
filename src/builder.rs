//! The builder: a geometry and the few fields most embedders set.

use crate::{Config, ConfigError, Core};

/// Describes a core. Starts from the `m3` geometry.
///
/// ```
/// use paceline::{Config, Core};
/// let core = Core::builder().config(Config::m3()).max_batch(16).overlap_depth(1).build()?;
/// assert_eq!(core.geometry().admissible_sequences(), 32);
/// # Ok::<(), paceline::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    config: Config,
}

impl Default for Builder {
    fn default() -> Self {
        Self { config: Config::m3() }
    }
}

impl Builder {
    /// Takes a whole configuration; later calls change single fields of it.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Most rows of a step.
    pub fn max_batch(mut self, rows: u32) -> Self {
        self.config.max_batch = rows;
        self
    }

    /// Bytes of accelerator memory for pages.
    pub fn hot_bytes(mut self, bytes: u64) -> Self {
        self.config.hot_bytes = bytes;
        self
    }

    /// Steps planned before an outcome is back.
    pub fn overlap_depth(mut self, steps: u32) -> Self {
        self.config.overlap_depth = steps;
        self
    }

    /// Builds the core.
    ///
    /// # Errors
    /// The first field that is wrong, with its value and the fix.
    pub fn build(self) -> Result<Core, ConfigError> {
        Core::new(&self.config)
    }
}
