//! The rules of kv-cache-rules §10 as scenarios with their numbers, and the table of faults: each
//! rule broken on purpose at its one place must make its scenario fail.
//!
//! `cargo test --features faults --test rules` runs the table.

use paceline::kernels::{FLAG_DUMMY, FLAG_SEED};
use paceline::{
    Config, Core, DraftKv, DraftWindow, Drafter, DrafterKind, Event, Fault, Geometry, NewRequest,
    Outcome, PeerLayout, PublishPolicy, SharedDraftKv, Verifier, WarmUp,
};

type Checked = Result<(), String>;

/// A core whose every step is followed page by page.
struct Served {
    core: Core,
    verifier: Verifier,
    /// Claims by admission, in order.
    claims: Vec<(u32, DraftWindow)>,
    /// Most pages of the last group held after a step.
    most_held: u32,
    /// Cells written by each step.
    cells: Vec<u32>,
}

impl Served {
    fn new(config: &Config) -> Self {
        let core = Core::new(config).unwrap();
        let verifier = Verifier::new(core.geometry().clone());
        Self { core, verifier, claims: Vec::new(), most_held: 0, cells: Vec::new() }
    }

    /// Runs `request` to its end, accepting `accept` tokens a step; the first violation is the
    /// error.
    fn run(&mut self, request: NewRequest, accept: u32) -> Checked {
        self.verifier.submit(&request);
        self.core.inbox().submit(request).unwrap();
        while !self.core.is_idle() {
            self.step(accept)?;
        }
        Ok(())
    }

    fn step(&mut self, accept: u32) -> Checked {
        let block_width = self.core.geometry().block_width;
        let plan = self.core.step().unwrap();
        for event in plan.events() {
            if let Event::Admitted { claimed_tokens, draft_window, .. } = event {
                self.claims.push((*claimed_tokens, *draft_window));
            }
        }
        self.cells.push(plan.launches().deltas().iter().map(|delta| delta.count).sum());
        let mut outcome = Outcome::default();
        outcome.begin(plan.step());
        for row in plan.rows() {
            let (least, most) = row.emits();
            outcome.push_row(&vec![77; accept.clamp(least, most) as usize]);
            let end = row.start_bound + row.tokens + block_width;
            if !row.has(FLAG_DUMMY) && end > row.covered {
                return Err(format!(
                    "block to {end} lies past the {} backed positions",
                    row.covered
                ));
            }
        }
        self.verifier.step(plan, &outcome);
        if !outcome.counts.is_empty() {
            self.core.complete(&outcome).unwrap();
        }
        let broken = self.core.audit();
        if let Some(violation) = self.verifier.violations().0.iter().chain(&broken).next() {
            return Err(violation.clone());
        }
        let group = self.core.geometry().groups.last().unwrap().pages;
        let pages = *self.core.pages().last().unwrap();
        self.most_held = self.most_held.max(group - pages.free - pages.cached);
        Ok(())
    }
}

/// A target with full attention and a DSpark drafter with a window.
fn pair(page_tokens: u32, window_tokens: u32, draft_tokens: u32) -> Config {
    let mut config = Config::pair();
    config.page_tokens = page_tokens;
    config.max_seq_len = 131_072;
    config.num_extra_kv_tokens = draft_tokens - 1;
    config.drafter = Some(Drafter::new(DrafterKind::Dspark, draft_tokens, draft_tokens));
    config.groups[1].window_tokens = Some(window_tokens);
    let pages = 2 * config.max_seq_len / page_tokens;
    config.groups.iter_mut().for_each(|group| group.pages = Some(pages));
    config
}

fn text(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|token| seed * 1_000_003 + token).collect()
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Checked {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, not {expected:?}")) }
}

/// I-1.
fn draft_layers_leave_the_targets_pools_alone() -> Checked {
    let mut config = Config::m3();
    let both = Geometry::new(&config).unwrap();
    config.groups.truncate(1);
    let alone = Geometry::new(&config).unwrap();
    expect("pools", &both.groups[0].pools, &alone.groups[0].pools)?;
    expect("buffers", &both.groups[0].buffers, &alone.groups[0].buffers)
}

