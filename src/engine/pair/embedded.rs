//! The pair that is built into the program: a clean clone serves it without a download.

use super::error::PairError;
use super::pair_files::{Pair, PairBytes};
use super::prompts::{EvalPrompt, eval_prompts};
use super::tokenizer::Tokenizer;

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pair/", $name))
    };
}

impl Pair {
    /// The built-in pair.
    ///
    /// # Errors
    /// When the files that were built in are not a pair.
    pub fn embedded() -> Result<Self, PairError> {
        Self::from_bytes(PairBytes {
            config: file!("config.json"),
            target: file!("target.safetensors"),
            drafter: file!("drafter.safetensors"),
        })
    }
}

impl Tokenizer {
    /// The tokenizer of the built-in pair.
    ///
    /// # Errors
    /// When the file that was built in is not a tokenizer.
    pub fn embedded() -> Result<Self, PairError> {
        Self::from_json(file!("tokenizer.json"))
    }
}

/// The evaluation prompts of the built-in pair.
///
/// # Errors
/// When the file that was built in holds no prompts.
pub fn embedded_prompts() -> Result<Vec<EvalPrompt>, PairError> {
    eval_prompts(file!("eval_prompts.json.gz"))
}
