//! The steady decode step, plan and complete, with allocations. Report only: times differ between
//! machines and hours, so nothing holds them; `icount` holds instruction counts instead.
//!
//! `cargo bench --bench step`

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use paceline::bench::StepBench;
use std::fmt;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// Samples of a case, and steps of a sample: together what the set-up has tokens for.
const SAMPLES: u32 = 100;
const STEPS: u32 = 20;
/// Steps before the first sample: every row fills a page.
const WARM_UP: u32 = 100;

struct Case {
    requests: u32,
    context_tokens: u32,
    overlap_depth: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, context_tokens, overlap_depth } = self;
        write!(f, "{requests} requests, {}K, overlap {overlap_depth}", context_tokens >> 10)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    [64, 256].into_iter().flat_map(|requests| {
        [8 << 10, 128 << 10].into_iter().flat_map(move |context_tokens| {
            [0, 1].map(|overlap_depth| Case { requests, context_tokens, overlap_depth })
        })
    })
}

/// A step; the items are request-steps, and what the rows accept is drawn inside.
#[divan::bench(args = cases(), sample_count = SAMPLES, sample_size = STEPS)]
fn decode(bencher: Bencher, case: &Case) {
    let bench = StepBench {
        requests: case.requests,
        context_tokens: case.context_tokens,
        overlap_depth: case.overlap_depth,
        steps: WARM_UP + SAMPLES * STEPS,
        ..StepBench::default()
    };
    let mut steady = bench.start().expect("the numbers make a valid configuration");
    (0..WARM_UP).for_each(|_| steady.step());
    bencher.counter(ItemsCount::new(case.requests)).bench_local(|| steady.step());
    steady.check();
}

fn main() {
    divan::main();
}
