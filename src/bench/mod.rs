//! Benchmarks: the core alone, and the device beside the host device.

#[cfg(feature = "cuda")]
mod device;
mod prefix;
mod step;

#[cfg(feature = "cuda")]
pub use device::{
    CheckReport, CopyReport, DeviceBench, DeviceBenchError, DeviceReport, StepCost, TablesReport,
};
pub use prefix::{PrefixBench, PrefixReport, PrefixRounds};
pub use step::{SteadyDecode, StepBench, StepReport};

use crate::{BufferSpec, Config, Drafter, DrafterKind, GroupSpec, LayerSpec, Owner};

/// Window of the draft group.
const WINDOW_TOKENS: u32 = 4096;

/// A full target group of `full_pages`, beside it a draft group with a window where
/// `window_pages` are given, and a drafter of `draft_tokens` where that is not 0.
fn config(draft_tokens: u32, full_pages: u32, window_pages: Option<u32>) -> Config {
    let group = |name: &str, owner, window_tokens, pages| GroupSpec {
        name: name.to_owned(),
        owner,
        window_tokens,
        sink_tokens: 0,
        policy: None,
        pages: Some(pages),
        layers: vec![LayerSpec { count: 1, buffers: vec![BufferSpec::new("key", 256)] }],
    };
    let mut groups = vec![group("full", Owner::Target, None, full_pages)];
    let owner = if draft_tokens > 0 { Owner::Draft } else { Owner::Target };
    groups.extend(window_pages.map(|pages| group("window", owner, Some(WINDOW_TOKENS), pages)));
    let drafter = Drafter::new(DrafterKind::Dspark, draft_tokens, draft_tokens);
    Config { drafter: (draft_tokens > 0).then_some(drafter), groups, ..Config::small(1, &[], 1) }
}
