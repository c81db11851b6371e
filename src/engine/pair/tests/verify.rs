//! Output distributions of the verification rules on a vocabulary small enough to enumerate.

use super::super::random::{Draw, uniform};
use super::super::sample::{Sampling, emit, pick};
use super::{Rule, Verdict, VerifyRow, VerifyScratch, verify};

const VOCAB: usize = 4;
const DRAFTS: usize = 3;
const TRIALS: u64 = 200_000;

/// Target's distribution after a token.
const TARGET: [[f32; VOCAB]; VOCAB] = [
    [0.5, 0.3, 0.15, 0.05],
    [0.1, 0.2, 0.3, 0.4],
    [0.25, 0.25, 0.25, 0.25],
    [0.02, 0.9, 0.04, 0.04],
];
/// The drafter's: close in places, far off in others, equal to the target's after token 2.
const DRAFTER: [[f32; VOCAB]; VOCAB] =
    [[0.3, 0.3, 0.3, 0.1], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [0.3, 0.4, 0.2, 0.1]];

/// Drafts and verifies one block after token 0, with temperature 1.
fn step(rule: Rule, seed: u64, scratch: &mut VerifyScratch) -> (Vec<u32>, Verdict) {
    let (mut drafts, mut draft_probabilities, mut logits) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = 0;
    for slot in 0..=DRAFTS {
        logits.extend(TARGET[last].map(f32::ln));
        if slot < DRAFTS {
            draft_probabilities.extend(DRAFTER[last]);
            let token = pick(&DRAFTER[last], uniform(seed, 10, Draw::Draft { slot }));
            drafts.push(token);
            last = token as usize;
        }
    }
    let row = VerifyRow {
        position: 10,
        drafts: &drafts,
        draft_probabilities: &draft_probabilities,
        logits: &logits,
        sampling: Sampling { temperature: 1.0, seed },
    };
    let verdict = verify(rule, &row, scratch);
    (drafts, verdict)
}

/// The three tokens after token 0; what a step does not emit comes from the target alone.
fn three_tokens(rule: Rule, seed: u64, scratch: &mut VerifyScratch) -> usize {
    let (drafts, verdict) = step(rule, seed, scratch);
    let mut text = drafts[..verdict.accepted].to_vec();
    text.push(verdict.next);
    let mut probabilities = Vec::new();
    while text.len() < 3 {
        let logits = TARGET[text[text.len() - 1] as usize].map(f32::ln);
        let sampling = Sampling { temperature: 1.0, seed: seed ^ 0xABCD_0000 };
        text.push(emit(&logits, sampling, 100 + text.len(), &mut probabilities));
    }
    text[..3].iter().fold(0, |index, token| index * VOCAB + *token as usize)
}

fn chi_square(rule: Rule) -> f64 {
    let mut counts = [0.0; VOCAB * VOCAB * VOCAB];
    let mut scratch = VerifyScratch::default();
    for seed in 0..TRIALS {
        counts[three_tokens(rule, seed, &mut scratch)] += 1.0;
    }
    let probability = |index: usize| {
        let (a, b, c) = (index / 16, index / 4 % 4, index % 4);
        f64::from(TARGET[0][a]) * f64::from(TARGET[a][b]) * f64::from(TARGET[b][c])
    };
    counts
        .iter()
        .enumerate()
        .map(|(index, count)| {
            let expected = probability(index) * TRIALS as f64;
            (count - expected).powi(2) / expected
        })
        .sum()
}

fn mean_accepted(rule: Rule) -> f64 {
    let mut scratch = VerifyScratch::default();
    let sum: usize = (0..TRIALS).map(|seed| step(rule, seed, &mut scratch).1.accepted).sum();
    sum as f64 / TRIALS as f64
}

// 63 degrees of freedom: a correct rule exceeds 120 once in a hundred thousand seeds.
const CHI_SQUARE_BOUND: f64 = 120.0;

#[test]
fn exact_match_emits_the_targets_distribution() {
    let chi_square = chi_square(Rule::ExactMatch);
    assert!(chi_square < CHI_SQUARE_BOUND, "{chi_square}");
}

#[test]
fn rejection_sampling_emits_the_targets_distribution() {
    let chi_square = chi_square(Rule::Rejection);
    assert!(chi_square < CHI_SQUARE_BOUND, "{chi_square}");
}

#[test]
fn block_verification_emits_the_targets_distribution() {
    let chi_square = chi_square(Rule::Block);
    assert!(chi_square < CHI_SQUARE_BOUND, "{chi_square}");
}

#[test]
fn block_verification_keeps_more_drafts_than_rejection_and_that_more_than_exact_match() {
    let [exact, rejection, block] =
        [Rule::ExactMatch, Rule::Rejection, Rule::Block].map(mean_accepted);
    assert!(rejection > exact + 0.05, "{rejection} {exact}");
    assert!(block > rejection + 0.01, "{block} {rejection}");
}

#[test]
fn rejection_accepts_the_first_draft_as_often_as_the_distributions_overlap() {
    let overlap: f32 = TARGET[0].iter().zip(DRAFTER[0]).map(|(t, d)| t.min(d)).sum();
    let mut scratch = VerifyScratch::default();
    let kept = (0..TRIALS).filter(|&seed| step(Rule::Rejection, seed, &mut scratch).1.accepted > 0);
    let share = kept.count() as f64 / TRIALS as f64;
    assert!((share - f64::from(overlap)).abs() < 0.005, "{share} {overlap}");
}

#[test]
fn equal_distributions_accept_every_draft() {
    let logits = [0.0f32; 4 * 4];
    let probabilities = [0.25f32; 3 * 4];
    for rule in [Rule::Rejection, Rule::Block] {
        for seed in 0..500 {
            let row = VerifyRow {
                position: 3,
                drafts: &[1, 2, 3],
                draft_probabilities: &probabilities,
                logits: &logits,
                sampling: Sampling { temperature: 1.0, seed },
            };
            assert_eq!(verify(rule, &row, &mut VerifyScratch::default()).accepted, 3);
        }
    }
}

fn greedy_row<'a>(drafts: &'a [u32], logits: &'a [f32]) -> VerifyRow<'a> {
    VerifyRow { position: 0, drafts, draft_probabilities: &[], logits, sampling: Sampling::GREEDY }
}

#[test]
fn greedy_keeps_drafts_up_to_the_first_that_is_not_the_likeliest() {
    let logits = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0];
    let accepted = |drafts: &[u32]| {
        verify(Rule::Block, &greedy_row(drafts, &logits), &mut VerifyScratch::default())
    };
    assert_eq!(accepted(&[1, 1]), Verdict { accepted: 2, next: 0 });
    assert_eq!(accepted(&[1, 0]), Verdict { accepted: 1, next: 1 });
    assert_eq!(accepted(&[0, 1]), Verdict { accepted: 0, next: 1 });
}

#[test]
fn without_drafts_a_step_is_plain_decoding() {
    for rule in [Rule::ExactMatch, Rule::Rejection, Rule::Block] {
        let row = greedy_row(&[], &[0.0, 0.5, 2.0]);
        let sampled = VerifyRow { sampling: Sampling { temperature: 1.0, seed: 9 }, ..row };
        let mut scratch = VerifyScratch::default();
        assert_eq!(verify(rule, &row, &mut scratch), Verdict { accepted: 0, next: 2 });
        assert_eq!(verify(rule, &sampled, &mut scratch).accepted, 0);
    }
}
