//! Small numbers, exact outcomes: retention, admission, preemption, batches, feedback. The letter
//! and number name the case it re-expresses; where another core's rule is weaker, ours stands.

mod support;

use paceline::kernels::{FLAG_LAST_CHUNK, FLAG_PREFILL};
use paceline::{
    Config, Drafter, DrafterKind, FinishReason, GroupSpec, NewRequest, Owner, PublishPolicy,
    SubmitError,
};
use support::{Harness, text, token};

/// Full and windowed target groups without reuse, so that pages are counted exactly.
fn config(page_tokens: u32, windows: &[Option<u32>], pages: u32) -> Config {
    let mut config = Config::small(page_tokens, windows, pages);
    config.publish = PublishPolicy::Off;
    config
}

fn drafted(mut config: Config, draft_tokens: u32) -> Config {
    config.drafter = Some(Drafter::new(DrafterKind::Dspark, draft_tokens, draft_tokens));
    config.num_extra_kv_tokens = draft_tokens - 1;
    config
}

fn ask(id: u64, prompt: u32, output: u32) -> NewRequest {
    NewRequest::new(id, text(100 + id as u32, prompt), output)
}

/// (request, start, tokens) of the last plan's rows.
fn rows(harness: &Harness) -> Vec<(u64, u32, u32)> {
    harness.rows.iter().map(|row| (row.request(), row.start_bound, row.tokens)).collect()
}

/// S01, S02: keys 3..=6 are read at 6, so page 1 goes exactly at 7.
#[test]
fn a_page_goes_exactly_when_the_window_has_left_it() {
    let mut harness = Harness::new(&config(2, &[Some(4)], 50));
    harness.submit(ask(1, 4, 20)).unwrap();
    let mut table = Vec::new();
    for _ in 0..5 {
        harness.step(|_| 1);
        let first = harness.verifier.device().table_row(0, 0).iter().position(|s| *s != 0);
        table.push((harness.rows[0].start, first));
    }
    assert_eq!(table, [(0, Some(0)), (4, Some(0)), (5, Some(1)), (6, Some(1)), (7, Some(2))]);
}

/// S03: pages leave the window during prefill; the full group never has a hole.
#[test]
fn a_window_slides_while_the_prompt_is_computed() {
    let mut config = config(2, &[None, Some(4)], 50);
    config.chunk_tokens = 4;
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 12, 4)).unwrap();
    let mut holes = Vec::new();
    for _ in 0..4 {
        harness.step(|_| 1);
        let live = |group| harness.verifier.device().table_row(group, 0).iter();
        holes.push((
            live(1).take_while(|s| **s == 0).count(),
            live(0).take_while(|s| **s == 0).count(),
        ));
    }
    assert_eq!(holes, [(0, 0), (0, 0), (2, 0), (4, 0)]);
}

/// S07, S13: a sliding group of a few pages decodes for as long as one likes.
#[test]
fn a_windowed_sequence_needs_no_more_pages_however_long_it_gets() {
    let mut config = config(2, &[Some(4)], 7);
    (config.token_budget, config.chunk_tokens) = (4, 4);
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 8, 200)).unwrap();
    let mut most = 0;
    while !harness.core.is_idle() {
        harness.step(|_| 1);
        most = most.max(harness.held()[0]);
    }
    assert_eq!(harness.answer(1).tokens.len(), 200);
    assert!(most <= 5, "{most}");
}

/// S11, B03: a windowed group is charged window, chunk and lookahead, never the whole prompt.
#[test]
fn a_long_prompt_enters_although_its_window_group_could_not_hold_it() {
    let mut config = config(2, &[None, Some(4)], 40);
    (config.token_budget, config.chunk_tokens) = (4, 4);
    config.groups[0].pages = Some(11);
    config.groups[1].pages = Some(5);
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 20, 1)).unwrap();
    harness.drain(|_| 1);
    assert_eq!(harness.answer(1).finished, Some(FinishReason::Length));
    let peaks: Vec<u32> = harness.core.pages().iter().map(|group| group.peak_held).collect();
    assert_eq!(peaks, [10, 4]);
}

