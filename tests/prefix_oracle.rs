//! Every match against a brute-force oracle: the set of full pages that the core's own facts say are
//! findable. `PACELINE_SEED=N cargo test --test prefix_oracle` runs one seed.

mod support;

use paceline::workload::rng::Rng;
use paceline::{Config, DraftWindow, ExtraKeys, Fact, NewRequest, PageKey};
use paceline_components::KeyChain;
use std::collections::{HashMap, HashSet};
use support::{Harness, text};

/// Findable pages by group, and the page in front of each.
#[derive(Default)]
struct Oracle {
    pages: HashSet<(u32, PageKey)>,
    parents: HashMap<PageKey, PageKey>,
}

impl Oracle {
    fn note(&mut self, facts: &[Fact]) {
        for fact in facts {
            match *fact {
                Fact::Stored { key, parent, group, .. } => {
                    assert!(self.pages.insert((group, key)), "stored once until it is removed");
                    assert_eq!(*self.parents.entry(key).or_insert(parent), parent);
                }
                Fact::Removed { key, group } => {
                    assert!(self.pages.remove(&(group, key)), "only what is stored is removed");
                }
            }
        }
    }

    /// Full pages of the target's match.
    fn matched_pages(&self, keys: &[PageKey], most: usize) -> usize {
        keys.iter().take(most).take_while(|key| self.pages.contains(&(0, **key))).count()
    }

    /// Whether the drafter has every page that the window needs at the end of `pages`.
    fn is_complete(&self, keys: &[PageKey], pages: usize, config: &Config) -> bool {
        let window = config.groups[1].window_tokens.unwrap();
        let first = (pages as u32 * config.page_tokens + 1).saturating_sub(window);
        let first = (first / config.page_tokens) as usize;
        keys[first.min(pages)..pages].iter().all(|key| self.pages.contains(&(1, *key)))
    }
}

fn prompt(rng: &mut Rng) -> Vec<u32> {
    let mut prompt = text(rng.below(2) as u32, rng.below(70) as u32);
    prompt.extend(text(10 + rng.below(3) as u32, rng.below(40) as u32));
    prompt.extend(text(20 + rng.below(3) as u32, 2 + rng.below(20) as u32));
    prompt
}

fn extra(rng: &mut Rng) -> ExtraKeys {
    let lora = (rng.below(6) == 0).then(|| "x".to_owned());
    let salt = (rng.below(6) == 0).then(|| "x".to_owned());
    ExtraKeys { lora, salt, ..ExtraKeys::default() }
}

fn agree(harness: &mut Harness, oracle: &Oracle, request: &NewRequest, config: &Config) {
    let page = config.page_tokens;
    let mut chain = KeyChain::new(page, request.extra.clone());
    chain.extend(&request.prompt);
    let keys = chain.keys();
    // The last token is always computed.
    let most = (request.prompt.len() - 1) / page as usize;
    let matched = oracle.matched_pages(keys, most);
    let probe = harness.core.probe(request);
    let probed = (probe.matched_tokens / page) as usize;
    assert_eq!(probed, matched, "{probe:?}");
    assert!(probe.claim_tokens <= probe.matched_tokens);
    let is_aligned = probe.claim_tokens.is_multiple_of(page);
    let claimed = (probe.claim_tokens / page) as usize;
    match probe.draft_window {
        DraftWindow::Selected | DraftWindow::Retried if is_aligned => {
            // A branch's head page is findable though it is not announced.
            let is_known = oracle.is_complete(&keys[..claimed], claimed, config);
            assert!(is_known || claimed < matched || harness.core.stats().draft_window_capped > 0);
        }
        DraftWindow::Capped | DraftWindow::Uncapped => {
            assert!(!oracle.is_complete(keys, matched, config), "{probe:?} at {matched} pages");
        }
        _ => {}
    }
}

fn run(seed: u64) -> u64 {
    let rng = &mut Rng(seed);
    let mut config = Config::pair();
    config.page_tokens = [4, 8][rng.below(2) as usize];
    config.overlap_depth = rng.below(2) as u32;
    config.max_seq_len = 256;
    config.chunk_tokens = [16, 200][rng.below(2) as usize];
    config.groups[1].window_tokens = Some([8, 24, 60][rng.below(3) as usize]);
    let pages = (300 / config.page_tokens) * [1, 2, 6][rng.below(3) as usize];
    config.groups.iter_mut().for_each(|group| group.pages = Some(pages));
    let (mut harness, mut oracle) = (Harness::new(&config), Oracle::default());
    let mut next = 0;
    for _ in 0..150 {
        if rng.below(4) == 0 {
            let new = NewRequest::new(next, prompt(rng), 1 + rng.below(12) as u32);
            harness.submit(new.extra_keys(extra(rng))).unwrap();
            next += 1;
        }
        harness.step(|row| 1 + rng.below(u64::from(row.tokens)) as u32);
        oracle.note(harness.core.facts());
        let asked = NewRequest::new(u64::MAX, prompt(rng), 4).extra_keys(extra(rng));
        agree(&mut harness, &oracle, &asked, &config);
    }
    harness.core.stats().claimed_tokens
}

#[test]
fn every_match_is_the_oracles() {
    if let Ok(seed) = std::env::var("PACELINE_SEED") {
        run(seed.parse().unwrap());
        return;
    }
    let mut claimed = 0;
    for seed in 0..150 {
        claimed += std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
            eprintln!("PACELINE_SEED={seed} cargo test --test prefix_oracle");
            std::panic::resume_unwind(panic)
        });
    }
    assert!(claimed > 10_000, "prefixes are shared: {claimed} tokens claimed");
}
