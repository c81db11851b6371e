//! Lists of cached pages: least recently used first, one list for each priority. Order is by
//! logical time only.

use paceline_components::{Cached, GUARD_SLOT, PageLink, Priority};

/// Puts `slot` behind all others of its priority.
pub fn push(cached: &mut Cached, links: &mut [PageLink], slot: u32, priority: Priority) {
    let (first, last) = &mut cached.lists[priority as usize];
    links[slot as usize] = PageLink { previous: *last, next: GUARD_SLOT };
    if *last == GUARD_SLOT {
        *first = slot;
    } else {
        links[*last as usize].next = slot;
    }
    *last = slot;
    cached.len += 1;
}

/// Takes `slot` out of its list.
pub fn remove(cached: &mut Cached, links: &mut [PageLink], slot: u32, priority: Priority) {
    let (first, last) = &mut cached.lists[priority as usize];
    let PageLink { previous, next } = links[slot as usize];
    if previous == GUARD_SLOT {
        *first = next;
    } else {
        links[previous as usize].next = next;
    }
    if next == GUARD_SLOT {
        *last = previous;
    } else {
        links[next as usize].previous = previous;
    }
    cached.len -= 1;
}

/// The page to evict next.
pub fn first(cached: &Cached) -> Option<u32> {
    cached.lists.iter().map(|(first, _)| *first).find(|first| *first != GUARD_SLOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_leave_by_priority_then_age() {
        let mut cached = Cached { lists: [(GUARD_SLOT, GUARD_SLOT); 3], len: 0 };
        let mut links = vec![PageLink::default(); 8];
        let pushed = [
            (1, Priority::Normal),
            (2, Priority::High),
            (3, Priority::Low),
            (4, Priority::Normal),
            (5, Priority::Low),
            (6, Priority::Normal),
        ];
        pushed.iter().for_each(|(slot, p)| push(&mut cached, &mut links, *slot, *p));
        remove(&mut cached, &mut links, 4, Priority::Normal);
        let mut order = Vec::new();
        while let Some(slot) = first(&cached) {
            let priority = pushed.iter().find(|(s, _)| *s == slot).unwrap().1;
            remove(&mut cached, &mut links, slot, priority);
            order.push(slot);
        }
        assert_eq!(order, [3, 5, 1, 6, 2]);
        assert_eq!(cached.len, 0);
    }
}
