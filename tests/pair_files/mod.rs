//! Where the pair lies and how near two numbers must be.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::PathBuf;
use std::sync::LazyLock;

use paceline::engine::pair::Pair;
use paceline::engine::pair::testing::golden::{GoldenCase, golden_cases};

pub static PAIR: LazyLock<Pair> = LazyLock::new(|| Pair::embedded().expect("the pair loads"));

pub static CASES: LazyLock<Vec<GoldenCase>> =
    LazyLock::new(|| golden_cases(&file("golden.json")).expect("golden.json loads"));

/// Folder of the pair.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/pair")
}

/// A file of the pair.
pub fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect("a file of the pair")
}

/// To 1e-3 relative; numbers near zero are compared at the size of one.
pub fn assert_near(found: &[f32], recorded: &[f32], what: &str) {
    assert!(found.len() >= recorded.len(), "{what}: {} values", found.len());
    for (i, (found, recorded)) in found.iter().zip(recorded).enumerate() {
        let off = (found - recorded).abs();
        assert!(off <= 1e-3 * recorded.abs().max(1.0), "{what}[{i}]: {found}, recorded {recorded}");
    }
}
