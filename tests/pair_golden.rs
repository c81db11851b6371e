//! The numbers of `golden.json`, through pages of several sizes, chunkings and batch mixes.

#![cfg(feature = "pair")]

mod pair_files;

use paceline::engine::pair::sample::likeliest;
use paceline::engine::pair::testing::arms::Arm;
use paceline::engine::pair::testing::golden::GoldenCase;
use paceline::engine::pair::testing::reference::{Reference, Request};
use paceline::engine::pair::testing::scattered::ScatteredPages;
use paceline::engine::pair::verify::Rule;
use paceline::engine::pair::{
    Buffer, ContextRow, DraftOutput, DraftRow, Kind, KvPages, Logits, Owner, Sampling,
    TargetOutput, TargetRow, Workers, Workspace,
};
use pair_files::{CASES, PAIR, assert_near};

/// Everything a prompt and its text leave behind.
struct Run {
    pages: ScatteredPages,
    workspace: Workspace,
    logits: Vec<f32>,
    captures: Vec<f32>,
}

fn run(tokens: &[u32], page_tokens: usize, chunk: usize, workers: Workers) -> Run {
    let block = PAIR.config.block;
    let pages = (tokens.len() + block).div_ceil(page_tokens) + 2;
    let mut run = Run {
        pages: ScatteredPages::new(&PAIR.config, page_tokens, pages),
        workspace: Workspace::new(workers),
        logits: Vec::new(),
        captures: Vec::new(),
    };
    let mut output = TargetOutput::default();
    for owner in [Owner::Target, Owner::Draft] {
        run.pages.ensure(0, owner, tokens.len() + block);
    }
    for (index, part) in tokens.chunks(chunk).enumerate() {
        let start = index * chunk;
        let row = TargetRow { sequence: 0, tokens: part, start, logits: Logits::All };
        PAIR.target.forward(&[row], &mut run.pages, &mut run.workspace, &mut output);
        let context = ContextRow { sequence: 0, start, captures: output.captures(0) };
        PAIR.drafter.store_context(&[context], &mut run.pages, &mut run.workspace);
        run.logits.extend_from_slice(output.logits(0));
        run.captures.extend_from_slice(output.captures(0));
    }
    run
}

fn check_target(case: &GoldenCase, run: &Run) {
    let (vocab, width) = (PAIR.config.vocab, PAIR.config.width);
    for check in &case.target_checks {
        let logits = &run.logits[check.position * vocab..(check.position + 1) * vocab];
        let found: Vec<f32> = check.vocab.iter().map(|token| logits[*token]).collect();
        assert_near(&found, &check.logits, "logits");
        assert_eq!(likeliest(logits), check.argmax, "position {}", check.position);
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        assert_near(&[sum.ln() as f32], &[check.logsumexp], "logsumexp");
    }
    for check in &case.capture_checks {
        for (layer, values) in check.first8_per_layer.iter().enumerate() {
            let at = check.position * PAIR.config.capture_dim() + layer * width;
            assert_near(&run.captures[at..], values, "captures");
        }
    }
}

fn check_context(case: &GoldenCase, run: &Run) {
    for check in &case.context_kv_checks {
        for (kind, values) in [(Kind::Key, &check.k_first8), (Kind::Value, &check.v_first8)] {
            let buffer = Buffer { owner: Owner::Draft, layer: check.layer, kind };
            let row = run.pages.rows(0, buffer, check.position);
            assert_near(row, values, &format!("context {kind:?} at {}", check.position));
        }
    }
}

fn check_first_block(case: &GoldenCase, run: &mut Run) {
    let (vocab, width) = (PAIR.config.vocab, PAIR.config.width);
    let row = DraftRow {
        sequence: 0,
        anchor: case.continuation[0],
        position: case.prompt.len(),
        hidden: 0..0,
        sampling: Sampling::GREEDY,
    };
    let mut output = DraftOutput::default();
    PAIR.drafter.draft(&[row], &mut run.pages, &mut run.workspace, &mut output);
    for check in &case.draft_checks {
        let base = &output.base_logits(0)[check.slot * vocab..(check.slot + 1) * vocab];
        let found: Vec<f32> = check.vocab.iter().map(|token| base[*token]).collect();
        assert_near(&found, &check.base_logits, "base logits");
        assert_eq!(likeliest(base), check.base_argmax, "slot {}", check.slot);
        assert_near(&output.hidden(0)[check.slot * width..], &check.hidden_first8, "hidden");
    }
}

