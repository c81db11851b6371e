//! The pair through the core: acceptance, texts and reuse.
#![cfg(feature = "pair")]

mod pair_serving;

use paceline::engine::pair::Sampling;
use paceline::engine::pair::testing::arms::Arm;
use paceline::engine::pair::testing::reference::{Reference, Request};
use paceline::engine::pair::verify::Rule;
use paceline::engine::pair_engine::{DraftRows, PairOptions};
use paceline::{Config, PublishPolicy};
use pair_serving::{NEW_TOKENS, PAIR, plain_texts, prompts, serve};
use std::slice::from_ref;
use std::sync::LazyLock;

/// Two ladders, then two rewrites.
static PROMPTS: LazyLock<Vec<Vec<u32>>> =
    LazyLock::new(|| [prompts("ladder", 1024, 2), prompts("rewrite", 1024, 2)].concat());
static PLAIN: LazyLock<Vec<Vec<u32>>> = LazyLock::new(|| plain_texts(from_ref(&PROMPTS)));

fn arm(draft_rows: DraftRows) -> PairOptions {
    PairOptions { draft_rows, ..PairOptions::default() }
}

fn config(page_tokens: u32, chunk_tokens: u32, overlap_depth: u32, max_batch: u32) -> Config {
    Config { page_tokens, chunk_tokens, overlap_depth, max_batch, ..Config::pair() }
}

/// Anchor and emitted tokens of each step of a loop without a scheduler.
fn reference_steps(arm: Arm) -> Vec<Vec<(usize, usize)>> {
    let request = |prompt| Request {
        prompt,
        new_tokens: NEW_TOKENS as usize,
        arm,
        speculate: true,
        rule: Rule::ExactMatch,
        sampling: Sampling::GREEDY,
    };
    let requests: Vec<Request<'_>> = PROMPTS.iter().map(|prompt| request(prompt)).collect();
    let mut reference = Reference::new(&PAIR, &requests, 32, 512);
    reference.run();
    let steps = reference
        .sessions
        .iter()
        .map(|session| session.steps.iter().map(|step| (step.anchor, step.accepted + 1)).collect());
    steps.collect()
}

#[test]
fn every_step_accepts_what_a_loop_without_a_scheduler_accepts() {
    for (arm_name, draft_rows, reference) in [
        ("full", DraftRows::Unified, Arm::Full),
        ("newest_64", DraftRows::Newest(64), Arm::Newest(64)),
        ("zeros", DraftRows::Zeros, Arm::Zeros),
    ] {
        let expected = reference_steps(reference);
        let serving = serve(&config(32, 512, 0, 4), arm(draft_rows), from_ref(&PROMPTS));
        assert_eq!(serving.texts, *PLAIN, "{arm_name}");
        for (found, expected) in serving.steps.iter().zip(expected) {
            let found = found.iter().map(|step| (step.anchor as usize, step.emitted as usize));
            let found: Vec<_> = found.collect();
            let common = found.len().min(expected.len());
            assert!(common > 10, "{arm_name}");
            assert_eq!(found[..common], expected[..common], "{arm_name}");
        }
    }
}

#[test]
fn pages_chunks_overlap_and_batches_change_neither_text_nor_acceptance() {
    let [mut full, mut empty] = [Vec::new(), Vec::new()];
    for (page, chunk, overlap, batch, draft_rows) in [
        (16, 1024, 0, 16, DraftRows::Unified),
        (32, 100, 1, 3, DraftRows::Unified),
        (128, 1000, 0, 1, DraftRows::Unified),
        (128, 333, 1, 16, DraftRows::Empty),
        (16, 61, 1, 2, DraftRows::Empty),
    ] {
        let config = config(page, chunk, overlap, batch);
        let serving = serve(&config, arm(draft_rows), from_ref(&PROMPTS));
        assert_eq!(serving.texts, *PLAIN, "{config:?} {draft_rows:?}");
        let found = [serving.acceptance(0..2), serving.acceptance(2..4)];
        println!("{page} {chunk} {overlap} {batch} {draft_rows:?}: {found:.3?}");
        if draft_rows == DraftRows::Unified { full.push(found) } else { empty.push(found) }
    }
    // What a loop without a scheduler counts on these four prompts.
    for (found, recorded) in [(full, [3.935, 5.283]), (empty, [2.894, 1.518])] {
        for found in found {
            let off = found.iter().zip(recorded).map(|(f, r)| (f / r - 1.0).abs());
            assert!(off.fold(0.0, f64::max) < 0.02, "{found:?}, expected {recorded:?}");
        }
    }
}

