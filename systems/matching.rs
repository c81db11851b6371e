//! Matching a sequence against the prefix index, without claiming anything.
//!
//! Content is walked first, whatever pages are left of it; then the groups that must be there
//! shorten the match to what they support (kv-cache-rules §3.3). Groups that may ride along never
//! shorten it.

use crate::pages::Pages;
use paceline_components::{Fault, Owner, ReusePolicy, Text, is_broken};

/// Nodes of a match, first page first, and how far they reach.
#[derive(Debug, Default)]
pub struct Match {
    /// A node for each page, the last perhaps in part.
    pub nodes: Vec<u32>,
    /// Leading tokens the target can use.
    pub tokens: u32,
    /// Leading tokens with known content, pages there or not.
    pub divergence_tokens: u32,
    /// Whether known content goes on differently there: the sequence branches off.
    pub is_branch: bool,
}

impl Match {
    /// Matches all of `text` but its last token, which must be computed for its logits.
    pub fn find(&mut self, pages: &Pages, text: &Text) {
        self.nodes.clear();
        (self.tokens, self.divergence_tokens, self.is_branch) = (0, 0, false);
        let Some(mut at) = pages.index.find_root(text.chain.root()) else { return };
        let page = pages.geometry.config.page_tokens;
        let limit = text.tokens.len() as u32 - 1;
        for key in &text.chain.keys()[..(limit / page) as usize] {
            let Some(node) = pages.index.find(at, *key) else { break };
            self.nodes.push(node);
            at = node;
        }
        let mut known = self.nodes.len() as u32 * page;
        let end = limit.min(known + page).min(text.chain.next_item(known));
        let rest = &text.tokens[known as usize..end as usize];
        let (last, run) = match pages.index.longest_run(at, rest) {
            Some((child, run)) => {
                self.nodes.push(child);
                known += run;
                (child, run)
            }
            None => (at, page),
        };
        self.is_branch = pages.index.is_fork(last, run);
        self.divergence_tokens = known;
        self.tokens = self.supported(pages, known);
    }

    /// The longest match of at most `tokens` that every required group supports.
    #[must_use]
    pub fn supported(&self, pages: &Pages, mut tokens: u32) -> u32 {
        let page = pages.geometry.config.page_tokens;
        let required = |group: &usize| {
            let geometry = &pages.geometry.groups[*group];
            // The target's full groups have a page wherever there is a node.
            let may_have_gaps =
                geometry.retention.window_tokens.is_some() || geometry.owner == Owner::Draft;
            geometry.policy == ReusePolicy::Required && may_have_gaps
        };
        'shorter: loop {
            for group in (0..pages.groups()).filter(required) {
                if let Some((ordinal, coverage)) = self.first_gap(pages, group, tokens) {
                    tokens = ordinal * page + coverage;
                    continue 'shorter;
                }
            }
            return tokens;
        }
    }

    /// Whether every group that may ride along is complete at `tokens`.
    #[must_use]
    pub fn is_complete(&self, pages: &Pages, tokens: u32) -> bool {
        if is_broken(Fault::AlignedOnly)
            && !tokens.is_multiple_of(pages.geometry.config.page_tokens)
        {
            return false;
        }
        (0..pages.groups()).all(|group| match pages.geometry.groups[group].policy {
            ReusePolicy::Required => true,
            ReusePolicy::Optional => self.first_gap(pages, group, tokens).is_none(),
            ReusePolicy::Private => false,
        })
    }

    /// The first live ordinal at `tokens` whose page is missing, too short or unwritten where the
    /// window reads, and what it covers.
    fn first_gap(&self, pages: &Pages, group: usize, tokens: u32) -> Option<(u32, u32)> {
        let retention = &pages.geometry.groups[group].retention;
        let page = retention.page_tokens;
        let stale = retention.stale(tokens);
        let first_read = (tokens + 1).saturating_sub(retention.window_tokens.unwrap_or(u32::MAX));
        let gap = |ordinal: u32| {
            let entry = pages.index.entry(self.nodes[ordinal as usize], group);
            let first = ordinal * page;
            let is_gap = entry.coverage < page.min(tokens - first)
                || entry.unwritten > first_read.saturating_sub(first);
            is_gap.then_some((ordinal, entry.coverage))
        };
        (0..stale.start).chain(stale.end..tokens.div_ceil(page)).find_map(gap)
    }
}
