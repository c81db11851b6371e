//! The prefix index: a tree of shared content. Each node is one page of tokens after its parent's,
//! and names at most one page of each group that holds them.
//!
//! A full node is found by its key, which covers everything before it: as its parent's first
//! child, as most are, or else through a map, so that a long unbranched text is walked without
//! looking anything up. A partial node, a tail of fewer tokens than a page, is found by its tokens
//! among its parent's children. Only full nodes have children. A node lives while a page, a child or a row's tip needs it. Everything here is tree
//! structure; who holds a page and what its death means is [`pages`](crate::pages)' business.

use ahash::RandomState;
use paceline_components::{NO_NODE, PageKey};
use std::collections::HashMap;

/// A page of one group in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its slot, the guard slot for none.
    pub slot: u32,
    /// Leading tokens of the node it covers.
    pub coverage: u32,
    /// Leading tokens of those that were never written: only a drafter's page, in front of a
    /// branch point, has any.
    pub unwritten: u32,
}

impl Entry {
    /// No page.
    pub const NONE: Self = Self { slot: 0, coverage: 0, unwritten: 0 };
}

/// A partial node's key: none.
pub const NO_KEY: PageKey = PageKey(0);

/// One node.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Key of a full node or a root, `NO_KEY` of a partial one.
    pub key: PageKey,
    /// The node before it, `NO_NODE` for a root.
    pub parent: u32,
    /// Place of its page in the sequence; roots have none.
    pub ordinal: u32,
    /// Tokens of its page, 0 for a root.
    pub tokens: u32,
    /// Rows that go on from here.
    pub tips: u32,
    children: u32,
    first_child: u32,
    previous: u32,
    next: u32,
}

/// The tree.
#[derive(Debug)]
pub struct PrefixIndex {
    page_tokens: usize,
    groups: usize,
    nodes: Vec<Node>,
    free: Vec<u32>,
    entries: Vec<Entry>,
    tokens: Vec<u32>,
    /// Roots, and full nodes that are not the first child.
    by_key: HashMap<PageKey, u32, RandomState>,
}

impl PrefixIndex {
    /// An empty tree with room for `pages` nodes.
    #[must_use]
    pub fn new(page_tokens: u32, groups: usize, pages: u32) -> Self {
        let pages = pages as usize;
        let mut index = Self {
            page_tokens: page_tokens as usize,
            groups,
            nodes: vec![Node::EMPTY; pages],
            free: (0..pages as u32).rev().collect(),
            entries: vec![Entry { coverage: u32::MAX, ..Entry::NONE }; pages * groups],
            // Written once now, so that no step meets memory for the first time.
            tokens: vec![u32::MAX; pages * page_tokens as usize],
            // Fixed seeds: the same run twice takes the same path.
            by_key: HashMap::with_capacity_and_hasher(pages, RandomState::with_seeds(5, 6, 7, 8)),
        };
        index.entries.fill(Entry::NONE);
        index
    }

    /// Live nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// The root of a namespace.
    #[must_use]
    pub fn find_root(&self, key: PageKey) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The full node with this key after `parent`.
    #[must_use]
    pub fn find(&self, parent: u32, key: PageKey) -> Option<u32> {
        let Node { children, first_child, .. } = self.nodes[parent as usize];
        match children {
            0 => None,
            _ if self.nodes[first_child as usize].key == key => Some(first_child),
            1 => None,
            _ => self.by_key.get(&key).copied(),
        }
    }

    /// One node.
    #[must_use]
    pub fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// The tokens of a node's page.
    #[must_use]
    pub fn tokens(&self, node: u32) -> &[u32] {
        let first = node as usize * self.page_tokens;
        &self.tokens[first..first + self.nodes[node as usize].tokens as usize]
    }

    /// A node's page in `group`.
    #[must_use]
    pub fn entry(&self, node: u32, group: usize) -> Entry {
        self.entries[node as usize * self.groups + group]
    }

    /// Sets a node's page in `group`.
    pub fn set_entry(&mut self, node: u32, group: usize, entry: Entry) {
        self.entries[node as usize * self.groups + group] = entry;
    }

