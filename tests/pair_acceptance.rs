//! Acceptance lengths of `acceptance.json`, counted as it counts them.

#![cfg(feature = "pair")]

mod pair_files;

use paceline::engine::pair::Sampling;
use paceline::engine::pair::prompts::{EvalPrompt, eval_prompts};
use paceline::engine::pair::testing::arms::Arm;
use paceline::engine::pair::testing::reference::{Reference, Request, Session};
use paceline::engine::pair::verify::Rule;
use pair_files::{PAIR, file};

const NEW_TOKENS: usize = 128;
/// `acceptance.json` ran prompts four at a time; its stale rows come from the neighbour.
const BATCH: usize = 4;

/// Emitted tokens and steps, over the steps whose drafts all lie before the end of the text.
fn count(session: &Session<'_>, prompt: usize) -> (usize, usize) {
    let specials = PAIR.config.specials;
    let text = &session.text[..NEW_TOKENS];
    let stop = text.iter().position(|token| [specials.end, specials.doc].contains(token));
    let end = stop.map_or(NEW_TOKENS, |stop| stop + 1);
    let inside = |anchor: usize| anchor - prompt + PAIR.config.block < end;
    let steps: Vec<usize> = session
        .steps
        .iter()
        .filter(|step| inside(step.anchor))
        .map(|step| step.accepted + 1)
        .collect();
    (steps.iter().sum(), steps.len())
}

fn acceptance(prompts: &[EvalPrompt], arm: Arm, sampling: Sampling) -> f64 {
    let (mut tokens, mut steps) = (0, 0);
    for batch in prompts.chunks(BATCH) {
        let requests: Vec<Request<'_>> =
            batch.iter().map(|prompt| request(prompt, arm, true, sampling)).collect();
        let mut reference = Reference::new(&PAIR, &requests, 32, 512);
        reference.run();
        for session in &reference.sessions {
            let (t, s) = count(session, batch[0].tokens.len());
            (tokens, steps) = (tokens + t, steps + s);
        }
    }
    tokens as f64 / steps as f64
}

fn prompts(kind: &str, length: usize) -> Vec<EvalPrompt> {
    let all = eval_prompts(&file("eval_prompts.json.gz")).expect("prompts load");
    all.into_iter().filter(|p| p.kind == kind && p.length == length).collect()
}

fn recorded(group: &str, arm: &str) -> f64 {
    let json: serde_json::Value = serde_json::from_slice(&file("acceptance.json")).expect("JSON");
    json["greedy"]["by_group"][group][arm].as_f64().expect("a recorded arm")
}

#[test]
fn a_full_window_accepts_far_more_than_an_empty_one() {
    for (kind, full, empty) in [("ladder", 3.6, 3.4), ("rewrite", 5.0, 1.9)] {
        let prompts = &prompts(kind, 1024)[..2];
        let found_full = acceptance(prompts, Arm::Full, Sampling::GREEDY);
        let found_empty = acceptance(prompts, Arm::Empty, Sampling::GREEDY);
        assert!(found_full > full, "{kind} full {found_full}");
        assert!(found_empty < empty, "{kind} empty {found_empty}");
    }
}

#[test]
#[ignore = "pair_engine checks it through the core"]
fn speculation_never_changes_the_text_greedy_or_sampled_by_exact_match() {
    let prompts: Vec<EvalPrompt> =
        prompts("code", 2048).into_iter().take(1).chain(prompts("records", 1024)).take(3).collect();
    for sampling in [Sampling::GREEDY, Sampling { temperature: 0.8, seed: 5 }] {
        let text = |arm, speculate, page_tokens| {
            let requests: Vec<Request<'_>> =
                prompts.iter().map(|prompt| request(prompt, arm, speculate, sampling)).collect();
            let mut reference = Reference::new(&PAIR, &requests, page_tokens, 300);
            reference.run();
            reference.sessions.iter().map(|s| s.text[..NEW_TOKENS].to_vec()).collect::<Vec<_>>()
        };
        let plain = text(Arm::Full, false, 32);
        assert_eq!(text(Arm::Full, true, 16), plain);
        assert_eq!(text(Arm::Empty, true, 128), plain);
        assert_eq!(text(Arm::Stale, true, 32), plain);
    }
}

