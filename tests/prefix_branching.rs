//! The drafter's window at branch points: pages of 128, a window of 4096, chunks of 16384. A, then
//! B, then C share their first tokens.

mod support;

use paceline::{Config, DraftWindow, NewRequest, PublishPolicy};
use support::{Harness, text};

fn config(publish: PublishPolicy) -> Config {
    let mut config = Config::m3();
    config.publish = publish;
    (config.token_budget, config.chunk_tokens) = (16_384, 16_384);
    config.groups.iter_mut().for_each(|group| group.pages = Some(2500));
    config
}

/// Serves one request to its end: what it claimed, its window, and the prompt tokens it computed.
fn serve(harness: &mut Harness, id: u64, prompt: Vec<u32>) -> (u32, DraftWindow, u64) {
    harness.submit(NewRequest::new(id, prompt, 8)).unwrap();
    harness.drain(|_| 3);
    let answer = harness.answer(id);
    (answer.claimed.unwrap(), answer.window, answer.computed)
}

fn branch(shared_tokens: u32, seed: u32, tokens: u32) -> Vec<u32> {
    [text(1, shared_tokens), text(seed, tokens - shared_tokens)].concat()
}

#[test]
fn a_branch_near_the_prompts_end_recomputes_one_window_and_the_next_sibling_hits_all() {
    let mut harness = Harness::new(&config(PublishPolicy::PerRequest));
    serve(&mut harness, 1, branch(60_000, 2, 64_000));
    let b = serve(&mut harness, 2, branch(60_000, 3, 63_000));
    assert_eq!(b, (55_905, DraftWindow::Capped, 7095));
    let c = serve(&mut harness, 3, branch(60_000, 4, 63_000));
    assert_eq!(c, (60_000, DraftWindow::Selected, 3000));
}

#[test]
fn a_branch_12000_tokens_in_computes_6095() {
    let mut harness = Harness::new(&config(PublishPolicy::PerRequest));
    serve(&mut harness, 1, branch(12_000, 2, 20_000));
    let b = serve(&mut harness, 2, branch(12_000, 3, 14_000));
    assert_eq!(b, (7905, DraftWindow::Capped, 6095));
    let c = serve(&mut harness, 3, branch(12_000, 4, 14_000));
    assert_eq!(c, (12_000, DraftWindow::Selected, 2000));
}

#[test]
fn a_branch_whose_own_tail_is_longer_than_the_window_claims_everything_at_once() {
    let mut harness = Harness::new(&config(PublishPolicy::PerRequest));
    serve(&mut harness, 1, branch(3000, 2, 64_000));
    let b = serve(&mut harness, 2, branch(3000, 3, 8000));
    assert_eq!(b, (3000, DraftWindow::Uncapped, 5000));
}

#[test]
fn with_every_window_cached_a_branch_is_selected_where_it_is() {
    let mut harness = Harness::new(&config(PublishPolicy::AllReusable));
    for (first, shared, a, b) in
        [(1, 60_000, 64_000, 63_000), (3, 12_000, 20_000, 14_000), (5, 3000, 64_000, 8000)]
    {
        let seed = first as u32 * 10;
        let prompt = |own: u32, tokens: u32| {
            [text(seed, shared), text(seed + own, tokens - shared)].concat()
        };
        serve(&mut harness, first, prompt(1, a));
        let b_served = serve(&mut harness, first + 1, prompt(2, b));
        assert_eq!(b_served, (shared, DraftWindow::Selected, u64::from(b - shared)));
    }
}

#[test]
fn evicted_windows_are_recomputed_once() {
    let mut config = config(PublishPolicy::AllReusable);
    // One request's charge and little more: the window of a branch is gone when it is wanted.
    config.groups[1].pages = Some(170);
    let mut harness = Harness::new(&config);
    serve(&mut harness, 1, branch(30_000, 2, 64_000));
    let b = serve(&mut harness, 2, branch(30_000, 3, 33_000));
    assert_eq!(b, (25_905, DraftWindow::Capped, 7095));
    let c = serve(&mut harness, 3, branch(30_000, 4, 33_000));
    assert_eq!(c, (30_000, DraftWindow::Selected, 3000));
}

/// kv-cache-rules §6.3: before partial snapshots the claim was cut to the last full page.
#[test]
fn with_43_shared_tokens_the_third_request_claims_43() {
    let mut config = Config::pair();
    config.publish = PublishPolicy::PerRequest;
    config.page_tokens = 8;
    config.chunk_tokens = 16;
    config.groups[1].window_tokens = Some(16);
    config.groups.iter_mut().for_each(|group| group.pages = Some(200));
    let mut harness = Harness::new(&config);
    serve(&mut harness, 1, branch(43, 2, 90));
    let b = serve(&mut harness, 2, branch(43, 3, 50));
    assert_eq!(b, (28, DraftWindow::Capped, 22));
    let c = serve(&mut harness, 3, branch(43, 4, 50));
    assert_eq!(c, (43, DraftWindow::Selected, 7));
}

/// I-14 D: the continuation of a conversation whose prompt ended inside a page.
#[test]
fn the_next_turn_of_a_conversation_finds_target_and_drafter_where_the_last_one_ended() {
    for publish in [PublishPolicy::PerRequest, PublishPolicy::PerConversation] {
        let mut harness = Harness::new(&config(publish));
        let mut prompt = text(1, 187);
        harness.submit(NewRequest::new(1, prompt.clone(), 20).conversation(5)).unwrap();
        harness.drain(|_| 3);
        prompt.extend(&harness.answer(1).tokens);
        let known = prompt.len() as u32;
        prompt.extend(text(2, 40));
        harness.submit(NewRequest::new(2, prompt, 20).conversation(5)).unwrap();
        harness.drain(|_| 3);
        let answer = harness.answer(2);
        assert_eq!(answer.window, DraftWindow::Selected);
        // The last token may have been a draft that was accepted, and then has its keys.
        assert!((known - 1..=known).contains(&answer.claimed.unwrap()), "{answer:?}");
    }
}

#[test]
fn an_earlier_turns_window_is_dropped_when_the_next_turn_has_ended() {
    let mut harness = Harness::new(&config(PublishPolicy::PerConversation));
    let mut prompt = text(1, 9000);
    let mut cached = Vec::new();
    for turn in 0..4 {
        harness.submit(NewRequest::new(turn, prompt.clone(), 20).conversation(5)).unwrap();
        harness.drain(|_| 3);
        prompt.extend(&harness.answer(turn).tokens);
        prompt.extend(text(2 + turn as u32, 9000));
        cached.push(harness.core.pages()[1].cached);
    }
    // The windows at the prompt's end and at the turn's, which overlap but for a page or two.
    assert!(cached.iter().all(|pages| (33..=36).contains(pages)), "{cached:?}");
}

#[test]
fn a_probe_finds_what_a_claim_takes_and_touches_nothing() {
    let mut harness = Harness::new(&config(PublishPolicy::AllReusable));
    serve(&mut harness, 1, branch(12_000, 2, 20_000));
    let request = NewRequest::new(2, branch(12_000, 3, 14_000), 8);
    let (stats, pages) = (*harness.core.stats(), harness.core.pages());
    let probes = [harness.core.probe(&request), harness.core.probe(&request)];
    assert_eq!((*harness.core.stats(), harness.core.pages()), (stats, pages));
    assert_eq!(probes[0], probes[1]);
    let claimed = serve(&mut harness, 2, request.prompt);
    assert_eq!((probes[0].claim_tokens, probes[0].draft_window), (claimed.0, claimed.1));
}