fn check_numbers(page_tokens: usize, chunk: usize, workers: &Workers) {
    for case in CASES.iter() {
        let text: Vec<u32> = case.prompt.iter().chain(&case.continuation).copied().collect();
        let mut run = run(&text, page_tokens, chunk, workers.clone());
        check_target(case, &run);
        check_context(case, &run);
        check_first_block(case, &mut run);
    }
}

#[test]
fn recorded_numbers_come_out_of_whole_prompts_in_pages_of_128() {
    check_numbers(128, 4096, &Workers::two());
}

#[test]
fn recorded_numbers_come_out_of_chunks_of_100_in_pages_of_32() {
    check_numbers(32, 100, &Workers::one());
}

#[test]
fn recorded_numbers_come_out_of_chunks_of_7_in_pages_of_16() {
    check_numbers(16, 7, &Workers::two());
}

#[test]
fn every_token_of_the_recorded_texts_is_the_likeliest() {
    let vocab = PAIR.config.vocab;
    for case in CASES.iter() {
        let text: Vec<u32> = case.prompt.iter().chain(&case.continuation).copied().collect();
        let run = run(&text, 32, 512, Workers::two());
        for (i, (token, margin)) in case.continuation.iter().zip(&case.margin).enumerate() {
            let at = (case.prompt.len() + i - 1) * vocab;
            let logits = &run.logits[at..at + vocab];
            let top = likeliest(logits);
            assert!(top == *token || *margin <= 0.02, "{} token {i}", case.cat);
            let mut sorted = logits.to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            assert_near(&[sorted[0] - sorted[1]], &[*margin], "margin");
        }
    }
}

fn arm(case: &GoldenCase, name: &str) -> Arm {
    match (name, case.spec[name].keep) {
        ("full", _) => Arm::Full,
        ("empty", _) => Arm::Empty,
        (_, [0, newest]) => Arm::Newest(newest),
        (_, [missing, _]) => Arm::MissingNewest(missing),
    }
}

/// Requests of all cases and arms, and where each comes from.
fn all_requests() -> Vec<(Request<'static>, &'static GoldenCase, &'static str)> {
    CASES
        .iter()
        .flat_map(|case| case.spec.keys().map(move |name| (case, name.as_str())))
        .map(|(case, name)| {
            let request = Request {
                prompt: &case.prompt,
                new_tokens: case.continuation.len(),
                arm: arm(case, name),
                speculate: true,
                rule: Rule::ExactMatch,
                sampling: Sampling::GREEDY,
            };
            (request, case, name)
        })
        .collect()
}

fn check_steps(batch: usize, page_tokens: usize, chunk: usize) {
    for batch in all_requests().chunks(batch) {
        let requests: Vec<Request<'_>> = batch.iter().map(|(request, ..)| *request).collect();
        let mut reference = Reference::new(&PAIR, &requests, page_tokens, chunk);
        reference.run();
        for (session, (_, case, name)) in reference.sessions.iter().zip(batch) {
            let recorded = &case.spec[*name];
            let emitted = &session.text[..case.continuation.len()];
            assert_eq!(emitted, case.continuation, "{} {name}", case.cat);
            assert!(session.steps.len() >= recorded.steps.len(), "{} {name}", case.cat);
            for (step, recorded) in session.steps.iter().zip(&recorded.steps) {
                let what = format!("{} {name} at {}", case.cat, recorded.anchor);
                assert_eq!(step.anchor, recorded.anchor, "{what}");
                assert_eq!(step.drafts, recorded.drafts, "{what}");
                assert_eq!(step.accepted, recorded.accepted, "{what}");
                assert_near(&step.confidence, &recorded.confidence, &what);
            }
            let kept: usize = recorded.steps.iter().map(|step| step.accepted + 1).sum();
            let mean = kept as f32 / recorded.steps.len() as f32;
            assert_near(&[mean], &[recorded.acceptance_length], "acceptance length");
        }
    }
}

#[test]
fn every_arm_drafts_as_recorded_one_request_at_a_time_in_pages_of_32() {
    check_steps(1, 32, 128);
}

#[test]
fn every_arm_drafts_as_recorded_with_prefill_and_verify_rows_mixed_in_pages_of_16() {
    check_steps(24, 16, 37);
}

#[test]
fn every_arm_drafts_as_recorded_in_small_batches_in_pages_of_128() {
    check_steps(5, 128, 512);
}
