//! The evaluation prompts (`eval_prompts.json.gz`).

use std::io::Read;

use flate2::read::GzDecoder;
use serde::Deserialize;

use super::error::PairError;

/// A held-out prompt, already tokenised.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EvalPrompt {
    /// `ladder`, `code`, `records` or `rewrite`.
    #[serde(rename = "cat")]
    pub kind: String,
    /// Nominal length in tokens.
    #[serde(rename = "len")]
    pub length: usize,
    /// The prompt.
    #[serde(rename = "ids")]
    pub tokens: Vec<u32>,
    /// The right answer, for kinds that have one.
    #[serde(rename = "ref", default)]
    pub reference: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct PromptFile {
    prompts: Vec<EvalPrompt>,
}

/// Reads all prompts.
///
/// # Errors
/// When the bytes are not compressed JSON of that form.
pub fn eval_prompts(compressed: &[u8]) -> Result<Vec<EvalPrompt>, PairError> {
    let file = "eval_prompts.json.gz";
    let mut json = String::new();
    GzDecoder::new(compressed)
        .read_to_string(&mut json)
        .map_err(|source| PairError::Read { path: file.into(), source })?;
    let file: PromptFile = serde_json::from_str(&json)
        .map_err(|source| PairError::Json { file: file.into(), source })?;
    Ok(file.prompts)
}

#[cfg(test)]
mod tests {
    use super::eval_prompts;

    #[test]
    fn bytes_that_are_not_compressed_are_an_error_that_names_the_file() {
        let error = eval_prompts(b"[]").unwrap_err().to_string();
        assert!(error.starts_with("eval_prompts.json.gz: "), "{error}");
    }
}