    /// Children of a node.
    pub fn children(&self, node: u32) -> impl Iterator<Item = u32> {
        let mut next = self.nodes[node as usize].first_child;
        std::iter::from_fn(move || {
            let child = next;
            (child != NO_NODE).then(|| {
                next = self.nodes[child as usize].next;
                child
            })
        })
    }

    /// Whether other texts go on after `tokens` tokens of `node`: they fork there.
    #[must_use]
    pub fn is_fork(&self, node: u32, tokens: u32) -> bool {
        let Node { tokens: all, children, .. } = self.nodes[node as usize];
        tokens < all || children > 0
    }

    /// The child of `parent` that best continues with `tokens`: the longest common run, and among
    /// equals the one with most pages for it. A node with many children is a fan-out of unrelated
    /// texts and not searched.
    #[must_use]
    pub fn longest_run(&self, parent: u32, tokens: &[u32]) -> Option<(u32, u32)> {
        const MOST_CHILDREN: u32 = 32;
        if self.nodes[parent as usize].children > MOST_CHILDREN {
            return None;
        }
        let run = |child: u32| {
            let common = self.tokens(child).iter().zip(tokens).take_while(|(a, b)| a == b);
            common.count() as u32
        };
        let pages = |child: u32, run: u32| {
            (0..self.groups).filter(|g| self.entry(child, *g).coverage >= run).count()
        };
        let best = self
            .children(parent)
            .map(|child| (run(child), child))
            .filter(|(run, _)| *run > 0)
            .max_by_key(|(run, child)| (*run, pages(*child, *run), std::cmp::Reverse(*child)));
        best.map(|(run, child)| (child, run))
    }

    /// The root of a namespace, made when it is new.
    pub fn root(&mut self, key: PageKey) -> u32 {
        self.find_root(key).unwrap_or_else(|| self.insert(NO_NODE, key, &[]))
    }

    /// Adds a node; a partial one has no key.
    pub fn insert(&mut self, parent: u32, key: PageKey, tokens: &[u32]) -> u32 {
        let node = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::EMPTY);
            self.entries.resize(self.nodes.len() * self.groups, Entry::NONE);
            self.tokens.resize(self.nodes.len() * self.page_tokens, 0);
            self.nodes.len() as u32 - 1
        });
        let at = node as usize;
        self.tokens[at * self.page_tokens..][..tokens.len()].copy_from_slice(tokens);
        self.entries[at * self.groups..][..self.groups].fill(Entry::NONE);
        self.nodes[at] = Node { key, parent, tokens: tokens.len() as u32, ..Node::EMPTY };
        if parent == NO_NODE {
            self.by_key.insert(key, node);
            return node;
        }
        let first = self.nodes[parent as usize].first_child;
        self.nodes[at].ordinal = self.nodes[parent as usize].ordinal.wrapping_add(1);
        self.nodes[parent as usize].children += 1;
        if first == NO_NODE {
            self.nodes[parent as usize].first_child = node;
            return node;
        }
        // Behind the first child, which stays the one that needs no map.
        let next = std::mem::replace(&mut self.nodes[first as usize].next, node);
        self.nodes[at].previous = first;
        self.nodes[at].next = next;
        if next != NO_NODE {
            self.nodes[next as usize].previous = node;
        }
        if key != NO_KEY {
            self.by_key.insert(key, node);
        }
        node
    }

    /// Moves a row's tip.
    pub fn move_tip(&mut self, from: u32, to: u32) {
        if to != NO_NODE {
            self.nodes[to as usize].tips += 1;
        }
        if from != NO_NODE {
            self.nodes[from as usize].tips -= 1;
            self.prune(from);
        }
    }

    /// Removes `node` and then its ancestors as long as nothing needs them.
    pub fn prune(&mut self, mut node: u32) {
        while node != NO_NODE {
            let at = node as usize;
            let Node { parent, tips, children, .. } = self.nodes[at];
            let entries = &self.entries[at * self.groups..][..self.groups];
            if tips > 0 || children > 0 || entries.iter().any(|e| *e != Entry::NONE) {
                return;
            }
            self.unlink(node);
            node = parent;
        }
    }

    /// Removes a node without pages, children or tips; its parent stays.
    pub fn unlink(&mut self, node: u32) {
        let Node { key, parent, previous, next, tips, children, .. } = self.nodes[node as usize];
        assert!(tips == 0 && children == 0, "nothing needs a node that goes");
        if next != NO_NODE {
            self.nodes[next as usize].previous = previous;
        }
        if parent != NO_NODE {
            self.nodes[parent as usize].children -= 1;
        }
        if previous != NO_NODE {
            self.nodes[previous as usize].next = next;
            self.by_key.remove(&key);
        } else if parent != NO_NODE {
            self.nodes[parent as usize].first_child = next;
            if next != NO_NODE {
                let key = self.nodes[next as usize].key;
                self.by_key.remove(&key);
            }
        } else {
            self.by_key.remove(&key);
        }
        self.nodes[node as usize] = Node::EMPTY;
        self.free.push(node);
    }

    /// Key of a node's parent.
    #[must_use]
    pub fn parent_key(&self, node: u32) -> PageKey {
        let parent = self.nodes[node as usize].parent;
        self.nodes[parent as usize].key
    }
}