/// S51: five pages, two groups, 12 tokens in pages of 4.
#[test]
fn admission_takes_pages_in_every_group_or_in_none() {
    let mut config = config(4, &[None, Some(100)], 5);
    config.groups[1].pages = Some(2);
    let mut harness = Harness::new(&config);
    let refused = harness.submit(ask(1, 12, 1)).unwrap_err();
    assert!(matches!(refused, SubmitError::NeverFits { group, .. } if group == "group1"));
    assert_eq!(harness.held(), [0, 0]);
    harness.submit(ask(2, 6, 1)).unwrap();
    harness.submit(ask(3, 6, 1)).unwrap();
    harness.step(|_| 1);
    assert_eq!(rows(&harness), [(2, 0, 6)], "the second waits for group1");
    harness.drain(|_| 1);
    assert_eq!(harness.answer(3).finished, Some(FinishReason::Length));
}

/// S52, S70: what a request was promised comes back when it ends.
#[test]
fn a_request_that_does_not_fit_enters_when_another_has_ended() {
    let mut harness = Harness::new(&config(2, &[None], 10));
    harness.submit(ask(1, 14, 4)).unwrap();
    harness.submit(ask(2, 14, 4)).unwrap();
    harness.step(|_| 1);
    assert_eq!(rows(&harness), [(1, 0, 14)]);
    harness.drain(|_| 1);
    assert_eq!(harness.answer(2).tokens.len(), 4);
    assert_eq!(harness.answer(2).preempted, 0);
}

/// S65: what one admission takes the next one of the same plan does not see.
#[test]
fn two_prompts_that_fit_alone_do_not_enter_together() {
    let mut harness = Harness::new(&config(2, &[None, None], 6));
    harness.submit(ask(1, 8, 2)).unwrap();
    harness.submit(ask(2, 8, 2)).unwrap();
    harness.step(|_| 1);
    assert_eq!(rows(&harness).len(), 1);
    harness.drain(|_| 1);
}

/// S66: the group is named before any pool is built.
#[test]
fn a_wrong_configuration_names_its_field() {
    let mut config = config(4, &[None, Some(8)], 9);
    config.groups[1].window_tokens = Some(0);
    let error = paceline::Core::new(&config).err().map(|error| error.to_string());
    let expected = "groups[1].window_tokens = 0: takes at least 1, or leave it out";
    assert_eq!(error.as_deref(), Some(expected));
}

/// S67, bug 4, 37: the youngest gives way, comes back, and everybody finishes.
#[test]
fn when_pages_run_out_the_youngest_is_preempted_and_recomputed() {
    for overlap_depth in [0, 1] {
        let mut config = config(2, &[None], 12);
        config.overlap_depth = overlap_depth;
        let mut harness = Harness::new(&config);
        harness.submit(ask(1, 4, 16)).unwrap();
        harness.submit(ask(2, 4, 16)).unwrap();
        harness.drain(|_| 1);
        assert_eq!(harness.answer(1).preempted, 0, "the older one stays");
        assert!(harness.answer(2).preempted >= 1);
        assert!(harness.answer(2).preempted <= 2, "residents drain before it comes back");
        for id in [1, 2] {
            let expected: Vec<u32> = (4..20).map(|position| token(id, position)).collect();
            assert_eq!(harness.answer(id).tokens, expected);
        }
    }
}

/// Bug 21: with a step in flight nobody else is preempted for pages that come free by themselves.
#[test]
fn pages_behind_a_fence_are_waited_for() {
    let mut config = config(2, &[None], 12);
    config.overlap_depth = 1;
    let mut harness = Harness::new(&config);
    for id in 1..=3 {
        harness.submit(ask(id, 2, 12)).unwrap();
    }
    harness.drain(|_| 1);
    assert_eq!(harness.answer(1).preempted, 0);
    assert!(harness.core.stats().preemptions <= 4, "{:?}", harness.core.stats());
}

