use super::super::{BLOCK_TOKENS, Text, token_reuse, upper_bound_reuse};
use super::{blocks, session, tokens_of, turn, workload};

#[test]
fn equal_hash_ids_mean_equal_tokens_and_different_ids_differ() {
    let first = tokens_of(&blocks(&[7, 8], 700), 32_000);
    let second = tokens_of(&blocks(&[7, 9], 900), 32_000);
    let again = tokens_of(&blocks(&[7, 8], 1024), 32_000);
    assert_eq!((first.len(), second.len()), (700, 900));
    assert_eq!(first[..512], second[..512]);
    assert_eq!(first[..], again[..700]);
    let equal = first[512..].iter().zip(&second[512..]).filter(|(a, b)| a == b).count();
    assert!(equal < 4, "{equal} tokens in common");
    let mut distinct = first.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 600, "{} distinct tokens", distinct.len());
}

#[test]
fn tokens_are_in_the_vocabulary_and_never_stop_tokens() {
    for vocab in [17, 18, 1000, u32::MAX] {
        let tokens = tokens_of(&blocks(&[0, 1, u64::MAX], 1500), vocab);
        assert!(tokens.iter().all(|token| (16..vocab).contains(token)), "vocabulary {vocab}");
    }
    for vocab in [1, 16] {
        let tokens = tokens_of(&blocks(&[0], 512), vocab);
        assert!(tokens.iter().all(|token| *token < vocab), "vocabulary {vocab}");
    }
    assert_eq!(tokens_of(&blocks(&[0], 2), 0), [0, 0]);
}

#[test]
fn the_number_of_tokens_is_the_number_appended() {
    let texts = [
        blocks(&[], 0),
        blocks(&[], 10),
        blocks(&[1], 10),
        blocks(&[1], 2000),
        blocks(&[1, 2, 3], 513),
        Text::Ids(vec![3, 1, 4]),
    ];
    for text in texts {
        assert_eq!(tokens_of(&text, 1000).len(), text.tokens() as usize, "{text:?}");
    }
    assert_eq!(tokens_of(&Text::Ids(vec![3, 1, 4]), 2), [3, 1, 4]);
}

#[test]
fn a_limit_keeps_the_first_requests_and_cuts_a_session() {
    let turns = |count| vec![turn(0, blocks(&[0], 1), 1); count];
    let whole = workload(vec![session(5, turns(3)), session(0, turns(2)), session(9, turns(4))]);
    let shape = |max_requests| -> Vec<(u64, usize)> {
        let limited = whole.clone().limit(max_requests);
        limited.sessions.iter().map(|session| (session.start_ns, session.turns.len())).collect()
    };
    assert_eq!(whole.requests(), 9);
    assert_eq!(shape(0), []);
    assert_eq!(shape(2), [(0, 2)]);
    assert_eq!(shape(4), [(0, 2), (5, 2)]);
    assert_eq!(shape(usize::MAX), [(0, 2), (5, 3), (9, 4)]);
}

fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-12, "{value} is not {expected}");
}

#[test]
fn reuse_counts_the_leading_run_of_seen_blocks() {
    let one = |hash_ids: &[u64], tokens| session(0, vec![turn(0, blocks(hash_ids, tokens), 1)]);
    let both = |sessions| {
        let workload = workload(sessions);
        (upper_bound_reuse(&workload), token_reuse(&workload))
    };
    assert_eq!(both(vec![]), (0.0, 0.0));
    assert_eq!(both(vec![one(&[1, 2], 1000)]), (0.0, 0.0));
    // The same prompt again is seen whole, its short last block included.
    let (by_ids, by_tokens) = both(vec![one(&[1, 2], 1000), one(&[1, 2], 1000)]);
    close(by_ids, 0.5);
    close(by_tokens, 0.5);
    // A seen block behind an unseen one does not count.
    let (by_ids, by_tokens) = both(vec![one(&[1, 2], 1024), one(&[1, 3, 2], 1536)]);
    close(by_ids, 512.0 / 2560.0);
    close(by_tokens, 512.0 / 2560.0);
    // Of a block that was seen short, only the short part can be reused.
    let (by_ids, by_tokens) = both(vec![one(&[1], 100), one(&[1, 2], 1024)]);
    close(by_ids, 512.0 / 1124.0);
    close(by_tokens, 100.0 / 1124.0);
}

#[test]
fn a_later_turn_reuses_its_context_and_by_tokens_the_output_too() {
    let turns = vec![turn(0, blocks(&[1, 2], 1024), 300), turn(0, blocks(&[3], 76), 1)];
    let workload = workload(vec![session(0, turns)]);
    let all = 1024.0 + 1400.0;
    close(upper_bound_reuse(&workload), 1024.0 / all);
    close(token_reuse(&workload), 1324.0 / all);
}

#[test]
fn explicit_token_ids_are_reused_by_content() {
    let ids: Vec<u32> = (0..2 * BLOCK_TOKENS).collect();
    let one = |ids: &[u32]| session(0, vec![turn(0, Text::Ids(ids.to_vec()), 1)]);
    let mut changed = ids.clone();
    changed[600] += 1;
    let workload = workload(vec![one(&ids), one(&changed)]);
    close(upper_bound_reuse(&workload), 0.25);
    close(token_reuse(&workload), 0.25);
}
