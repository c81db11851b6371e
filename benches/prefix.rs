//! The prefix index over one long prompt in two groups: hash, match and claim, insert, evict.
//! Report only.
//!
//! `cargo bench --bench prefix`

use divan::Bencher;
use divan::counter::ItemsCount;
use paceline::bench::{PrefixBench, PrefixRounds};
use std::cell::RefCell;

/// Tokens of the prompt.
const CONTEXTS: [u32; 2] = [8 << 10, 128 << 10];
/// Each prompt is timed once, since a second time it is known.
const PROMPTS: u32 = 40;

fn start(context_tokens: u32) -> RefCell<PrefixRounds> {
    let bench = PrefixBench { context_tokens, page_tokens: 128, rounds: PROMPTS };
    RefCell::new(bench.start().expect("the numbers make a valid configuration"))
}

/// Computes a prompt that nobody had before and lets go of it: it stays cached.
fn compute(run: &mut PrefixRounds) -> Vec<u32> {
    let prompt = run.prompt();
    let copy = run.copy(&prompt);
    run.submit(prompt);
    run.step();
    run.answer();
    run.end();
    copy
}

/// Hashing a prompt at submit, matching all of it and claiming it.
#[divan::bench(args = CONTEXTS, sample_count = PROMPTS, sample_size = 1)]
fn hash_match_claim(bencher: Bencher, context_tokens: u32) {
    let run = start(context_tokens);
    let known = || {
        let mut run = run.borrow_mut();
        run.end();
        compute(&mut run)
    };
    bencher.counter(ItemsCount::new(context_tokens)).with_inputs(known).bench_local_values(
        |prompt| {
            let mut run = run.borrow_mut();
            run.submit(prompt);
            run.step();
            run.answer();
        },
    );
}

/// Publishing every page of a prompt that nobody had before.
#[divan::bench(args = CONTEXTS, sample_count = PROMPTS, sample_size = 1)]
fn insert(bencher: Bencher, context_tokens: u32) {
    let run = start(context_tokens);
    let computed = || {
        let mut run = run.borrow_mut();
        run.end();
        let prompt = run.prompt();
        run.submit(prompt);
        run.step();
        run.answer();
    };
    bencher.counter(ItemsCount::new(context_tokens)).with_inputs(computed).bench_local_values(
        |()| {
            let mut run = run.borrow_mut();
            run.step();
            run.answer();
        },
    );
}

/// A step that takes every page by evicting another prompt's; the items are tokens.
#[divan::bench(args = CONTEXTS, sample_count = PROMPTS, sample_size = 1)]
fn evict(bencher: Bencher, context_tokens: u32) {
    let run = start(context_tokens);
    (0..PrefixRounds::IN_POOL).for_each(|_| _ = compute(&mut run.borrow_mut()));
    let submitted = || {
        let mut run = run.borrow_mut();
        run.end();
        let prompt = run.prompt();
        run.submit(prompt);
    };
    bencher.counter(ItemsCount::new(context_tokens)).with_inputs(submitted).bench_local_values(
        |()| {
            let mut run = run.borrow_mut();
            run.step();
            run.answer();
        },
    );
}

fn main() {
    divan::main();
}