/// Bug 1: a prompt above the pool is refused at once and blocks nobody.
#[test]
fn a_prompt_that_can_never_fit_is_refused_at_submit_and_others_run() {
    let mut harness = Harness::new(&config(64, &[None], 16));
    let error = harness.submit(ask(1, 2000, 10)).unwrap_err();
    assert!(matches!(error, SubmitError::NeverFits { request: 1, .. }), "{error}");
    harness.submit(ask(2, 64, 10)).unwrap();
    harness.drain(|_| 1);
    assert_eq!(harness.answer(2).tokens.len(), 10);
}

/// Bug 5: T#15401.
#[test]
fn a_windowed_pool_holds_every_admissible_sequence() {
    let mut config = Config::pair();
    config.max_batch = 8;
    let mut harness = Harness::new(&config);
    for id in 0..8 {
        harness.submit(ask(id, 600, 40)).unwrap();
    }
    harness.drain(|_| 3);
    assert_eq!(harness.core.stats().preemptions, 0);
}

/// Bug 15: the prompt fills its last page, and then every draft is accepted.
#[test]
fn the_block_has_pages_at_a_page_edge_and_after_full_acceptance() {
    for pages in 1..4 {
        let mut config = drafted(config(8, &[None], 40), 7);
        let draft =
            GroupSpec { name: "draft".into(), owner: Owner::Draft, ..config.groups[0].clone() };
        config.groups.push(GroupSpec { window_tokens: Some(16), ..draft });
        let mut harness = Harness::new(&config);
        harness.submit(ask(1, pages * 8, 40)).unwrap();
        harness.drain(|row| row.tokens);
        assert_eq!(harness.answer(1).tokens.len(), 40);
    }
}

/// Bug 20, 22: an outcome that comes after a cancel changes nothing, and its pages wait for it.
#[test]
fn a_late_outcome_of_a_cancelled_row_changes_nothing() {
    let mut config = drafted(config(2, &[None], 40), 3);
    config.overlap_depth = 1;
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 5, 30)).unwrap();
    harness.submit(ask(2, 5, 30)).unwrap();
    for _ in 0..4 {
        harness.step(|_| 3);
    }
    harness.cancel(1);
    harness.cancel(1);
    harness.cancel(99);
    harness.step(|_| 3);
    assert_eq!(harness.answer(1).finished, Some(FinishReason::Cancelled));
    let said = harness.answer(1).tokens.len();
    harness.submit(ask(3, 9, 30)).unwrap();
    harness.drain(|_| 3);
    assert_eq!(harness.answer(1).tokens.len(), said);
    assert_eq!(harness.answer(2).tokens.len(), 30);
    assert_eq!(harness.held(), [0]);
}

/// Bug 25, 27: by class, then arrival; a preempted request is not overtaken by its equals.
#[test]
fn requests_enter_by_class_and_then_by_arrival() {
    let mut config = config(4, &[None], 100);
    config.max_batch = 1;
    let mut harness = Harness::new(&config);
    for (id, class) in [(3, 1), (1, 1), (2, 0), (4, 0)] {
        harness.submit(ask(id, 4, 1).class(class)).unwrap();
    }
    let mut order = Vec::new();
    while !harness.core.is_idle() {
        harness.step(|_| 1);
        order.extend(harness.rows.iter().map(|row| row.request()));
    }
    assert_eq!(order, [2, 4, 3, 1]);
}

#[test]
fn a_request_passed_over_often_enough_goes_first() {
    let mut config = config(4, &[None], 100);
    (config.max_batch, config.max_passed_over) = (1, 3);
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 4, 1).class(1)).unwrap();
    for id in 2..10 {
        harness.submit(ask(id, 4, 1)).unwrap();
    }
    let mut order = Vec::new();
    while !harness.core.is_idle() {
        harness.step(|_| 1);
        order.extend(harness.rows.iter().map(|row| row.request()));
    }
    assert_eq!(order[..5], [2, 3, 4, 1, 5]);
}