#[test]
fn the_same_prompts_again_and_branches_of_them_accept_as_the_first_time() {
    let again = PROMPTS.clone();
    // Rewrites whose passage was read before by a request that went another way.
    let rewrites = prompts("rewrite", 1024, 2);
    let detours = rewrites.iter().map(|p| [&p[..1000], &PROMPTS[0][..300]].concat()).collect();
    let cold = serve(&config(32, 1024, 0, 16), arm(DraftRows::Unified), from_ref(&rewrites));
    for (page, overlap) in [(32, 0), (128, 1)] {
        let config = config(page, 1024, overlap, 16);
        let waves = [PROMPTS.clone(), again.clone()];
        let serving = serve(&config, arm(DraftRows::Unified), &waves);
        assert_eq!(serving.texts[..4], serving.texts[4..]);
        assert_eq!(serving.texts[..4], *PLAIN);
        for request in 4..8 {
            assert_eq!(serving.claimed[request], 1023, "{page}");
        }
        let (first, second) = (serving.acceptance(0..4), serving.acceptance(4..8));
        println!("page {page}: cold {first:.3}, again {second:.3}");
        assert!((second / first - 1.0).abs() < 0.01, "cold {first}, again {second}");

        if page == 128 {
            continue;
        }
        let detours: &Vec<Vec<u32>> = &detours;
        let serving = serve(&config, arm(DraftRows::Unified), &[detours.clone(), rewrites.clone()]);
        assert_eq!(serving.texts[2..], cold.texts);
        assert!(serving.claimed[2..].iter().all(|claimed| *claimed > 700));
        let (first, branch) = (cold.acceptance(0..2), serving.acceptance(2..4));
        println!("page {page}: cold {first:.3}, branch {branch:.3}");
        assert!((branch / first - 1.0).abs() < 0.01, "cold {first}, branch {branch}");
    }
}

#[test]
fn preempted_requests_say_the_same_in_every_arm() {
    let mut config = config(32, 512, 0, 4);
    for group in &mut config.groups {
        group.pages = Some(104);
    }
    for (overlap, draft_rows) in
        [(0, DraftRows::Unified), (1, DraftRows::Stale), (1, DraftRows::Newest(64))]
    {
        config.overlap_depth = overlap;
        let serving = serve(&config, arm(draft_rows), from_ref(&PROMPTS));
        assert!(serving.preemptions > 0, "{draft_rows:?}: nothing was preempted");
        assert_eq!(serving.texts, *PLAIN, "{draft_rows:?}");
    }
}

#[test]
fn exact_match_sampling_says_what_plain_sampling_says() {
    let sampled = PairOptions { temperature: 0.8, seed: 7, ..PairOptions::default() };
    let plain = PairOptions { speculate: false, ..sampled };
    let waves = [PROMPTS.clone()];
    let plain = serve(&config(32, 1024, 0, 1), plain, &waves).texts;
    assert_ne!(plain, *PLAIN);
    assert_eq!(serve(&config(16, 300, 1, 16), sampled, &waves).texts, plain);
}

#[test]
fn rejection_and_block_verification_keep_the_window_worth_having() {
    for rule in [Rule::Rejection, Rule::Block] {
        let options = |draft_rows| PairOptions {
            temperature: 0.8,
            seed: 3,
            rule,
            draft_rows,
            ..PairOptions::default()
        };
        let waves = [PROMPTS[2..].to_vec()];
        let full = serve(&config(32, 1024, 1, 16), options(DraftRows::Unified), &waves);
        let empty = serve(&config(32, 1024, 1, 16), options(DraftRows::Empty), &waves);
        let (full, empty) = (full.acceptance(0..2), empty.acceptance(0..2));
        println!("{rule:?}: full {full:.2}, empty {empty:.2}");
        assert!(full > 1.5 * empty, "{rule:?}: full {full}, empty {empty}");
    }
}

#[test]
fn what_is_published_when_a_request_ends_is_enough_to_go_on() {
    let mut config = config(32, 1024, 0, 16);
    config.publish = PublishPolicy::PerRequest;
    let waves = [PROMPTS.clone(), PROMPTS.clone()];
    let serving = serve(&config, arm(DraftRows::Unified), &waves);
    assert_eq!(serving.texts[4..], *PLAIN);
    let (cold, again) = (serving.acceptance(0..4), serving.acceptance(4..8));
    assert!((again / cold - 1.0).abs() < 0.01, "cold {cold}, again {again}");
}
