//! Typed access to the fields of a JSON row.

use serde_json::{Map, Value};

use super::error::{MAX_TOKENS, RowProblem, shorten};
use super::text::{BLOCK_TOKENS, Text};

pub(super) const EXPECTED_TOKENS: &str = "a whole number from 1 to 16777216";
const EXPECTED_MS: &str = "milliseconds, a number from 0 to 1e13";
const EXPECTED_IDS: &str = "a list of whole numbers from 0";
const MAX_MS: f64 = 1e13;

/// A JSON object: one row of a trace.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn parse(text: &str) -> Result<Self, RowProblem> {
        serde_json::from_str(text)
            .map(Fields)
            .map_err(|error| RowProblem::NotJson { message: error.to_string() })
    }

    /// A name: a string that is not empty.
    pub(super) fn name(&self, field: &'static str) -> Result<&str, RowProblem> {
        let expected = "a string that is not empty";
        let value = self.value(field, expected)?;
        let name = value.as_str().filter(|name| !name.is_empty());
        name.ok_or_else(|| wrong(field, expected, value))
    }

    /// A length in tokens.
    pub(super) fn tokens(&self, field: &'static str) -> Result<u32, RowProblem> {
        let value = self.value(field, EXPECTED_TOKENS)?;
        let tokens = value.as_u64().and_then(checked_tokens);
        tokens.ok_or_else(|| wrong(field, EXPECTED_TOKENS, value))
    }

    /// A time in milliseconds, as nanoseconds.
    pub(super) fn ms_as_ns(&self, field: &'static str) -> Result<u64, RowProblem> {
        let value = self.value(field, EXPECTED_MS)?;
        let ms = value.as_f64().filter(|ms| (0.0..=MAX_MS).contains(ms));
        match (ms, value.as_u64()) {
            (Some(_), Some(whole_ms)) => Ok(whole_ms * 1_000_000),
            (Some(ms), None) => Ok((ms * 1e6).round() as u64),
            (None, _) => Err(wrong(field, EXPECTED_MS, value)),
        }
    }

    /// The text that `input_length` and `hash_ids` describe.
    pub(super) fn input(&self) -> Result<Text, RowProblem> {
        let tokens = self.tokens("input_length")?;
        let value = self.value("hash_ids", EXPECTED_IDS)?;
        let ids = value.as_array().ok_or_else(|| wrong("hash_ids", EXPECTED_IDS, value))?;
        let expected = tokens.div_ceil(BLOCK_TOKENS) as usize;
        if ids.len() != expected {
            return Err(RowProblem::HashCount { input_tokens: tokens, expected, found: ids.len() });
        }
        let number = |id: &Value| id.as_u64().ok_or_else(|| wrong("hash_ids", EXPECTED_IDS, id));
        let hash_ids = ids.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Text::Blocks { hash_ids, tokens })
    }

    fn value(&self, field: &'static str, expected: &'static str) -> Result<&Value, RowProblem> {
        self.0.get(field).ok_or(RowProblem::Missing { field, expected })
    }
}

/// `tokens`, if one input or output may have that many.
pub(super) fn checked_tokens(tokens: u64) -> Option<u32> {
    let tokens = u32::try_from(tokens).ok()?;
    (1..=MAX_TOKENS).contains(&tokens).then_some(tokens)
}

fn wrong(field: &'static str, expected: &'static str, value: &Value) -> RowProblem {
    RowProblem::Field { field, expected, found: shorten(&value.to_string()) }
}
