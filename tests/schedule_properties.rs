//! Random configurations, random operations, every invariant after every step.
//!
//! `PACELINE_SEED=N cargo test --test schedule_properties` runs one seed; a failure prints it.
//! `PACELINE_STEPS=N` asks for more steps than CI runs.

mod support;

use paceline::workload::rng::Rng;
use paceline::{
    Config, Drafter, DrafterKind, ExtraKeys, FinishReason, NewRequest, Owner, PublishPolicy,
    SubmitError,
};
use support::{Harness, text, token};

/// Steps that all seeds together run at least.
const STEPS: usize = 100_000;

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// A configuration from one end of the range to the other.
fn config(rng: &mut Rng) -> Config {
    let page_tokens = pick(rng, &[1, 2, 4, 8, 16]);
    let groups = 1 + rng.below(3) as usize;
    let windows: Vec<Option<u32>> =
        (0..groups).map(|group| (group > 0).then(|| pick(rng, &[1, 3, 8, 17, 40]))).collect();
    let mut config = Config::small(page_tokens, &windows, 1);
    config.max_batch = pick(rng, &[1, 2, 4, 7]);
    config.overlap_depth = rng.below(2) as u32;
    config.publish = pick(
        rng,
        &[
            PublishPolicy::AllReusable,
            PublishPolicy::AllReusable,
            PublishPolicy::PerRequest,
            PublishPolicy::PerConversation,
            PublishPolicy::Off,
        ],
    );
    config.protect_endpoints = rng.below(2) == 0;
    config.max_passed_over = pick(rng, &[1, 3, 64]);
    config.decode_share_percent = pick(rng, &[1, 30, 50, 99]);
    config.max_seq_len = 400;
    if rng.below(4) > 0 {
        let draft_tokens = 1 + rng.below(8) as u32;
        let kind = pick(rng, &[DrafterKind::Dflash, DrafterKind::Dspark]);
        let width = draft_tokens + u32::from(kind == DrafterKind::Dflash);
        let mut drafter = Drafter::new(kind, draft_tokens, width);
        drafter.slots = (rng.below(4) == 0).then_some(config.max_batch / 2);
        config.drafter = Some(drafter);
        config.num_extra_kv_tokens = draft_tokens - 1;
        if groups > 1 {
            config.groups.last_mut().unwrap().owner = Owner::Draft;
        }
    }
    for group in &mut config.groups {
        if group.owner == Owner::Target && group.window_tokens.is_some() {
            group.sink_tokens = pick(rng, &[0, 0, 1, 9]);
        }
    }
    let step = 1 + config.drafter.map_or(0, |drafter| drafter.draft_tokens);
    config.token_budget = 2 * step + pick(rng, &[0, 5, 64]);
    config.chunk_tokens = pick(rng, &[1, 7, 64]).min(config.token_budget);
    if rng.below(2) == 0 {
        config.graph_batches = vec![config.max_batch];
    }
    // From pools that hold one long sequence to pools that hold all.
    let pages = (240 / page_tokens) * pick(rng, &[1, 1, 2, 8]);
    config.groups.iter_mut().for_each(|group| group.pages = Some(pages));
    config
}

/// A request that shares a prefix with others more often than not.
fn request(rng: &mut Rng, id: u64) -> NewRequest {
    let mut prompt = text(rng.below(3) as u32, rng.below(90) as u32);
    prompt.extend(text(10 + rng.below(4) as u32, rng.below(40) as u32));
    if prompt.is_empty() || rng.below(4) == 0 {
        prompt.extend(text(1000 + id as u32, 1 + rng.below(60) as u32));
    }
    let mut request = NewRequest::new(id, prompt, 1 + rng.below(40) as u32)
        .class(rng.below(2) as u8)
        .conversation(rng.below(5));
    if rng.below(6) == 0 {
        let position = request.prompt.len() as u32 + 1 + rng.below(20) as u32;
        request = request.stop_tokens(vec![token(id, position)]);
    }
    if rng.below(8) == 0 {
        let extra = ExtraKeys { salt: Some("tenant".to_owned()), ..ExtraKeys::default() };
        request = request.extra_keys(extra);
    }
    request
}

