//! Matching a sequence against the prefix index, without claiming anything.
//!
//! Content is walked first, whatever pages are left of it; then the groups that must be there
//! shorten the match to what they support (kv-cache-rules §3.3). Groups that may ride along never
//! shorten it.

use crate::pages::Pages;
use paceline_components::{Owner, ReusePolicy, Text};

/// Nodes of a match, first page first, and how far they reach.
#[derive(Debug, Default)]
pub struct Match {
    /// A node for each page, the last perhaps in part.
    pub nodes: Vec<u32>,
    /// Leading tokens the target can use.
    pub tokens: u32,
    /// Leading tokens with known content, pages there or not: where the sequence branches off.
    pub divergence_tokens: u32,
}

impl Match {
    /// Matches all of `text` but its last token, which must be computed for its logits.
    pub fn find(&mut self, pages: &Pages, text: &Text) {
        self.nodes.clear();
        (self.tokens, self.divergence_tokens) = (0, 0);
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
        if let Some((child, run)) = pages.index.longest_run(at, rest) {
            self.nodes.push(child);
            known += run;
        }
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
        (0..pages.groups()).all(|group| match pages.geometry.groups[group].policy {
            ReusePolicy::Required => true,
            ReusePolicy::Optional => self.first_gap(pages, group, tokens).is_none(),
            ReusePolicy::Private => false,
        })
    }

    /// The first live ordinal at `tokens` whose page is missing or too short, and what it covers.
    fn first_gap(&self, pages: &Pages, group: usize, tokens: u32) -> Option<(u32, u32)> {
        let retention = &pages.geometry.groups[group].retention;
        let page = retention.page_tokens;
        let stale = retention.stale(tokens);
        (0..stale.start)
            .chain(stale.end..tokens.div_ceil(page))
            .map(|ordinal| {
                let coverage = pages.index.entry(self.nodes[ordinal as usize], group).coverage;
                (ordinal, coverage)
            })
            .find(|(ordinal, coverage)| *coverage < page.min(tokens - ordinal * page))
    }
}
