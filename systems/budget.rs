//! The token budget of a step, shared between decode rows and prompts.
//!
//! Each side is sure of its share while the other has work; what one leaves the other takes, so
//! neither starves.

use crate::batch::Batch;
use crate::state::Running;
use paceline_components::Geometry;

/// Tokens each side may compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Decode rows that fit.
    pub decode_rows: u32,
    /// Tokens for prompts.
    pub prefill_tokens: u32,
}

impl Budget {
    /// The shares when prompts want `prefill_demand` tokens.
    #[must_use]
    pub fn split(geometry: &Geometry, decode_rows: u32, prefill_demand: u32) -> Self {
        let config = &geometry.config;
        let step = geometry.lookahead.step_tokens();
        let sure = (config.token_budget as u64 * config.decode_share_percent as u64 / 100) as u32;
        let sure = sure.max(step);
        let left_by_prompts = config.token_budget.saturating_sub(prefill_demand);
        let decode_rows = decode_rows.min(sure.max(left_by_prompts) / step);
        Self { decode_rows, prefill_tokens: config.token_budget - decode_rows * step }
    }

    /// The shares when there are more prompts than budget.
    #[must_use]
    pub fn while_prompts_wait(geometry: &Geometry, running: &Running) -> Self {
        Self::split(geometry, running.order.len() as u32 - running.prefills, u32::MAX)
    }
}

/// Prompt tokens that rows already running would compute in this step.
#[must_use]
pub fn prefill_demand(geometry: &Geometry, batch: &Batch) -> u32 {
    if batch.running.prefills == 0 {
        return 0;
    }
    let chunk = geometry.config.chunk_tokens;
    let demand = |&row: &u32| {
        let lengths = &batch.lengths[row as usize];
        lengths.prefill_end.saturating_sub(lengths.start_bound()).min(chunk)
    };
    batch.running.order.iter().map(demand).fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_components::Config;

    fn geometry(token_budget: u32, decode_share_percent: u32) -> Geometry {
        let config = Config { token_budget, decode_share_percent, ..Config::small(4, &[None], 9) };
        Geometry::new(&Config { chunk_tokens: token_budget, ..config }).unwrap()
    }

    #[test]
    fn a_prompt_takes_what_one_decode_row_leaves() {
        let budget = Budget::split(&geometry(16, 50), 1, 32);
        assert_eq!(budget, Budget { decode_rows: 1, prefill_tokens: 15 });
    }

    #[test]
    fn each_side_is_sure_of_its_share() {
        let full = Budget::split(&geometry(100, 30), 500, 500);
        assert_eq!(full, Budget { decode_rows: 30, prefill_tokens: 70 });
        let few_prompts = Budget::split(&geometry(100, 30), 500, 20);
        assert_eq!(few_prompts, Budget { decode_rows: 80, prefill_tokens: 20 });
        let no_prompts = Budget::split(&geometry(100, 30), 500, 0);
        assert_eq!(no_prompts, Budget { decode_rows: 100, prefill_tokens: 0 });
    }
}
