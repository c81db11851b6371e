//! Page arithmetic of one sequence: which ordinals are live, and how far capacity must reach.
//!
//! Pure functions over token counts. Every place that allocates, slides, claims or checks uses
//! these, so that a rule has one place.

use std::ops::Range;

/// How long a lifecycle group keeps the pages of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Tokens in a page.
    pub page_tokens: u32,
    /// Sliding window in tokens, the query's own included; none keeps everything.
    pub window_tokens: Option<u32>,
    /// Leading pages that a window never drops.
    pub sink_pages: u32,
}

impl Retention {
    /// Ordinals that the token at position `history` and all after it no longer read
    /// (kv-cache-rules §1.3): the query at `history` reads keys `history + 1 - window ..= history`.
    ///
    /// ```
    /// # use paceline_components::Retention;
    /// let drafter = Retention { page_tokens: 128, window_tokens: Some(4096), sink_pages: 0 };
    /// assert_eq!(drafter.stale(12_000), 0..61);
    /// ```
    #[must_use]
    pub fn stale(&self, history: u32) -> Range<u32> {
        let sinks = self.sink_pages.min(history.div_ceil(self.page_tokens));
        let end = match self.window_tokens {
            None => sinks,
            Some(window) => ((history + 1).saturating_sub(window) / self.page_tokens).max(sinks),
        };
        sinks..end
    }

    /// The smallest history at which the page after a stale range that ends at `stale_end` goes.
    #[must_use]
    pub fn next_slide(&self, stale_end: u32) -> u32 {
        match self.window_tokens {
            None => u32::MAX,
            Some(window) => (stale_end.max(self.sink_pages) + 1)
                .saturating_mul(self.page_tokens)
                .saturating_add(window - 1),
        }
    }

    /// Most pages a sequence holds at once while it computes `step_tokens` past its history with
    /// `lookahead_tokens` behind them, and never beyond `capacity_tokens`: the charge of admission.
    /// A windowed group pays window + chunk + lookahead, never the whole prompt.
    #[must_use]
    pub fn peak_pages(&self, capacity_tokens: u32, step_tokens: u32, lookahead_tokens: u32) -> u32 {
        let all = capacity_tokens.div_ceil(self.page_tokens);
        match self.window_tokens {
            None => all,
            Some(window) => {
                let span = window - 1 + step_tokens + lookahead_tokens;
                (span.div_ceil(self.page_tokens) + 1 + self.sink_pages).min(all)
            }
        }
    }
}

/// Pages a window of `window_tokens` occupies in steady decode with `headroom_tokens` of lookahead
/// (kv-cache-rules §1.8.1).
#[must_use]
pub fn window_pages(window_tokens: u32, headroom_tokens: u32, page_tokens: u32) -> u32 {
    (window_tokens + headroom_tokens).saturating_sub(2).div_ceil(page_tokens) + 1
}

/// The lookahead and the bounds of one step, fixed at start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookahead {
    /// Draft tokens verified with the anchor, K.
    pub draft_tokens: u32,
    /// Capacity beyond history and the step's own tokens: `max(num_extra_kv_tokens, block width)`
    /// where draft layers live in this cache (kv-cache-rules §5.6).
    pub extra_tokens: u32,
}

impl Lookahead {
    /// Tokens a decode row computes: the anchor and its drafts.
    #[must_use]
    pub fn step_tokens(&self) -> u32 {
        1 + self.draft_tokens
    }

    /// Positions that must be backed before a row computes `step_tokens` from `start`. This is the
    /// only place where capacity is decided.
    #[must_use]
    pub fn capacity(&self, start: u32, step_tokens: u32) -> u32 {
        start + step_tokens + self.extra_tokens
    }

    /// Generation headroom: the step's own tokens plus the extra (kv-cache-rules §1.8.2).
    #[must_use]
    pub fn headroom_tokens(&self) -> u32 {
        self.step_tokens() + self.extra_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(history: u32, window: u32, page_tokens: u32, sink_tokens: u32) -> Range<u32> {
        let sink_pages = sink_tokens.div_ceil(page_tokens);
        Retention { page_tokens, window_tokens: Some(window), sink_pages }.stale(history)
    }

    #[test]
    fn stale_ranges_match_every_vector_of_the_rules() {
        assert_eq!(stale(2048, 2048, 32, 0), 0..0);
        assert_eq!(stale(2079, 2048, 32, 0), 0..1);
        assert_eq!(stale(4096, 2048, 32, 0), 0..64);
        assert_eq!(stale(4223, 4096, 128, 0), 0..1);
        assert_eq!(stale(12_000, 4096, 128, 0), 0..61);
        assert_eq!(stale(20, 10, 4, 0), 0..2);
        assert_eq!(stale(20, 6, 4, 4), 1..3);
        assert_eq!(stale(12, 1, 4, 0), 0..3);
        assert_eq!(stale(16, 1, 4, 0), 0..4);
    }

    #[test]
    fn a_group_without_a_window_has_no_stale_page() {
        let full = Retention { page_tokens: 4, window_tokens: None, sink_pages: 0 };
        assert!((0..100).all(|history| full.stale(history).is_empty()));
    }

    #[test]
    fn a_page_slides_exactly_at_the_history_that_next_slide_names() {
        for (window, page_tokens, sink_pages) in [(4, 2, 0), (1, 4, 0), (10, 4, 1), (6, 4, 2)] {
            let kept = Retention { page_tokens, window_tokens: Some(window), sink_pages };
            for history in 0..200 {
                let end = kept.stale(history).end;
                let next = kept.next_slide(end);
                assert!(kept.stale(next - 1).end <= end.max(sink_pages), "{kept:?} {history}");
                assert!(kept.stale(next).end > end, "{kept:?} {history}");
            }
        }
    }

    #[test]
    fn live_draft_pages_at_12000_are_33() {
        let live = 12_000u32.div_ceil(128) - stale(12_000, 4096, 128, 0).end;
        assert_eq!(live, 33);
        let most = (1..40_000u32).map(|l| l.div_ceil(128) - stale(l, 4096, 128, 0).end).max();
        assert_eq!(most, Some(33));
    }

    #[test]
    fn window_pages_match_the_vectors() {
        assert_eq!(window_pages(4096, 15, 128), 34);
        assert_eq!(window_pages(2048, 1, 32), 65);
        assert_eq!(window_pages(2048, 15, 32), 66);
    }

    #[test]
    fn capacity_reaches_the_block_past_a_full_acceptance() {
        let m3 = Lookahead { draft_tokens: 7, extra_tokens: 7 };
        assert_eq!(m3.capacity(0, 122), 129, "the last chunk of a prompt of 122");
        assert_eq!(m3.capacity(114, m3.step_tokens()), 129);
        assert_eq!(129u32.div_ceil(128), 2);
        assert_eq!(m3.headroom_tokens(), 15);
    }

    #[test]
    fn a_windowed_group_is_charged_window_chunk_and_lookahead() {
        let window = Retention { page_tokens: 64, window_tokens: Some(4096), sink_pages: 0 };
        let charge = window.peak_pages(65_536 + 8, 16_384, 8);
        assert!(charge <= (16_384 + 4096 + 8) / 64 + 2, "{charge}");
        let full = Retention { page_tokens: 64, window_tokens: None, sink_pages: 0 };
        assert_eq!(full.peak_pages(65_536 + 8, 16_384, 8), 1025);
    }
}
