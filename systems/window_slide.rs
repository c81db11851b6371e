//! Step 4, `window_slide`: gives back pages that left a window. Reads settled history only; writes the
//! rows' spans and the pools (kv-cache-rules §1.3).

use crate::batch::BatchAccess;
use crate::pages::PageAccess;

/// See the module.
pub fn window_slide(mut batch: BatchAccess, mut pages: PageAccess) {
    if batch.agenda().due.slides.is_empty() {
        return;
    }
    pages.with(|pages| {
        batch.with(|batch| {
            let fence = batch.flights.newest();
            while let Some(row) = batch.due.slides.pop() {
                let at = row as usize;
                if batch.owners[at].is_free() {
                    continue;
                }
                let (lengths, spans) = (&mut batch.lengths[at], &mut batch.spans[at]);
                let fence = fence.filter(|_| lengths.in_flight > 0);
                pages.slide(row, spans, lengths.settled, fence);
                lengths.slide_at = pages.next_slide(spans);
                batch.due.tables.push(row);
            }
        });
    });
}