/// I-2.
fn a_slot_is_seeded_with_the_position_behind_a_claim() -> Checked {
    let mut config = pair(128, 4096, 7);
    config.max_batch = 1;
    let mut served = Served::new(&config);
    served.run(NewRequest::new(1, text(1, 5000), 64), 4)?;
    served.run(NewRequest::new(2, text(1, 6000), 64), 4)?;
    expect("claim", served.claims[1], (5000, DraftWindow::Selected))
}

/// I-3: {61 + 5} and {61 + 0}.
fn peers_with_other_draft_layers_are_refused_by_both_counts() -> Checked {
    let geometry = Geometry::new(&Config::m3()).unwrap();
    let unified = PeerLayout::new(&geometry, DraftKv::Unified);
    let separate = PeerLayout::new(&geometry, DraftKv::Separate);
    unified.check(&unified).map_err(|error| error.to_string())?;
    let error = unified.check(&separate).err().map(|error| error.to_string());
    let expected = "peers differ in draft layers: 5 here, 0 there";
    expect("refusal", error.as_deref(), Some(expected))
}

/// I-4: W = 2048, T = 32: 66 pages held, the extent follows the context to 100K.
fn the_drafters_extent_follows_the_context() -> Checked {
    let mut config = pair(32, 2048, 7);
    (config.token_budget, config.chunk_tokens) = (2048, 1024);
    let mut served = Served::new(&config);
    let prompt = text(4, 100_000);
    served.verifier.submit(&NewRequest::new(1, prompt.clone(), 400));
    served.core.inbox().submit(NewRequest::new(1, prompt, 400)).unwrap();
    while served.core.stats().decode_rows == 0 {
        served.step(1)?;
    }
    served.most_held = 0;
    while !served.core.is_idle() {
        served.step(5)?;
    }
    expect("draft pages held", served.most_held, 66)
}

/// I-5: batch A leaves 79 where batch B starts at 8.
fn a_warm_up_row_starts_at_its_batchs_position() -> Checked {
    let mut core = Core::new(&pair(8, 64, 7)).unwrap();
    let before = (*core.stats(), core.pages());
    let mut contexts = [0u32; 16];
    for (context_tokens, replays) in [(48, 4), (8, 1)] {
        let shape = WarmUp { rows: 4, context_tokens, chunk_tokens: None };
        let mut checked = Ok(());
        core.warm_up(shape, |plan| {
            for replay in 0..replays {
                for row in plan.rows() {
                    let context = &mut contexts[row.slot as usize];
                    if replay == 0 && row.has(FLAG_SEED) {
                        *context = row.start;
                    }
                    if *context + 8 > row.covered && replay == 0 {
                        checked = Err(format!("slot {}: block past {}", row.slot, row.covered));
                    }
                    *context += 8;
                }
            }
        })
        .unwrap();
        checked?;
    }
    expect("counters and pools", (*core.stats(), core.pages()), before)?;
    expect("invariants", core.audit(), Vec::new())
}

/// I-6: 34 pages for each of 64 sequences, a chunk and one, whatever the quota.
fn the_draft_groups_share_does_not_grow_with_the_quota() -> Checked {
    let mut config = Config::m3();
    let mut pages = Vec::new();
    for gib in [40, 80, 160] {
        config.hot_bytes = gib << 30;
        let geometry = Geometry::new(&config).unwrap();
        expect("floor", geometry.window_floor_pages(4096), 34 * 64 + 64 + 1)?;
        pages.push(geometry.groups[1].pages);
    }
    let slack = pages.iter().max().unwrap() - pages.iter().min().unwrap();
    let grain = (32u32 << 20) / (128 * 20_480) + 1;
    if slack <= grain { Ok(()) } else { Err(format!("draft pages by quota: {pages:?}")) }
}

