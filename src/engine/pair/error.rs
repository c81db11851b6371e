//! What can be wrong with the files of a pair.

use std::path::PathBuf;

/// A file of the pair could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// File that was opened.
        path: PathBuf,
        /// Why reading failed.
        source: std::io::Error,
    },
    /// The file is not the JSON it should be.
    #[error("{file}: {source}")]
    Json {
        /// Name of the file.
        file: String,
        /// Where parsing failed.
        source: serde_json::Error,
    },
    /// The configuration names something this code does not serve.
    #[error("config.json: {rule}")]
    Config {
        /// The rule that does not hold.
        rule: &'static str,
    },
    /// The file is not a safetensors file, or lacks a tensor.
    #[error("{file}: tensor {tensor}: {source}")]
    Tensor {
        /// Name of the file.
        file: &'static str,
        /// Name of the tensor, or `*` for the file's header.
        tensor: String,
        /// What the reader found.
        source: safetensors::SafeTensorError,
    },
    /// A tensor has another shape or type than the configuration asks for.
    #[error("{file}: tensor {tensor}: expected BF16 {expected:?}, found {found}")]
    Shape {
        /// Name of the file.
        file: &'static str,
        /// Name of the tensor.
        tensor: String,
        /// Shape the configuration asks for.
        expected: Vec<usize>,
        /// Type and shape in the file.
        found: String,
    },
    /// The tokenizer is of a kind this code does not know, or contradicts itself.
    #[error("tokenizer.json: {reason}")]
    Tokenizer {
        /// What is wrong with it.
        reason: String,
    },
}
