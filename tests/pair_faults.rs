//! Rules of the core switched off one at a time, measured in acceptance: the text stays, the
//! speed goes. `cargo test --features faults --test pair_faults -- --nocapture` prints the figures.
#![cfg(all(feature = "pair", feature = "faults"))]

mod pair_serving;

use paceline::engine::pair_engine::PairOptions;
use paceline::{Config, Fault, PublishPolicy, break_rule};
use pair_serving::{NEW_TOKENS, Serving, prompts, try_serve};

const PAGE: u32 = 128;

/// Everything of a request is published when it ends: of its draft window, the end.
fn config() -> Config {
    let mut config = Config { page_tokens: PAGE, max_batch: 1, ..Config::pair() };
    config.publish = PublishPolicy::PerRequest;
    config
}

fn serve(fault: Option<Fault>, waves: &[Vec<Vec<u32>>]) -> Serving {
    break_rule(fault);
    let serving = try_serve(&config(), PairOptions::default(), waves, NEW_TOKENS);
    break_rule(None);
    serving.unwrap()
}

/// Rewrites behind other text, so that their ends lie where a test wants them.
fn rewrites(lead_tokens: usize) -> Vec<Vec<u32>> {
    let lead = &prompts("ladder", 1024, 1)[0][..lead_tokens];
    prompts("rewrite", 1024, 3).iter().map(|prompt| [lead, prompt].concat()).collect()
}

fn other(tokens: usize) -> Vec<u32> {
    prompts("records", 1024, 1)[0][..tokens].to_vec()
}

fn cut(prompts: &[Vec<u32>], at: usize, more: usize) -> Vec<Vec<u32>> {
    prompts.iter().map(|prompt| [&prompt[..at], &other(more)].concat()).collect()
}

/// Acceptance of the last wave, cold, with the rules and with one of them broken.
fn measure(fault: Fault, waves: &[Vec<Vec<u32>>]) -> [(f64, Vec<Vec<u32>>, u64); 3] {
    let last = &waves[waves.len() - 1..];
    [serve(None, last), serve(None, waves), serve(Some(fault), waves)].map(|serving| {
        let from = serving.prompts.len() - last[0].len();
        let computed = serving.computed[from..].iter().sum();
        let acceptance = serving.acceptance(from..serving.prompts.len());
        (acceptance, serving.texts[from..].to_vec(), computed)
    })
}

fn check_drop(fault: Fault, waves: &[Vec<Vec<u32>>]) {
    let [cold, kept, broken] = measure(fault, waves);
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
    check_drop(Fault::Uncapped, &[cut(&rewrites, 1000, 400), rewrites]);
}

/// A claim ends in the last position of a page; the page in front is published half unwritten and
/// another request's window reads it.
#[test]
fn without_the_commit_gate_acceptance_drops() {
    let page = PAGE as usize;
    // The claim of the second wave ends at 9 pages - 1; the window of the third reads from page 8.
    let rewrites = rewrites(10 * page + 4 - 1024);
    let first = cut(&rewrites, 9 * page - 1, 400);
    let second = cut(&rewrites, 10 * page, 9 * page - 1 + 255 - 10 * page);
    check_drop(Fault::OpenGate, &[first, second, rewrites]);
}

/// Here the price is work, not acceptance: the window at a partial page is not found, the claim is
/// cut, and the window is computed again.
#[test]
fn with_full_pages_alone_windows_are_computed_again() {
    let rewrites = rewrites(50);
    let waves = [rewrites.iter().map(|prompt| prompt[..1000].to_vec()).collect(), rewrites];
    let [cold, kept, broken] = measure(Fault::AlignedOnly, &waves);
    println!("AlignedOnly: cold {:.2}, kept {:.2}, broken {:.2}", cold.0, kept.0, broken.0);
    println!("AlignedOnly: computed {} {} {}", cold.2, kept.2, broken.2);
    assert!(broken.2 > kept.2, "{} {}", kept.2, broken.2);
    assert_eq!((&kept.1, &broken.1), (&cold.1, &cold.1));
}
