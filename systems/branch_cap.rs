//! Step 7, the drafter's rule: how much of a match a request claims when drafter context rides
//! along in optional groups (kv-cache-rules §6.2–6.3). Called by `admission`, since a claim is
//! capped before it is taken, never rewound after.
//!
//! The window is complete where the match ends: claim it all. Or at the match's last full page:
//! claim that. Otherwise the claim is cut so that the prompt's rest rewrites the window: at
//! L + 1 - W, or, when the prompt branches off within W of its end, one window before the branch
//! point, where the window is then published so that the next branch finds it.

use crate::matching::Match;
use crate::pages::Pages;
use paceline_components::{DraftWindow, Fault, ReusePolicy, is_broken};

/// What to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Leading tokens to claim.
    pub claim_tokens: u32,
    /// What becomes of the drafter's window.
    pub window: DraftWindow,
    /// Where to end a chunk and publish the window in front, or `u32::MAX`.
    pub branch_point: u32,
}

impl Decision {
    /// Whether optional groups come with the claim.
    #[must_use]
    pub fn is_selected(&self) -> bool {
        matches!(self.window, DraftWindow::Selected | DraftWindow::Retried)
    }

    /// Whether all drafter context the claim covers came along.
    #[must_use]
    pub fn is_context_claimed(&self, pages: &Pages) -> bool {
        self.is_selected() || rewritten_tokens(pages).is_none()
    }
}

/// Decides for a sequence of `length_tokens` known tokens, claiming at most `most_tokens`.
#[must_use]
pub fn branch_cap(pages: &Pages, found: &Match, length_tokens: u32, most_tokens: u32) -> Decision {
    let decision = |claim_tokens, window| Decision {
        claim_tokens,
        window: if claim_tokens == 0 && window != DraftWindow::Capped {
            DraftWindow::None
        } else {
            window
        },
        branch_point: u32::MAX,
    };
    let tokens = found.supported(pages, found.tokens.min(most_tokens));
    let Some(window) = rewritten_tokens(pages) else { return decision(tokens, DraftWindow::None) };
    if found.is_complete(pages, tokens) {
        return decision(tokens, DraftWindow::Selected);
    }
    let page = pages.geometry.config.page_tokens;
    let full = found.supported(pages, tokens / page * page);
    if full > 0 && full.is_multiple_of(page) && found.is_complete(pages, full) {
        return decision(full, DraftWindow::Retried);
    }
    let mut limit = (length_tokens + 1).saturating_sub(window);
    let branch = found.divergence_tokens;
    let is_near = found.is_branch && branch > 0 && length_tokens - branch <= window;
    if is_near {
        limit = limit.min((branch + 1).saturating_sub(window));
    }
    if tokens <= limit || is_broken(Fault::Uncapped) {
        return decision(tokens, DraftWindow::Uncapped);
    }
    let capped = decision(found.supported(pages, limit), DraftWindow::Capped);
    Decision { branch_point: if is_near { branch } else { u32::MAX }, ..capped }
}

/// Tokens in front of a position that must be written again where an optional group is missing;
/// none without such a group. Sinks, or no window, mean everything.
fn rewritten_tokens(pages: &Pages) -> Option<u32> {
    let groups = pages.geometry.groups.iter().filter(|g| g.policy != ReusePolicy::Required);
    groups
        .map(|group| match group.retention.window_tokens {
            Some(window) if group.retention.sink_pages == 0 => window,
            _ => u32::MAX,
        })
        .max()
}
