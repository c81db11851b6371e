use super::super::{Agentic, Text, Workload, agentic, token_reuse};
use super::tokens_of;

#[test]
fn generated_workloads_depend_on_the_seed_alone() {
    assert_eq!(agentic(5, 4, 7), agentic(5, 4, 7));
    assert_ne!(agentic(5, 4, 7), agentic(5, 4, 8));
    let defaults = Agentic::default().generate();
    assert_eq!(defaults, agentic(24, 6, 1));
    assert_eq!((defaults.sessions.len(), defaults.requests()), (24, 144));
    assert!(defaults.skipped_rows.is_empty());
}

#[test]
fn conversations_share_the_system_prompt_and_nothing_else() {
    let workload = agentic(6, 3, 1);
    let firsts: Vec<Vec<u32>> = workload
        .sessions
        .iter()
        .map(|session| tokens_of(&session.turns[0].input, 100_000))
        .collect();
    for pair in firsts.windows(2) {
        assert_eq!(pair[0][..2048], pair[1][..2048]);
        assert_ne!(pair[0][2048..2064], pair[1][2048..2064]);
    }
    let mut ids: Vec<u64> = hash_ids(&workload);
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(all - ids.len(), 5 * 4, "four shared blocks in each of five more conversations");
}

#[test]
fn generated_lengths_and_times_are_in_their_ranges() {
    let shape = Agentic::default();
    let workload = shape.generate();
    for session in &workload.sessions {
        assert_eq!(session.turns[0].delay_ns, 0);
        for (index, turn) in session.turns.iter().enumerate() {
            let lead = if index == 0 { 2048 + 1024..=2048 + 6144 } else { 0..=0 };
            let most = lead.end() + shape.new_tokens.end();
            assert!(
                (lead.start() + shape.new_tokens.start()..=most).contains(&turn.input.tokens())
            );
            assert!(shape.output_tokens.contains(&turn.output_tokens));
            assert!(index == 0 || shape.think_ns.contains(&turn.delay_ns));
        }
    }
    let starts: Vec<u64> = workload.sessions.iter().map(|session| session.start_ns).collect();
    assert_eq!(starts[0], 0);
    assert!(starts.windows(2).all(|pair| shape.stagger_ns.contains(&(pair[1] - pair[0]))));
    let reuse = token_reuse(&workload);
    assert!((0.6..0.95).contains(&reuse), "reuse {reuse}");
}

#[test]
fn degenerate_shapes_do_not_panic() {
    let (high, low) = (9, 3);
    let shape = Agentic {
        conversations: 2,
        turns: 2,
        system_tokens: 0,
        preamble_tokens: 0..=0,
        new_tokens: 0..=0,
        output_tokens: high..=low,
        think_ns: u64::MAX..=u64::MAX,
        stagger_ns: u64::MAX..=u64::MAX,
        seed: 0,
    };
    let workload = shape.generate();
    for turn in workload.sessions.iter().flat_map(|session| &session.turns) {
        assert_eq!((turn.input.tokens(), turn.output_tokens), (1, 9));
    }
    assert!(agentic(0, 5, 1).sessions.is_empty());
    assert!(agentic(5, 0, 1).sessions.is_empty());
}

fn hash_ids(workload: &Workload) -> Vec<u64> {
    let turns = workload.sessions.iter().flat_map(|session| &session.turns);
    turns
        .flat_map(|turn| match &turn.input {
            Text::Blocks { hash_ids, .. } => hash_ids.clone(),
            Text::Ids(_) => Vec::new(),
        })
        .collect()
}