/// One random run to its end; the steps and preemptions it had.
fn run(seed: u64) -> (usize, u64) {
    let rng = &mut Rng(seed);
    let config = config(rng);
    let mut harness = Harness::new(&config);
    let mut requests: Vec<NewRequest> = Vec::new();
    let mut cancelled = Vec::new();
    for _ in 0..60 + rng.below(200) {
        match rng.below(10) {
            0 | 1 => {
                let new = request(rng, requests.len() as u64);
                match harness.submit(new.clone()) {
                    Ok(()) => requests.push(new),
                    Err(error) => {
                        assert!(matches!(error, SubmitError::NeverFits { .. }), "{error}")
                    }
                }
            }
            2 if !requests.is_empty() && rng.below(3) == 0 => {
                let id = rng.below(requests.len() as u64 + 2);
                harness.cancel(id);
                cancelled.push(id);
            }
            3 => {
                let wrong = harness.complete_wrongly(|outcome| outcome.step += 1);
                assert!(wrong.is_none_or(|e| e.to_string().contains("oldest in flight")));
                harness.complete_wrongly(|outcome| outcome.counts.push(1));
                harness.complete_wrongly(|outcome| outcome.tokens.push(1));
            }
            _ => {
                harness.step(|row| 1 + rng.below(u64::from(row.tokens)) as u32);
                let computed: u32 = harness.rows.iter().map(|row| row.tokens).sum();
                assert!(computed <= config.token_budget || !config.graph_batches.is_empty());
            }
        }
    }
    harness.drain(|row| 1 + rng.below(u64::from(row.tokens)) as u32);
    for new in &requests {
        let answer = harness.answer(new.id);
        let expected: Vec<u32> = (0..new.max_new_tokens)
            .map(|place| token(new.id, new.prompt.len() as u32 + place))
            .collect();
        assert!(
            expected.starts_with(&answer.tokens),
            "request {} says what it would alone",
            new.id
        );
        match answer.finished {
            Some(FinishReason::Length) => {
                let room = config.max_seq_len - new.prompt.len() as u32;
                assert_eq!(answer.tokens.len() as u32, new.max_new_tokens.min(room));
            }
            Some(FinishReason::Stop) => {
                assert!(new.stop_tokens.contains(answer.tokens.last().unwrap()));
            }
            Some(_) => assert!(cancelled.contains(&new.id)),
            None => panic!("request {} has not ended", new.id),
        }
    }
    assert_eq!(harness.held(), vec![0; config.groups.len()], "everything is given back");
    harness.replays();
    (harness.digests.len(), harness.core.stats().preemptions)
}

#[test]
fn every_invariant_holds_over_random_schedules() {
    if let Ok(seed) = std::env::var("PACELINE_SEED") {
        run(seed.parse().unwrap());
        return;
    }
    let wanted = std::env::var("PACELINE_STEPS").map_or(STEPS, |steps| steps.parse().unwrap());
    let (mut steps, mut preemptions, mut seed) = (0, 0, 0);
    while steps < wanted {
        let outcome = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
            eprintln!("PACELINE_SEED={seed} cargo test --test schedule_properties");
            std::panic::resume_unwind(panic)
        });
        steps += outcome.0;
        preemptions += outcome.1;
        seed += 1;
    }
    println!("{steps} steps of {seed} seeds, {preemptions} preemptions");
    assert!(preemptions > 20, "pools are tight often enough: {preemptions} preemptions");
}

/// Seeds that once found something.
#[test]
fn seeds_that_found_bugs_stay_quiet() {
    for seed in [0, 1] {
        run(seed);
    }
}
