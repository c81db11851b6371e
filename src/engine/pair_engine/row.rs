//! What the engine remembers of a batch row between steps.

use paceline_kernels::{FLAG_BOUND, FLAG_PREFILL, ON_DEVICE, RowMeta};

/// Device state of a batch row.
#[derive(Clone, Debug, Default)]
pub(super) struct RowState {
    /// Positions whose K/V is final: the true length.
    pub length: u32,
    /// The newest token, which has no K/V yet.
    pub anchor: Option<u32>,
    /// Drafts of the positions after the anchor.
    pub drafts: Vec<u32>,
    /// Distributions they were drawn from, when the rule needs them.
    pub probabilities: Vec<f32>,
    /// Tokens of the prompt, for the arms.
    pub prompt_tokens: u32,
}

impl RowState {
    /// Starts the row afresh when the plan says so, and checks what the plan knows of it.
    pub(super) fn begin(&mut self, row: &RowMeta) -> Result<(), String> {
        if row.has(FLAG_BOUND) {
            self.length = row.start;
            self.anchor = None;
            self.forget_drafts();
        }
        let at = row.row;
        if !(row.start..=row.start_bound).contains(&self.length) {
            let Self { length, .. } = self;
            let (start, bound) = (row.start, row.start_bound);
            return Err(format!("row {at} is {length} long and planned at {start}..={bound}"));
        }
        if !row.has(FLAG_PREFILL) && row.anchor != ON_DEVICE && !row.has(FLAG_BOUND) {
            let known = self.anchor;
            if known != Some(row.anchor) {
                let anchor = row.anchor;
                return Err(format!("row {at} ends with {known:?}, the plan says {anchor}"));
            }
        }
        Ok(())
    }

    pub(super) fn forget_drafts(&mut self) {
        self.drafts.clear();
        self.probabilities.clear();
    }

    /// Tokens of a decode row: the anchor and its drafts.
    pub(super) fn tokens(&self, most: u32) -> Vec<u32> {
        let anchor = self.anchor.unwrap_or_default();
        let drafts = self.drafts.iter().copied();
        std::iter::once(anchor).chain(drafts).take(most as usize).collect()
    }
}