/// S69, B06: a chunk in the middle owes nothing and emits nothing.
#[test]
fn only_the_last_chunk_of_a_prompt_emits() {
    let mut config = config(4, &[None], 100);
    (config.token_budget, config.chunk_tokens) = (4, 4);
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 9, 1)).unwrap();
    let mut chunks = Vec::new();
    while !harness.core.is_idle() {
        harness.step(|_| 1);
        chunks.extend(harness.rows.iter().map(|row| (row.tokens, row.emits())));
    }
    assert_eq!(chunks, [(4, (0, 0)), (4, (0, 0)), (1, (1, 1))]);
}

/// S79, S82: prompts and decode rows share a step, prompts first; neither starves.
#[test]
fn a_step_mixes_prompts_and_decode_rows_under_one_budget() {
    let mut config = config(4, &[None], 100);
    (config.token_budget, config.chunk_tokens) = (16, 16);
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 4, 20)).unwrap();
    harness.step(|_| 1);
    harness.submit(ask(2, 32, 4)).unwrap();
    harness.step(|_| 1);
    assert_eq!(rows(&harness), [(2, 0, 15), (1, 4, 1)]);
    assert!(harness.rows[0].has(FLAG_PREFILL) && !harness.rows[0].has(FLAG_LAST_CHUNK));
    harness.drain(|_| 1);
}

/// S76: in the middle of a prompt, while decoding, out of order.
#[test]
fn whatever_ends_whenever_the_pools_are_as_before() {
    let mut config = config(2, &[None, Some(4), Some(6)], 60);
    (config.token_budget, config.chunk_tokens) = (8, 4);
    let mut harness = Harness::new(&config);
    for id in 1..=5 {
        harness.submit(ask(id, 3 * id as u32, 20)).unwrap();
    }
    for cancelled in [5, 2, 4] {
        harness.step(|_| 1);
        harness.step(|_| 1);
        harness.cancel(cancelled);
    }
    harness.drain(|_| 1);
    assert_eq!(harness.held(), [0, 0, 0]);
    assert_eq!(harness.answer(1).tokens.len(), 20);
}

/// S78: stable from prompt to decode, distinct, first in first out.
#[test]
fn a_batch_row_stays_with_its_request_and_rests_before_it_is_used_again() {
    let mut config = config(4, &[None], 100);
    config.max_batch = 3;
    let mut harness = Harness::new(&config);
    let mut seen: Vec<(u64, u32)> = Vec::new();
    for id in 0..5 {
        harness.submit(ask(id, 4, 2)).unwrap();
        harness.drain(|_| 1);
        harness.submit(ask(10 + id, 4, 2)).unwrap();
        harness.step(|_| 1);
        seen.push((10 + id, harness.rows[0].row));
        harness.drain(|_| 1);
    }
    let rows: Vec<u32> = seen.iter().map(|(_, row)| *row).collect();
    assert_eq!(rows, [1, 0, 2, 1, 0]);
}

/// S83, bug 35: each row counts its own accepted tokens.
#[test]
fn accepted_lengths_are_by_row_and_a_stop_may_come_inside_a_run() {
    let mut harness = Harness::new(&drafted(config(4, &[None], 100), 3));
    harness.submit(ask(1, 4, 40)).unwrap();
    harness.submit(ask(2, 4, 40).stop_tokens(vec![token(2, 4 + 6)])).unwrap();
    harness.drain(|row| if row.request() == 1 { 1 } else { 4 });
    assert_eq!(harness.answer(1).tokens.len(), 40);
    let expected: Vec<u32> = (4..=10).map(|position| token(2, position)).collect();
    assert_eq!(harness.answer(2).tokens, expected, "the stop token is the last");
    assert_eq!(harness.answer(2).finished, Some(FinishReason::Stop));
}

