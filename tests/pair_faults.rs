//! Rules of the core switched off one at a time, measured in acceptance: the text stays, the
//! speed goes. `cargo test --features faults --test pair_faults -- --nocapture` prints the figures.
#![cfg(all(feature = "pair", feature = "faults"))]

mod pair_serving;

use paceline::engine::pair_engine::PairOptions;
use paceline::{Config, Fault, PublishPolicy, break_rule};
use pair_serving::{NEW_TOKENS, Serving, prompts, try_serve};

/// Everything of a request is published when it ends: of its draft window, the end.
fn config(page_tokens: u32) -> Config {
    let mut config = Config { page_tokens, max_batch: 1, ..Config::pair() };
    config.publish = PublishPolicy::PerRequest;
    config
}

fn serve(page_tokens: u32, fault: Option<Fault>, waves: &[Vec<Vec<u32>>]) -> Serving {
    break_rule(fault);
    let serving = try_serve(&config(page_tokens), PairOptions::default(), waves, NEW_TOKENS);
    break_rule(None);
    serving.unwrap()
}

/// Rewrites behind other text, so that their ends lie where a test wants them.
fn rewrites(lead_tokens: usize) -> Vec<Vec<u32>> {
    let lead = &prompts("ladder", 1024, 1)[0][..lead_tokens];
    prompts("rewrite", 1024, 2).iter().map(|prompt| [lead, prompt].concat()).collect()
}

fn other(tokens: usize) -> Vec<u32> {
    prompts("records", 1024, 1)[0][..tokens].to_vec()
}

fn cut(prompts: &[Vec<u32>], at: usize, more: usize) -> Vec<Vec<u32>> {
    prompts.iter().map(|prompt| [&prompt[..at], &other(more)].concat()).collect()
}

/// Acceptance of the last wave, cold, with the rules and with one of them broken.
fn measure(page: u32, fault: Fault, waves: &[Vec<Vec<u32>>]) -> [(f64, Vec<Vec<u32>>, u64); 3] {
    let last = &waves[waves.len() - 1..];
    [serve(page, None, last), serve(page, None, waves), serve(page, Some(fault), waves)].map(
        |serving| {
            let from = serving.prompts.len() - last[0].len();
            let computed = serving.computed[from..].iter().sum();
            let acceptance = serving.acceptance(from..serving.prompts.len());
            (acceptance, serving.texts[from..].to_vec(), computed)
        },
    )
}

fn check_drop(page: u32, fault: Fault, waves: &[Vec<Vec<u32>>]) {
    let [cold, kept, broken] = measure(page, fault, waves);
    println!("{fault:?}: cold {:.2}, kept {:.2}, broken {:.2}", cold.0, kept.0, broken.0);
    println!("{fault:?}: computed {} {} {}", cold.2, kept.2, broken.2);
    assert!((kept.0 / cold.0 - 1.0).abs() < 0.01, "{fault:?}: {} {}", cold.0, kept.0);
    assert!(kept.2 < cold.2, "{fault:?}: nothing was claimed");
    assert!(broken.0 < 0.9 * kept.0, "{fault:?}: {} {}", kept.0, broken.0);
    assert_eq!(kept.1, cold.1, "{fault:?}");
    assert_eq!(broken.1, cold.1, "{fault:?}");
}

/// A request read the passage and went on: its window is elsewhere. Claiming the whole match
/// leaves the drafter the few rows behind it.
#[test]
fn without_the_claim_cap_acceptance_drops() {
    let rewrites = rewrites(0);
    check_drop(128, Fault::Uncapped, &[cut(&rewrites, 1000, 400), rewrites]);
}

/// A claim ends near the end of a page, so far from the prompt's end that nothing is cut. That page
/// is half written and in the window at the prompt's end; published, it completes a window of
/// another request.
#[test]
fn without_the_commit_gate_acceptance_drops() {
    // A page as long as the window: hardly a row of it is true.
    let page = 256;
    let (claim, end) = (5 * page - 4, 5 * page);
    let rewrites = rewrites(end + 4 - 1024);
    let first = cut(&rewrites, claim, 400);
    // One more than the window, or the claim would be cut for the branch.
    let second = cut(&rewrites, end, claim + 257 - end);
    check_drop(page as u32, Fault::OpenGate, &[first, second, rewrites]);
}

/// Here the price is work, not acceptance: the window at a partial page is not found, the claim is
/// cut, and the window is computed again.
#[test]
fn with_full_pages_alone_windows_are_computed_again() {
    let rewrites = rewrites(50);
    let waves = [rewrites.iter().map(|prompt| prompt[..1000].to_vec()).collect(), rewrites];
    let [cold, kept, broken] = measure(128, Fault::AlignedOnly, &waves);
    println!("AlignedOnly: cold {:.2}, kept {:.2}, broken {:.2}", cold.0, kept.0, broken.0);
    println!("AlignedOnly: computed {} {} {}", cold.2, kept.2, broken.2);
    assert!(broken.2 > kept.2, "{} {}", kept.2, broken.2);
    assert_eq!((&kept.1, &broken.1), (&cold.1, &cold.1));
}