/// I-7 B and C, with only the window at A's end left.
fn a_claim_without_the_window_is_capped_and_the_next_is_not() -> Checked {
    let mut config = pair(16, 64, 7);
    config.publish = PublishPolicy::PerRequest;
    config.chunk_tokens = 48;
    let mut served = Served::new(&config);
    let branch = |seed, tokens| [text(7, 500), text(seed, tokens)].concat();
    served.run(NewRequest::new(1, branch(71, 400), 8), 3)?;
    served.run(NewRequest::new(2, branch(72, 30), 8), 3)?;
    served.run(NewRequest::new(3, branch(73, 30), 8), 3)?;
    expect("second claim", served.claims[1], (500 + 1 - 64, DraftWindow::Capped))?;
    expect("third claim", served.claims[2], (500, DraftWindow::Selected))
}

/// I-7 F: the page in which a capped claim ends is not published for the drafter.
fn a_drafter_page_with_an_unwritten_position_is_not_published() -> Checked {
    let mut config = pair(16, 64, 7);
    config.groups[1].pages = Some(80);
    let mut served = Served::new(&config);
    served.run(NewRequest::new(1, text(7, 500), 1), 1)?;
    // The first text's window is evicted, and so is all of this one but its end.
    served.run(NewRequest::new(2, text(8, 1000), 1), 1)?;
    let continued = [text(7, 500), text(72, 30)].concat();
    served.run(NewRequest::new(3, continued.clone(), 1), 1)?;
    expect("capped at L + 1 - W", served.claims[2], (530 + 1 - 64, DraftWindow::Capped))?;
    // A window that ends 2 tokens short of 530 reads 2 positions that nobody wrote.
    let inside = [continued[..528].to_vec(), text(74, 40)].concat();
    served.run(NewRequest::new(4, inside, 8), 3)?;
    expect("not complete there", served.claims[3].1, DraftWindow::Capped)
}

/// I-8: work follows pages that changed.
fn a_decode_step_writes_the_cells_that_changed() -> Checked {
    let mut served = Served::new(&pair(16, 64, 7));
    let request = NewRequest::new(1, text(8, 1000), 300);
    served.verifier.submit(&request);
    served.core.inbox().submit(request).unwrap();
    while served.core.stats().decode_rows == 0 {
        served.step(1)?;
    }
    served.cells.clear();
    while served.core.load().1 > 0 {
        served.step(5)?;
    }
    served.cells.pop(); // The last step clears the row.
    let most = *served.cells.iter().max().unwrap();
    // A page in each group, and one that left the window.
    if most <= 3 { Ok(()) } else { Err(format!("{most} cells in a step")) }
}

/// I-9: T = 128, K = 7, E = 6, B = 7: L = 122 at the prompt's end, and after full acceptance.
fn the_block_has_pages_at_every_edge() -> Checked {
    for prompt in (1..300).step_by(11).chain([114, 121, 122, 250]) {
        let mut served = Served::new(&pair(128, 4096, 7));
        served.run(NewRequest::new(1, text(9, prompt), 40), 8)?;
    }
    Ok(())
}

/// I-10.
fn an_explicit_wish_is_honoured_or_fatal() -> Checked {
    let decide = |wish: SharedDraftKv, blocker| wish.decide(blocker).map_err(|e| e.to_string());
    let blocked = Some("the manager has no lifecycle groups");
    for wish in [SharedDraftKv::Unset, SharedDraftKv::Auto, SharedDraftKv::Off] {
        expect("fallback", decide(wish, blocked), Ok(DraftKv::Separate))?;
    }
    expect("shared", decide(SharedDraftKv::On, None), Ok(DraftKv::Unified))?;
    let refused = "shared draft KV was asked for (1) and cannot be had: \
                   the manager has no lifecycle groups";
    expect("refusal", decide(SharedDraftKv::On, blocked), Err(refused.to_owned()))
}

/// I-11.
fn whoever_starts_workers_does_not_decide_for_them() -> Checked {
    use SharedDraftKv::{Auto, Off, On, Unset};
    for (said, alike, told) in [
        (Unset, true, Auto),
        (Auto, true, Auto),
        (Unset, false, Off),
        (Off, true, Off),
        (On, false, On),
    ] {
        expect("told", said.launch(alike), told)?;
    }
    Ok(())
}