impl Node {
    const EMPTY: Self = Self {
        key: NO_KEY,
        parent: NO_NODE,
        ordinal: u32::MAX,
        tokens: 0,
        tips: 0,
        children: 0,
        first_child: NO_NODE,
        previous: NO_NODE,
        next: NO_NODE,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> PrefixIndex {
        PrefixIndex::new(4, 2, 16)
    }

    #[test]
    fn ordinals_count_from_the_root() {
        let mut index = index();
        let root = index.root(PageKey(1));
        let a = index.insert(root, PageKey(2), &[1, 2, 3, 4]);
        let b = index.insert(a, PageKey(3), &[5, 6, 7, 8]);
        assert_eq!((index.node(a).ordinal, index.node(b).ordinal), (0, 1));
        assert_eq!(index.find(a, PageKey(3)), Some(b));
        assert_eq!(index.parent_key(b), PageKey(2));
    }

    #[test]
    fn a_node_goes_with_the_last_thing_that_needs_it_and_takes_bare_ancestors_along() {
        let mut index = index();
        let root = index.root(PageKey(1));
        let a = index.insert(root, PageKey(2), &[1; 4]);
        let b = index.insert(a, NO_KEY, &[1; 2]);
        index.set_entry(b, 0, Entry { slot: 3, coverage: 2, unwritten: 0 });
        index.prune(b);
        assert_eq!(index.len(), 3);
        index.move_tip(NO_NODE, a);
        index.set_entry(b, 0, Entry::NONE);
        index.prune(b);
        assert_eq!(index.len(), 2, "a row goes on from its parent");
        index.move_tip(a, NO_NODE);
        assert_eq!(index.len(), 0);
        assert_eq!(index.find_root(PageKey(1)), None);
    }

    #[test]
    fn every_child_is_found_whichever_sibling_goes() {
        for gone in 0..4 {
            let mut index = index();
            let root = index.root(PageKey(1));
            index.move_tip(NO_NODE, root);
            let keys = [2, 3, 4, 5].map(PageKey);
            let nodes = keys.map(|key| index.insert(root, key, &[key.0 as u32; 4]));
            index.unlink(nodes[gone]);
            for (key, node) in keys.iter().zip(nodes) {
                let expected = (node != nodes[gone]).then_some(node);
                assert_eq!(index.find(root, *key), expected);
            }
            assert_eq!(index.children(root).count(), 3);
        }
    }

    #[test]
    fn the_longest_run_wins_and_pages_decide_between_equals() {
        let mut index = index();
        let root = index.root(PageKey(1));
        let bare = index.insert(root, PageKey(2), &[1, 2, 3, 4]);
        let full = index.insert(root, PageKey(3), &[1, 2, 3, 5]);
        index.insert(root, PageKey(4), &[1, 9, 9, 9]);
        index.set_entry(bare, 0, Entry { slot: 1, coverage: 4, unwritten: 0 });
        index.set_entry(full, 0, Entry { slot: 2, coverage: 4, unwritten: 0 });
        index.set_entry(full, 1, Entry { slot: 2, coverage: 3, unwritten: 0 });
        assert_eq!(index.longest_run(root, &[1, 2, 3, 7]), Some((full, 3)));
        assert_eq!(index.longest_run(root, &[1, 2, 3, 4]), Some((bare, 4)));
        assert_eq!(index.longest_run(root, &[8]), None);
    }
}
