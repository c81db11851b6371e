use std::path::{Path, PathBuf};

use super::super::rng::Rng;
use super::super::{Workload, WorkloadError, open, read, token_reuse, upper_bound_reuse};

fn sums(workload: &Workload) -> (usize, u64, u64) {
    let mut prompts = 0;
    let mut outputs = 0;
    for session in &workload.sessions {
        let mut context = 0;
        for turn in &session.turns {
            context += u64::from(turn.input.tokens());
            prompts += context;
            context += u64::from(turn.output_tokens);
            outputs += u64::from(turn.output_tokens);
        }
    }
    (workload.requests(), prompts, outputs)
}

fn per_mille(fraction: f64) -> u32 {
    (fraction * 1000.0).round() as u32
}

/// The folder of the full traces, if it is there.
fn full_traces() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces");
    let folder = std::env::var_os("PACELINE_TRACES").map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        println!("skipped: no traces in {} (set PACELINE_TRACES)", folder.display());
        return None;
    }
    Some(folder)
}

#[test]
fn the_full_traces_parse_with_their_known_sums() {
    let Some(folder) = full_traces() else { return };
    let expected = [
        ("mooncake/conversation_trace.jsonl", 12_031, (12_031, 144_793_823, 4_122_048)),
        ("mooncake/synthetic_trace.jsonl", 3_993, (3_993, 61_194_628, 595_432)),
        ("agentic_aiperf/agentic_44s_seed42.jsonl", 44, (818, 88_303_879, 376_830)),
        ("agentic_aiperf/agentic_1131s_seed42.jsonl", 1_205, (14_056, 1_474_864_080, 13_891_479)),
        ("azure2023/AzureLLMInferenceTrace_code.csv", 8_819, (8_819, 18_059_974, 245_896)),
        ("azure2023/AzureLLMInferenceTrace_conv.csv", 19_366, (19_366, 22_361_870, 4_088_665)),
    ];
    for (file, sessions, expected) in expected {
        let workload = open(folder.join(file), false).unwrap();
        assert_eq!(workload.sessions.len(), sessions, "{file}");
        assert_eq!(sums(&workload), expected, "{file}");
    }
}

#[test]
fn the_reuse_of_the_full_traces_is_the_published_one() {
    let Some(folder) = full_traces() else { return };
    let expected = [
        ("mooncake/conversation_trace.jsonl", 374, 374),
        ("mooncake/synthetic_trace.jsonl", 651, 651),
        ("agentic_aiperf/agentic_44s_seed42.jsonl", 938, 962),
        ("agentic_aiperf/agentic_1131s_seed42.jsonl", 887, 939),
        ("azure2023/AzureLLMInferenceTrace_conv.csv", 0, 0),
    ];
    for (file, by_ids, by_tokens) in expected {
        let workload = open(folder.join(file), false).unwrap();
        assert_eq!(per_mille(upper_bound_reuse(&workload)), by_ids, "by ids, {file}");
        assert_eq!(per_mille(token_reuse(&workload)), by_tokens, "by tokens, {file}");
    }
}

#[test]
fn the_excerpts_parse() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces");
    let expected = [
        ("mooncake_conversation", "jsonl", 60, 60),
        ("mooncake_synthetic", "jsonl", 60, 60),
        ("agentic", "jsonl", 4, 66),
        ("azure_conv", "csv", 60, 60),
    ];
    for (name, extension, sessions, requests) in expected {
        let workload = open(folder.join(name).with_extension(extension), false).unwrap();
        assert_eq!(workload.name, name);
        assert_eq!(workload.sessions.len(), sessions, "{name}");
        assert_eq!(workload.requests(), requests, "{name}");
    }
}

#[test]
fn damaged_traces_give_errors_and_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces");
    let mut rng = Rng(1);
    for name in ["mooncake_conversation.jsonl", "agentic.jsonl", "azure_conv.csv"] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        for _ in 0..300 {
            let mut damaged = whole.clone();
            damaged.truncate(rng.below(whole.len() as u64) as usize + 1);
            for _ in 0..rng.below(20) {
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] = rng.below(256) as u8;
            }
            let strict = read(name, damaged.as_slice(), false);
            let skipping = read(name, damaged.as_slice(), true);
            match (strict, skipping) {
                (Ok(strict), Ok(skipping)) => assert_eq!(strict, skipping),
                (Err(WorkloadError::Row(first)), Ok(skipping)) => {
                    assert_eq!(skipping.skipped_rows[0], first);
                }
                (Err(_), Err(_)) => {}
                (strict, skipping) => panic!("{name}: {strict:?} but {skipping:?}"),
            }
        }
    }
}