/// Bug 50.
#[test]
fn an_id_that_lives_is_refused_and_the_first_goes_on() {
    let mut harness = Harness::new(&config(4, &[None], 100));
    harness.submit(ask(1, 4, 5)).unwrap();
    harness.step(|_| 1);
    harness.submit(ask(1, 8, 5)).unwrap();
    harness.step(|_| 1);
    let events = format!("{:?}", harness.core.plan().events());
    assert!(events.contains("DuplicateId"), "{events}");
    harness.drain(|_| 1);
    assert_eq!(harness.answer(1).tokens.len(), 5);
}

/// B14: a slot comes back exactly once.
#[test]
fn ten_thousand_requests_pass_through_two_rows() {
    let mut config = drafted(config(4, &[None], 20), 3);
    config.max_batch = 2;
    let mut core = paceline::Core::new(&config).unwrap();
    let mut outcome = paceline::Outcome::default();
    for id in 0..10_000 {
        core.inbox().submit(NewRequest::new(id, vec![1, 2, 3], 1)).unwrap();
        let plan = core.step().unwrap();
        outcome.begin(plan.step());
        plan.rows().iter().for_each(|row| outcome.push_row(&[7][..row.emits().0 as usize]));
        core.complete(&outcome).unwrap();
    }
    core.step().unwrap();
    assert_eq!(core.stats().finished, 10_000);
    assert!(core.is_idle() && core.audit().is_empty());
}

#[test]
fn a_row_without_a_drafter_slot_drafts_nothing_and_is_no_error() {
    let mut config = Config::pair();
    config.drafter.as_mut().unwrap().slots = Some(1);
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 50, 30)).unwrap();
    harness.submit(ask(2, 50, 60)).unwrap();
    harness.step(|_| 1);
    let slots: Vec<u32> = harness.rows.iter().map(|row| row.slot).collect();
    assert_eq!(slots, [0, u32::MAX]);
    harness.drain(|_| 2);
    assert_eq!(harness.answer(2).tokens.len(), 60);
}

#[test]
fn a_parked_slot_waits_for_its_request() {
    let mut config = drafted(config(2, &[None], 16), 1);
    config.max_batch = 2;
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 4, 20)).unwrap();
    harness.submit(ask(2, 4, 20)).unwrap();
    let mut slots = Vec::new();
    while !harness.core.is_idle() {
        harness.step(|_| 1);
        slots.extend(harness.rows.iter().filter(|row| row.request() == 2).map(|row| row.slot));
    }
    assert!(harness.answer(2).preempted > 0);
    slots.dedup();
    assert_eq!(slots, [1], "the same slot before and after");
}

/// kv-cache-rules §9.8.
#[test]
fn a_step_that_does_not_run_leaves_nothing_behind() {
    let mut config = drafted(config(2, &[None], 60), 3);
    config.attention_dp = true;
    let mut core = paceline::Core::new(&config).unwrap();
    let plan = core.step_together().unwrap();
    assert_eq!(
        (plan.rows().len(), plan.rows()[0].emits()),
        (1, (0, 0)),
        "an idle rank's dummy row"
    );
    assert!(core.withdraw());
    core.inbox().submit(ask(1, 9, 6)).unwrap();
    let mut outcome = paceline::Outcome::default();
    for withdrawn in [true, false, true, true, false, false, false] {
        let before = (core.pages()[0].free, core.stats().rows);
        let plan = core.step_together().unwrap();
        outcome.begin(plan.step());
        plan.rows().iter().for_each(|row| {
            outcome.push_row(&[7, 8][..2.clamp(row.emits().0, row.emits().1) as usize]);
        });
        if withdrawn {
            assert!(core.withdraw());
            assert_eq!((core.pages()[0].free, core.stats().rows), before);
        } else {
            core.complete(&outcome).unwrap();
        }
        assert_eq!(core.audit(), Vec::<String>::new());
    }
    core.step().unwrap();
    assert_eq!(core.stats().finished, 1);
    assert!(!core.withdraw());
}

