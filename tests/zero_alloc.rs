//! A steady decode step allocates nothing. One test in a binary of its own: the counter is the
//! process's.

use paceline::kernels::RowMeta;
use paceline::{
    Config, Core, Drafter, DrafterKind, GroupSpec, NewRequest, Outcome, Owner, PublishPolicy,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const STEPS: u64 = 400;
const TOKENS: [u32; 8] = [7; 8];

/// Pages of 8 tokens and a window of 32: with up to 8 tokens a step every row crosses a page or
/// slides every other step.
fn config(overlap_depth: u32, publish: PublishPolicy) -> Config {
    let mut config = Config::small(8, &[None, Some(24)], 4000);
    let draft = GroupSpec { name: "draft".into(), owner: Owner::Draft, ..config.groups[1].clone() };
    config.groups.push(GroupSpec { window_tokens: Some(32), ..draft });
    config.drafter = Some(Drafter::new(DrafterKind::Dspark, 7, 7));
    config.token_budget = 256;
    (config.overlap_depth, config.publish) = (overlap_depth, publish);
    config
}

fn answer(outcome: &mut Outcome, step: u64, rows: &[RowMeta]) {
    outcome.begin(step);
    for row in rows {
        let (least, most) = row.emits();
        let count = (step as u32 + row.row) % 8 + 1;
        outcome.push_row(&TOKENS[..count.clamp(least, most) as usize]);
    }
}

/// Plans and completes `steps` steps; with an overlap an outcome follows the next plan.
fn run(core: &mut Core, outcomes: &mut [Outcome; 2], steps: u64) {
    let overlap = core.geometry().config.overlap_depth as usize;
    for _ in 0..steps {
        let plan = core.step().unwrap();
        let step = plan.step();
        answer(&mut outcomes[step as usize % 2], step, plan.rows());
        let due = &outcomes[(step as usize + overlap) % 2];
        if due.step > 0 {
            core.complete(due).unwrap();
        }
    }
}

#[test]
fn a_steady_decode_step_allocates_nothing() {
    for overlap_depth in [0, 1] {
        for publish in [PublishPolicy::Off, PublishPolicy::AllReusable, PublishPolicy::PerRequest] {
            let mut core = Core::new(&config(overlap_depth, publish)).unwrap();
            let mut outcomes = [Outcome::default(), Outcome::default()];
            for id in 0..8 {
                let prompt = (0..20 + id as u32).map(|token| 1000 * id as u32 + token).collect();
                core.inbox().submit(NewRequest::new(id, prompt, 4000)).unwrap();
            }
            run(&mut core, &mut outcomes, 40);
            assert_eq!(core.load(), (0, 8), "every request decodes");
            let before = (core.pages()[0].free, *core.stats());
            let allocated = ALLOCATOR.stats();
            run(&mut core, &mut outcomes, STEPS);
            let allocated = ALLOCATOR.stats() - allocated;
            let counts = (allocated.allocations, allocated.reallocations, allocated.deallocations);
            assert_eq!(counts, (0, 0, 0), "overlap {overlap_depth}, {publish:?}");
            assert!(before.0 > core.pages()[0].free + 1000, "pages were crossed");
            assert_eq!(core.load(), (0, 8));
            assert_eq!(core.stats().rows - before.1.rows, 8 * STEPS);
            assert!(core.audit().is_empty());
        }
    }
}