/// Texts of some prompts, `batch` at a time.
fn texts(prompts: &[EvalPrompt], arm: Arm, speculate: bool, batch: usize) -> Vec<Vec<u32>> {
    let request = |prompt| request(prompt, arm, speculate, Sampling::GREEDY);
    let batches = prompts.chunks(batch).map(|batch| batch.iter().map(request).collect::<Vec<_>>());
    batches
        .flat_map(|requests| {
            let mut reference = Reference::new(&PAIR, &requests, 32, 512);
            reference.run();
            let texts = reference.sessions.iter().map(|s| s.text[..NEW_TOKENS].to_vec());
            texts.collect::<Vec<_>>()
        })
        .collect()
}

fn request(prompt: &EvalPrompt, arm: Arm, speculate: bool, sampling: Sampling) -> Request<'_> {
    Request {
        prompt: &prompt.tokens,
        new_tokens: NEW_TOKENS,
        arm,
        speculate,
        rule: Rule::ExactMatch,
        sampling,
    }
}

/// Groups named by `PAIR_GROUPS`, such as `ladder/1024,rewrite/1024`.
fn groups() -> Vec<(String, Vec<EvalPrompt>)> {
    let names = std::env::var("PAIR_GROUPS").unwrap_or_else(|_| "ladder/1024,rewrite/1024".into());
    let group = |name: &str| {
        let (kind, length) = name.split_once('/').expect("kind/length");
        (name.to_owned(), prompts(kind, length.parse().expect("a length")))
    };
    names.split(',').map(group).collect()
}

#[test]
#[ignore = "minutes of work"]
fn whole_groups_emit_the_text_of_plain_decoding() {
    for (name, prompts) in groups() {
        let plain = texts(&prompts, Arm::Full, false, 1);
        for (arm, batch) in [(Arm::Full, 1), (Arm::Full, 4), (Arm::Empty, 3), (Arm::Stale, 12)] {
            for (i, text) in texts(&prompts, arm, true, batch).iter().enumerate() {
                assert_eq!(*text, plain[i], "{name} prompt {i} {arm:?} batch {batch}");
            }
        }
    }
}

/// The documented command for whole groups:
/// `PAIR_GROUPS=ladder/1024,rewrite/1024 cargo test --release --test pair_acceptance -- --ignored --nocapture`
#[test]
#[ignore = "minutes of work"]
fn whole_groups_accept_as_recorded() {
    let arms = [
        ("full", Arm::Full),
        ("empty", Arm::Empty),
        ("newest_64", Arm::Newest(64)),
        ("miss_newest_8", Arm::MissingNewest(8)),
        ("zeros", Arm::Zeros),
        ("stale", Arm::Stale),
    ];
    let mut off = Vec::new();
    for (group, prompts) in groups() {
        for (name, arm) in arms {
            let (found, recorded) =
                (acceptance(&prompts, arm, Sampling::GREEDY), recorded(&group, name));
            println!("{group} {name}: {found:.3}, recorded {recorded:.3}");
            if (found / recorded - 1.0).abs() > 0.02 {
                off.push(format!("{group} {name}: {found:.3}, recorded {recorded:.3}"));
            }
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
#[ignore = "pair_engine checks it through the core"]
fn rejection_and_block_verification_accept_at_least_what_exact_match_accepts() {
    let prompts = &prompts("ladder", 1024)[..2];
    let mean = |rule| {
        let requests: Vec<Request<'_>> = prompts
            .iter()
            .cycle()
            .take(8)
            .zip(0..)
            .map(|(prompt, seed)| Request {
                prompt: &prompt.tokens,
                new_tokens: 64,
                arm: Arm::Full,
                speculate: true,
                rule,
                sampling: Sampling { temperature: 0.8, seed },
            })
            .collect();
        let mut reference = Reference::new(&PAIR, &requests, 32, 512);
        reference.run();
        let steps = reference.sessions.iter().flat_map(|session| &session.steps);
        let kept: Vec<usize> = steps.map(|step| step.accepted + 1).collect();
        kept.iter().sum::<usize>() as f64 / kept.len() as f64
    };
    let [exact, rejection, block] = [Rule::ExactMatch, Rule::Rejection, Rule::Block].map(mean);
    println!("exact match {exact:.2}, rejection {rejection:.2}, block {block:.2}");
    assert!(rejection > 0.9 * exact && block > 0.97 * rejection, "{exact} {rejection} {block}");
}
