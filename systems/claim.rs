//! Taking a claim: pages of the match are held, the partial last one is copied to a private page,
//! and the rest of the prompt is promised (kv-cache-rules §3.5–3.6).

use crate::batch::Batch;
use crate::branch_cap::Decision;
use crate::commit::next_commit;
use crate::matching::Match;
use crate::pages::Pages;
use paceline_components::{Fault, GROUPS_MAX, ReusePolicy, is_broken};
use paceline_kernels::PageCopy;
use std::ops::Range;

/// Pages a claim takes from each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Pages to promise that the claim does not bring.
    fresh: [u32; GROUPS_MAX],
    /// Pages of the claim that could have been evicted and cannot be any more.
    pinned: [u32; GROUPS_MAX],
}

impl Need {
    /// Counts them; nothing is taken.
    #[must_use]
    pub fn of(pages: &Pages, found: &Match, decision: &Decision, length_tokens: u32) -> Self {
        let mut need = Self { fresh: [0; GROUPS_MAX], pinned: [0; GROUPS_MAX] };
        for group in 0..pages.groups() {
            let claimed = claimed_pages(pages, group, decision);
            let whole = whole_pages(pages, decision, &claimed);
            need.fresh[group] = charge(pages, group, length_tokens).saturating_sub(whole);
            let is_pinned = |ordinal: &u32| {
                let entry = pages.index.entry(found.nodes[*ordinal as usize], group);
                pages.is_cached(group, entry.slot)
            };
            need.pinned[group] = claimed.into_iter().flatten().filter(is_pinned).count() as u32;
        }
        need
    }

    /// Whether every group can promise this and still give each of `growth` decode rows its next
    /// page.
    #[must_use]
    pub fn fits(&self, pages: &Pages, growth: u32) -> bool {
        (0..pages.groups()).all(|group| {
            let taken = self.fresh[group] + self.pinned[group];
            pages.can_give(group) >= pages.ledgers[group].promised + growth + taken
        })
    }
}

/// Puts a claim on a row that was just bound.
pub fn claim(pages: &mut Pages, batch: &mut Batch, row: u32, found: &Match, decision: Decision) {
    let at = row as usize;
    let page = pages.geometry.config.page_tokens;
    let tokens = decision.claim_tokens;
    // Everything is held before anything is taken: no hit is evicted by its own admission.
    for group in 0..pages.groups() {
        for ordinal in claimed_pages(pages, group, &decision).into_iter().flatten() {
            let entry = pages.index.entry(found.nodes[ordinal as usize], group);
            pages.hold(group, entry.slot);
            *pages.cell(group, row, ordinal) = entry.slot;
        }
    }
    let spans = &mut batch.spans[at];
    spans.extent = tokens.div_ceil(page);
    let mut charges = [0; GROUPS_MAX];
    for group in 0..pages.groups() {
        let claimed = claimed_pages(pages, group, &decision);
        spans.stale_end[group] = claimed[1].start;
        charges[group] = charge(pages, group, batch.lengths[at].known);
        let whole = whole_pages(pages, &decision, &claimed);
        pages.ledgers[group].claimed_pages += u64::from(whole);
        if tokens.is_multiple_of(page) || is_broken(Fault::SharedWrite) {
            continue;
        }
        let last = spans.extent - 1;
        let own = pages.take(group);
        let shared = std::mem::replace(pages.cell(group, row, last), own);
        if !claimed.iter().any(|run| run.contains(&last)) {
            // Nothing of this group came along: its page is written from the claim's end on.
            spans.stale_end[group] = last;
            continue;
        }
        pages.ledgers[group].copied_pages += 1;
        let copy = PageCopy { group: group as u32, from: shared, to: own, tokens: tokens % page };
        batch.due.moves.push(copy);
        // The source stays as it is until the copy has run.
        pages.let_go_of(group, shared, Some(batch.step));
    }
    pages.promise(spans, &charges);
    let prefix = &mut batch.prefix[at];
    prefix.published_pages = tokens / page;
    prefix.draft_from = match decision.is_context_claimed(pages) {
        true => first_written(pages, found, &decision),
        false => tokens,
    };
    prefix.branch_point = decision.branch_point;
    if prefix.published_pages > 0 {
        let tip = found.nodes[prefix.published_pages as usize - 1];
        pages.index.move_tip(prefix.tip, tip);
        prefix.tip = tip;
    }
    let lengths = &mut batch.lengths[at];
    lengths.settled = tokens;
    lengths.covered = batch.spans[at].extent * page;
    lengths.slide_at = pages.next_slide(&batch.spans[at]);
    batch.lengths[at].commit_at = next_commit(pages.geometry, batch, row);
    batch.due.tables.push(row);
}

/// Ordinals of `group` that come with a claim: sinks and what its window still reads. Of a group
/// that is not selected nothing comes, and the live part starts behind the claim's full pages.
fn claimed_pages(pages: &Pages, group: usize, decision: &Decision) -> [Range<u32>; 2] {
    let geometry = &pages.geometry.groups[group];
    let end = decision.claim_tokens.div_ceil(geometry.retention.page_tokens);
    let comes = match geometry.policy {
        ReusePolicy::Required => true,
        ReusePolicy::Optional => decision.is_selected(),
        ReusePolicy::Private => false,
    };
    if !comes {
        return [0..0, end..end];
    }
    let stale = geometry.retention.stale(decision.claim_tokens);
    [0..stale.start, stale.end..end]
}

/// First position of the drafter context that came along.
fn first_written(pages: &Pages, found: &Match, decision: &Decision) -> u32 {
    let page = pages.geometry.config.page_tokens;
    let first = |group: usize| {
        let mut claimed = claimed_pages(pages, group, decision).into_iter().flatten();
        let is_head =
            |ordinal: &u32| pages.index.entry(found.nodes[*ordinal as usize], group).unwritten > 0;
        claimed.find(is_head).map_or(0, |ordinal| {
            ordinal * page + pages.index.entry(found.nodes[ordinal as usize], group).unwritten
        })
    };
    (0..pages.groups()).map(first).max().unwrap_or(0)
}

/// Pages among `claimed` that the claim covers to their end.
fn whole_pages(pages: &Pages, decision: &Decision, claimed: &[Range<u32>; 2]) -> u32 {
    let whole = decision.claim_tokens / pages.geometry.config.page_tokens;
    claimed.iter().map(|run| run.end.min(whole).saturating_sub(run.start)).sum()
}

/// Most pages the sequence holds until its first decode step is backed.
fn charge(pages: &Pages, group: usize, length_tokens: u32) -> u32 {
    let lookahead = &pages.geometry.lookahead;
    let capacity = lookahead.capacity(length_tokens, lookahead.step_tokens());
    pages.geometry.charge(&pages.geometry.groups[group], capacity)
}
