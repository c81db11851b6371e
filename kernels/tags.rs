//! Content tags: instead of keys and values, a page holds for each position a tag of (group, token
//! prefix, position). A wrong page, a stale row or a missing slot then reads as a wrong tag.

use crate::abi::{TAG_SCRATCH, TagRun};
use std::ops::Range;

/// Running hash of a token prefix; `prefix` is 0 in front of the first token.
#[must_use]
pub fn extend_prefix(prefix: u64, token: u32) -> u64 {
    mix(prefix ^ u64::from(token).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(1)
}

/// Tag of a position whose prefix, its own token included, hashes to `prefix`. Never 0.
#[must_use]
pub fn tag(group: u32, prefix: u64, position: u32) -> u64 {
    mix(prefix ^ u64::from(group) << 32 ^ u64::from(position)) | 1
}

/// Tag of a position whose content nobody may read.
pub const SCRATCH: u64 = 2;

/// Tag work of a step: runs in order, and the prefix hashes they name.
#[derive(Clone, Debug, Default)]
pub struct TagList {
    runs: Vec<TagRun>,
    prefixes: Vec<u64>,
}

impl TagList {
    /// Empties the list.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.prefixes.clear();
    }

    /// Adds `positions` of a row; `prefixes` are the hashes of those positions, none for scratch.
    pub fn push(
        &mut self,
        kind: u32,
        (group, row): (u32, u32),
        positions: Range<u32>,
        prefixes: &[u64],
    ) {
        if positions.is_empty() {
            return;
        }
        let count = positions.end - positions.start;
        assert!(kind == TAG_SCRATCH || prefixes.len() == count as usize, "a hash a position");
        let (first, at) = (positions.start, self.prefixes.len() as u32);
        self.runs.push(TagRun { group, row, first, count, prefixes: at, kind });
        self.prefixes.extend_from_slice(prefixes);
    }

    /// The runs.
    #[must_use]
    pub fn runs(&self) -> &[TagRun] {
        &self.runs
    }

    /// The prefix hashes of all runs.
    #[must_use]
    pub fn prefixes(&self) -> &[u64] {
        &self.prefixes
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

/// Tags of all pages of one group.
#[derive(Clone, Debug)]
pub struct TagPages {
    page_tokens: u32,
    tags: Vec<u64>,
    pages: Vec<PageState>,
}

/// A page is read in whole far more often than it is written: one that was found right stays right
/// until a write.
#[derive(Clone, Copy, Debug, Default)]
struct PageState {
    found_right_for: u64,
}

impl TagPages {
    /// Empty pages: every tag is 0, which no position has.
    #[must_use]
    pub fn new(slots: u32, page_tokens: u32) -> Self {
        Self {
            page_tokens,
            tags: vec![0; slots as usize * page_tokens as usize],
            pages: vec![PageState::default(); slots as usize],
        }
    }

    /// Writes one position of a page.
    pub fn write(&mut self, slot: u32, offset: u32, tag: u64) {
        self.tags[slot as usize * self.page_tokens as usize + offset as usize] = tag;
        self.pages[slot as usize].found_right_for = 0;
    }

    /// Copies a page.
    pub fn copy(&mut self, from: u32, to: u32) {
        let words = self.page_tokens as usize;
        let start = from as usize * words;
        self.tags.copy_within(start..start + words, to as usize * words);
        self.pages[to as usize].found_right_for = 0;
    }

    /// All tags, slot after slot.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.tags
    }

    /// The first offset in `offsets` whose tag is not `expected(offset)`.
    pub fn first_wrong(
        &mut self,
        slot: u32,
        offsets: Range<u32>,
        expected: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        let whole = offsets == (0..self.page_tokens);
        let last = expected(self.page_tokens.min(offsets.end) - 1);
        if whole && self.pages[slot as usize].found_right_for == last {
            return None;
        }
        let base = slot as usize * self.page_tokens as usize;
        let wrong = offsets.into_iter().find(|&o| self.tags[base + o as usize] != expected(o));
        if whole && wrong.is_none() {
            self.pages[slot as usize].found_right_for = last;
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_depends_on_group_position_and_every_token_before() {
        let prefix = |tokens: &[u32]| tokens.iter().fold(0, |p, t| extend_prefix(p, *t));
        let base = tag(0, prefix(&[1, 2, 3]), 2);
        assert_ne!(base, tag(1, prefix(&[1, 2, 3]), 2));
        assert_ne!(base, tag(0, prefix(&[1, 2, 3]), 3));
        assert_ne!(base, tag(0, prefix(&[9, 2, 3]), 2));
        assert_ne!(base, tag(0, prefix(&[2, 1, 3]), 2));
    }

    #[test]
    fn a_page_found_right_is_read_again_after_a_write() {
        let mut pages = TagPages::new(2, 4);
        let expected = |o: u32| u64::from(o) + 10;
        (0..4).for_each(|o| pages.write(1, o, expected(o)));
        assert_eq!(pages.first_wrong(1, 0..4, expected), None);
        pages.write(1, 2, 99);
        assert_eq!(pages.first_wrong(1, 0..4, expected), Some(2));
        assert_eq!(pages.first_wrong(1, 0..2, expected), None);
    }
}
