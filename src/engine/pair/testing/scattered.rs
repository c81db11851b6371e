//! Pages in memory, handed out in scattered order.

use super::super::config::{LayerShape, PairConfig};
use super::super::kv::{Buffer, Kind, KvPages, Owner};

/// K/V pages of both models. A page that is not held holds NaN, so a read of it shows.
#[derive(Debug)]
pub struct ScatteredPages {
    page_tokens: usize,
    target: Pool,
    draft: Pool,
}

#[derive(Debug)]
struct Pool {
    /// Values of a page of one buffer.
    page_values: usize,
    kv_dim: usize,
    free: Vec<usize>,
    /// Physical page of each logical page of each sequence.
    tables: Vec<Vec<Option<usize>>>,
    /// One allocation a layer and kind.
    buffers: Vec<Vec<f32>>,
}

impl ScatteredPages {
    /// Room for `pages` pages of each model.
    #[must_use]
    pub fn new(config: &PairConfig, page_tokens: usize, pages: usize) -> Self {
        Self {
            page_tokens,
            target: Pool::new(&config.target_shape(), config.layers, page_tokens, pages),
            draft: Pool::new(&config.draft_shape(), config.d_layers, page_tokens, pages),
        }
    }

    /// Makes sure that positions before `end` have pages.
    ///
    /// # Panics
    /// When no page is free.
    pub fn ensure(&mut self, sequence: usize, owner: Owner, end: usize) {
        let pages = end.div_ceil(self.page_tokens);
        let pool = self.pool_mut(owner);
        if pool.tables.len() <= sequence {
            pool.tables.resize(sequence + 1, Vec::new());
        }
        while pool.tables[sequence].len() < pages {
            let page = pool.free.pop().expect("a free page");
            pool.tables[sequence].push(Some(page));
        }
    }

    /// Gives back the pages wholly below `position`.
    pub fn evict_below(&mut self, sequence: usize, owner: Owner, position: usize) {
        let pages = position / self.page_tokens;
        let pool = self.pool_mut(owner);
        for entry in 0..pages.min(pool.tables[sequence].len()) {
            if let Some(page) = pool.tables[sequence][entry].take() {
                pool.release(page);
            }
        }
    }

    fn pool_mut(&mut self, owner: Owner) -> &mut Pool {
        match owner {
            Owner::Target => &mut self.target,
            Owner::Draft => &mut self.draft,
        }
    }
}

impl KvPages for ScatteredPages {
    fn rows(&self, sequence: usize, buffer: Buffer, position: usize) -> &[f32] {
        let pool = match buffer.owner {
            Owner::Target => &self.target,
            Owner::Draft => &self.draft,
        };
        let page = pool.page(sequence, position / self.page_tokens);
        let first = page * pool.page_values + position % self.page_tokens * pool.kv_dim;
        &pool.buffers[Pool::index(buffer)][first..(page + 1) * pool.page_values]
    }

    fn rows_mut(&mut self, sequence: usize, buffer: Buffer, position: usize) -> &mut [f32] {
        let (logical, slot) = (position / self.page_tokens, position % self.page_tokens);
        let pool = self.pool_mut(buffer.owner);
        let page = pool.page(sequence, logical);
        let first = page * pool.page_values + slot * pool.kv_dim;
        let end = (page + 1) * pool.page_values;
        &mut pool.buffers[Pool::index(buffer)][first..end]
    }
}

impl Pool {
    fn new(shape: &LayerShape, layers: usize, page_tokens: usize, pages: usize) -> Self {
        let page_values = page_tokens * shape.kv_dim();
        // A step coprime to the count visits every page once, neighbours far apart.
        let step = (pages / 3..).find(|step| coprime(*step, pages)).unwrap_or(1);
        Self {
            page_values,
            kv_dim: shape.kv_dim(),
            free: (0..pages).map(|i| i * step % pages).collect(),
            tables: Vec::new(),
            buffers: vec![vec![f32::NAN; pages * page_values]; layers * 2],
        }
    }

    fn index(buffer: Buffer) -> usize {
        2 * buffer.layer + usize::from(buffer.kind == Kind::Value)
    }

    fn page(&self, sequence: usize, logical: usize) -> usize {
        self.tables[sequence][logical].expect("a page that is held")
    }

    fn release(&mut self, page: usize) {
        for buffer in &mut self.buffers {
            buffer[page * self.page_values..(page + 1) * self.page_values].fill(f32::NAN);
        }
        self.free.push(page);
    }
}

fn coprime(a: usize, b: usize) -> bool {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}
