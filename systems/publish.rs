//! Making a row's pages findable (kv-cache-rules §3.7, §6.4).
//!
//! A full page goes into the tree as it is, without a copy. Where the tree has an equal page
//! already, the row takes that one and lets go of its own. A drafter page is published only if
//! every position of it was written by this sequence or came complete with its claim. A partial
//! page of a sequence that goes on is published as a copy.

use crate::batch::Batch;
use crate::index::{Entry, NO_KEY};
use crate::pages::Pages;
use paceline_components::{Fault, NO_NODE, Owner, Priority, PublishPolicy, ReusePolicy, is_broken};
use paceline_kernels::PageCopy;

/// How a partial last page is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Not at all.
    Leave,
    /// As a copy: the sequence goes on.
    Copy,
    /// As it is: the sequence ends.
    Give,
}

/// Publishes `row` up to `frontier` tokens.
pub fn publish(pages: &mut Pages, batch: &mut Batch, row: u32, frontier: u32, tail: Tail) {
    let page = pages.geometry.config.page_tokens;
    let full = frontier / page;
    let at = row as usize;
    batch.texts[at].0.extend_keys(full * page);
    if batch.prefix[at].tip == NO_NODE && frontier > 0 {
        let root = pages.index.root(batch.texts[at].0.chain.root());
        pages.index.move_tip(NO_NODE, root);
        batch.prefix[at].tip = root;
    }
    while batch.prefix[at].published_pages < full {
        publish_full(pages, batch, row, frontier);
    }
    if tail != Tail::Leave && frontier % page > 0 {
        publish_tail(pages, batch, row, frontier, tail);
    }
}

fn publish_full(pages: &mut Pages, batch: &mut Batch, row: u32, frontier: u32) {
    let at = row as usize;
    let page = pages.geometry.config.page_tokens;
    let ordinal = batch.prefix[at].published_pages;
    let text = &batch.texts[at].0;
    let key = text.chain.keys()[ordinal as usize];
    let tip = batch.prefix[at].tip;
    let node = match pages.index.find(tip, key) {
        Some(node) => node,
        None => {
            let tokens = &text.tokens[(ordinal * page) as usize..][..page as usize];
            let node = pages.index.insert(tip, key, tokens);
            adopt_shorter(pages, tip, node);
            node
        }
    };
    // Of a window only what is needed to go on from the end (kv-cache-rules §1.1, min snapshot).
    let is_snapshot = pages.geometry.config.publish != PublishPolicy::AllReusable;
    for group in 0..pages.groups() {
        let Some(slot) = own_page(pages, batch, row, group, ordinal) else { continue };
        if is_snapshot && pages.geometry.groups[group].retention.stale(frontier).contains(&ordinal)
        {
            continue;
        }
        let entry = pages.index.entry(node, group);
        let unwritten = unwritten(pages, batch, row, group, ordinal);
        if entry.coverage == page && entry.unwritten <= unwritten.unwrap_or(u32::MAX) {
            if entry.slot != slot {
                let fence = batch.fence(row);
                pages.hold(group, entry.slot);
                pages.let_go(group, row, ordinal, fence);
                *pages.cell(group, row, ordinal) = entry.slot;
                batch.due.cells.push((group as u32, row, ordinal));
            }
        } else if let Some(unwritten) = unwritten {
            let priority = priority(pages, group, ordinal, frontier);
            pages.publish(node, group, Entry { slot, coverage: page, unwritten }, priority);
        }
    }
    pages.index.move_tip(tip, node);
    batch.prefix[at].tip = node;
    batch.prefix[at].published_pages = ordinal + 1;
}