/// I-12: slot 0 and id 0 were a request's.
fn a_dummy_row_never_inherits_a_slot() -> Checked {
    let mut config = pair(16, 64, 7);
    config.graph_batches = vec![4, 8];
    let mut served = Served::new(&config);
    served.run(NewRequest::new(0, text(12, 3000), 16), 3)?;
    served.run(NewRequest::new(1, text(13, 50), 16), 3)
}

/// I-13: the bound of a store is in the plan.
fn every_row_says_how_far_it_is_backed() -> Checked {
    let mut config = pair(32, 2048, 7);
    (config.token_budget, config.chunk_tokens) = (16_384, 8192);
    Served::new(&config).run(NewRequest::new(1, text(14, 65_536), 8), 3)
}

/// I-14 A: a template of 187 tokens in pages of 128.
fn a_partial_endpoint_is_an_endpoint() -> Checked {
    let mut served = Served::new(&pair(128, 4096, 7));
    let template = text(15, 187);
    served.run(NewRequest::new(1, template.clone(), 1), 1)?;
    served.run(NewRequest::new(2, [template, text(16, 100)].concat(), 8), 3)?;
    expect("claim", served.claims[1], (187, DraftWindow::Selected))
}

/// I-14 C: two requests go on from one partial page.
fn a_partial_page_is_copied_before_it_is_written() -> Checked {
    let mut served = Served::new(&pair(128, 4096, 7));
    let template = text(15, 187);
    served.run(NewRequest::new(1, template.clone(), 1), 1)?;
    for id in [2, 3] {
        let request = NewRequest::new(id, [template.clone(), text(id as u32, 9)].concat(), 200);
        served.verifier.submit(&request);
        served.core.inbox().submit(request).unwrap();
    }
    while !served.core.is_idle() {
        served.step(3)?;
    }
    served.run(NewRequest::new(4, [template, text(17, 100)].concat(), 8), 3)?;
    let claims: Vec<u32> = served.claims[1..].iter().map(|claim| claim.0).collect();
    expect("claims", claims, vec![187; 3])
}

const TABLE: [(Fault, fn() -> Checked); 16] = [
    (Fault::SharedGroup, draft_layers_leave_the_targets_pools_alone),
    (Fault::Unseeded, a_slot_is_seeded_with_the_position_behind_a_claim),
    (Fault::UncheckedPeer, peers_with_other_draft_layers_are_refused_by_both_counts),
    (Fault::CountedExtent, the_drafters_extent_follows_the_context),
    (Fault::WarmUpInherits, a_warm_up_row_starts_at_its_batchs_position),
    (Fault::SplitByTokens, the_draft_groups_share_does_not_grow_with_the_quota),
    (Fault::Uncapped, a_claim_without_the_window_is_capped_and_the_next_is_not),
    (Fault::OpenGate, a_drafter_page_with_an_unwritten_position_is_not_published),
    (Fault::WholeRows, a_decode_step_writes_the_cells_that_changed),
    (Fault::ShortExtra, the_block_has_pages_at_every_edge),
    (Fault::SilentFallback, an_explicit_wish_is_honoured_or_fatal),
    (Fault::LauncherJudges, whoever_starts_workers_does_not_decide_for_them),
    (Fault::DummyInherits, a_dummy_row_never_inherits_a_slot),
    (Fault::NoHostBound, every_row_says_how_far_it_is_backed),
    (Fault::AlignedOnly, a_partial_endpoint_is_an_endpoint),
    (Fault::SharedWrite, a_partial_page_is_copied_before_it_is_written),
];

#[test]
fn every_rule_holds() {
    let broken: Vec<_> = TABLE.iter().filter_map(|(f, run)| Some((f, run().err()?))).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

#[cfg(feature = "faults")]
#[test]
fn every_fault_makes_its_scenario_fail() {
    for (fault, scenario) in TABLE {
        paceline::break_rule(Some(fault));
        let outcome = std::panic::catch_unwind(scenario);
        paceline::break_rule(None);
        assert!(!matches!(outcome, Ok(Ok(()))), "{fault:?} goes unnoticed");
        println!("{fault:?}: {:?}", outcome.map_err(|_| "panicked"));
    }
}