/// S05, S62: what the same step slid out is free for whoever is admitted in it.
#[test]
fn pages_that_slide_out_are_free_at_once() {
    let mut config = config(2, &[Some(4)], 5);
    (config.token_budget, config.chunk_tokens) = (4, 4);
    let mut harness = Harness::new(&config);
    harness.submit(ask(1, 8, 2)).unwrap();
    harness.step(|_| 1);
    let before = harness.held()[0];
    harness.step(|_| 1);
    harness.step(|_| 1);
    assert!(harness.held()[0] <= before + 2, "two left the window as the next came");
    harness.drain(|_| 1);
}

/// S08: two windows beside a full group slide on their own.
#[test]
fn each_window_slides_by_its_own_length() {
    let mut harness = Harness::new(&config(2, &[None, Some(6), Some(2)], 60));
    harness.submit(ask(1, 10, 2)).unwrap();
    harness.step(|_| 1);
    harness.step(|_| 1);
    let holes: Vec<usize> = (0..3)
        .map(|group| {
            harness.verifier.device().table_row(group, 0).iter().take_while(|s| **s == 0).count()
        })
        .collect();
    assert_eq!(holes, [0, 2, 4]);
    harness.drain(|_| 1);
}

/// S53: an exact fit enters after a cancel.
#[test]
fn a_cancel_returns_what_was_promised_and_not_used() {
    let mut harness = Harness::new(&config(2, &[None], 10));
    harness.submit(ask(1, 16, 3)).unwrap();
    harness.step(|_| 1);
    harness.cancel(1);
    harness.submit(ask(2, 16, 3)).unwrap();
    harness.drain(|_| 1);
    assert_eq!(harness.answer(2).tokens.len(), 3);
    assert_eq!(harness.held(), [0]);
}

/// S55: the last page is filled before a new one is taken.
#[test]
fn a_tail_is_filled_before_a_page_is_taken() {
    let mut harness = Harness::new(&config(4, &[None], 20));
    harness.submit(ask(1, 2, 12)).unwrap();
    let mut held = Vec::new();
    while !harness.core.is_idle() {
        harness.step(|_| 1);
        held.push(harness.held()[0]);
    }
    assert_eq!(held[..8], [1, 1, 1, 2, 2, 2, 2, 3]);
}

/// S77, S68: the same submissions make the same choice, whatever the ids are.
#[test]
fn ids_decide_nothing() {
    let plans = |ids: [u64; 3]| {
        let mut harness = Harness::new(&config(2, &[None], 12));
        for (place, id) in ids.into_iter().enumerate() {
            harness.submit(NewRequest::new(id, text(place as u32, 4), 12)).unwrap();
        }
        let mut rows = Vec::new();
        while !harness.core.is_idle() {
            harness.step(|_| 1);
            rows.push(harness.rows.iter().map(|row| (row.row, row.tokens)).collect::<Vec<_>>());
        }
        rows
    };
    assert_eq!(plans([3, 1, 2]), plans([20, 30, 10]));
}

/// S81: a chunk's token ids are the prompt's, in order.
#[test]
fn chunks_carry_the_prompts_tokens() {
    let mut config = config(4, &[None], 20);
    (config.token_budget, config.chunk_tokens) = (5, 5);
    let mut harness = Harness::new(&config);
    let prompt = text(7, 15);
    harness.submit(NewRequest::new(1, prompt.clone(), 1)).unwrap();
    let mut seen = Vec::new();
    while !harness.core.is_idle() {
        harness.step(|_| 1);
        let plan = harness.core.plan();
        plan.rows().iter().for_each(|row| seen.extend_from_slice(plan.inputs(row)));
    }
    assert_eq!(seen, prompt);
}