fn publish_tail(pages: &mut Pages, batch: &mut Batch, row: u32, frontier: u32, tail: Tail) {
    let at = row as usize;
    let page = pages.geometry.config.page_tokens;
    let (ordinal, coverage) = (frontier / page, frontier % page);
    let first = (ordinal * page) as usize;
    if batch.texts[at].0.chain.next_item(first as u32) < frontier {
        return; // Compared by tokens alone, the item behind them would not count.
    }
    let tip = batch.prefix[at].tip;
    let tokens = &batch.texts[at].0.tokens[first..frontier as usize];
    let known = pages.index.longest_run(tip, tokens).filter(|(_, run)| *run == coverage);
    let has_room = |pages: &Pages, group: usize| tail == Tail::Give || pages.has_spare(group);
    let node = match known {
        Some((node, _)) => node,
        None => {
            // The target's pages make the node; without room for them there is none.
            let required = |g: &usize| pages.geometry.groups[*g].policy == ReusePolicy::Required;
            if !(0..pages.groups()).filter(required).all(|group| has_room(pages, group)) {
                return;
            }
            let node = pages.index.insert(tip, NO_KEY, tokens);
            adopt_shorter(pages, tip, node);
            node
        }
    };
    for group in 0..pages.groups() {
        let Some(slot) = own_page(pages, batch, row, group, ordinal) else { continue };
        let is_covered = pages.index.entry(node, group).coverage >= coverage;
        let written = unwritten(pages, batch, row, group, ordinal);
        let Some(unwritten) = written.filter(|_| !is_covered && has_room(pages, group)) else {
            continue;
        };
        let priority = priority(pages, group, ordinal, frontier);
        let mut entry = Entry { slot, coverage, unwritten };
        if tail == Tail::Copy {
            entry.slot = pages.take(group);
            let (group, from, to) = (group as u32, slot, entry.slot);
            batch.due.moves.push(PageCopy { group, from, to, tokens: coverage });
        }
        pages.publish(node, group, entry, priority);
        if tail == Tail::Copy {
            pages.let_go_of(group, entry.slot, Some(batch.step));
        }
    }
    pages.index.prune(node);
}

/// A new node takes over the pages of a shorter one that it continues; the shorter one goes.
fn adopt_shorter(pages: &mut Pages, parent: u32, node: u32) {
    let is_shorter = |pages: &Pages, child: u32| {
        let tokens = pages.index.tokens(child);
        child != node
            && pages.index.node(child).key == NO_KEY
            && pages.index.tokens(node).starts_with(tokens)
    };
    let shorter = pages.index.children(parent).find(|child| is_shorter(pages, *child));
    let Some(shorter) = shorter else { return };
    for group in 0..pages.groups() {
        let entry = pages.index.entry(shorter, group);
        if entry != Entry::NONE && pages.geometry.groups[group].owner == Owner::Draft {
            pages.move_entry(shorter, node, group);
        } else {
            pages.withdraw(shorter, group);
        }
    }
    pages.index.prune(shorter);
}

/// The row's page of `ordinal` in a group that publishes, if the row still has it.
fn own_page(pages: &mut Pages, batch: &Batch, row: u32, group: usize, ordinal: u32) -> Option<u32> {
    let geometry = &pages.geometry.groups[group];
    let live = batch.spans[row as usize].live(group, geometry.retention.sink_pages);
    let is_live = live.iter().any(|run| run.contains(&ordinal));
    (geometry.policy != ReusePolicy::Private && is_live).then(|| *pages.cell(group, row, ordinal))
}

/// The commit gate: a drafter page with an unwritten position is not published (none). In front of
/// a branch point, where the claim ended one window before it, the page in which it ended is, with
/// the tokens at its beginning that nobody wrote: the window that ends at the branch point reads
/// none of them.
fn unwritten(pages: &Pages, batch: &Batch, row: u32, group: usize, ordinal: u32) -> Option<u32> {
    let prefix = &batch.prefix[row as usize];
    let page = pages.geometry.config.page_tokens;
    if pages.geometry.groups[group].owner == Owner::Target || is_broken(Fault::OpenGate) {
        return Some(0);
    }
    match prefix.draft_from.saturating_sub(ordinal * page) {
        0 => Some(0),
        head if head < page && prefix.branch_point != u32::MAX => Some(head),
        _ => None,
    }
}

/// How long a cached page is kept (kv-cache-rules §2.4).
fn priority(pages: &Pages, group: usize, ordinal: u32, frontier: u32) -> Priority {
    let retention = &pages.geometry.groups[group].retention;
    if !pages.geometry.config.protect_endpoints || retention.window_tokens.is_none() {
        Priority::Normal
    } else if ordinal < retention.sink_pages || ordinal >= retention.stale(frontier).end {
        Priority::High
    } else {
        Priority::Low
    }
}
