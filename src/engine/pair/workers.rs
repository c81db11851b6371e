//! At most two threads: the caller's work and one half of it.

use std::sync::Arc;

/// One or two threads that share the work of a call.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    pool: Option<Arc<rayon::ThreadPool>>,
}

impl Workers {
    /// Everything on the calling thread.
    #[must_use]
    pub fn one() -> Self {
        Self { pool: None }
    }

    /// Two threads; one when the system refuses to start them.
    #[must_use]
    pub fn two() -> Self {
        Self { pool: rayon::ThreadPoolBuilder::new().num_threads(2).build().ok().map(Arc::new) }
    }

    pub(super) fn are_two(&self) -> bool {
        self.pool.is_some()
    }

    /// Runs `work` where [`Workers::join`] finds the second thread.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// How many of `items` the first of two threads takes; all of them when sharing would not pay.
    pub(super) fn first_share(&self, items: usize, least_worth_sharing: usize) -> usize {
        if self.are_two() && items >= least_worth_sharing { items / 2 } else { items }
    }

    /// Runs both, side by side when there are two threads. Call it within [`Workers::run`].
    pub(super) fn join(&self, first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
        if self.are_two() {
            rayon::join(first, second);
        } else {
            first();
            second();
        }
    }
}
