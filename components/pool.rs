//! Pools of a lifecycle group: how the buffers of its layers share slots (kv-cache-rules §1.5–1.6).
//!
//! All buffers of one size coalesce into one pool; a slot is one index in every pool of the group.
//! Adding layers to one group never changes the pools of another.

use crate::config::LayerSpec;

/// Memory of one buffer size: `count` sub-pages of `single_bytes` in each slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Bytes of one buffer's page.
    pub single_bytes: u64,
    /// Buffers that share the pool: the scale from slot to kernel page index.
    pub count: u32,
    /// Buffers of different coalescing groups never share a pool.
    pub coalescing_group: u32,
}

impl Pool {
    /// Bytes of one slot in this pool.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.single_bytes * u64::from(self.count)
    }
}

/// Where one buffer of one layer lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferPlace {
    /// Layer of the group, from 0.
    pub layer: u32,
    /// Role inside the layer.
    pub role: String,
    /// Index of the pool.
    pub pool: usize,
    /// Index of the buffer inside a slot of the pool.
    pub offset: u32,
}

impl BufferPlace {
    /// Kernel page index of `slot`, counted from the pool's base.
    #[must_use]
    pub fn page_index(&self, pool: &Pool, slot: u32) -> u64 {
        u64::from(slot) * u64::from(pool.count) + u64::from(self.offset)
    }

    /// Kernel page index of `slot`, counted from the buffer's own base.
    #[must_use]
    pub fn shared_page_index(&self, pool: &Pool, slot: u32) -> u64 {
        u64::from(slot) * u64::from(pool.count)
    }

    /// Byte offset of `slot` from the pool's base.
    #[must_use]
    pub fn byte_offset(&self, pool: &Pool, slot: u32) -> u64 {
        self.page_index(pool, slot) * pool.single_bytes
    }

    /// Exclusive upper bound of kernel page indices, counted from the buffer's own base.
    #[must_use]
    pub fn index_bound(&self, pool: &Pool, slots: u32) -> u64 {
        u64::from(slots) * u64::from(pool.count) - u64::from(self.offset)
    }
}

/// Pools, largest slot first, and the place of every buffer.
#[must_use]
pub fn coalesce(layers: &[LayerSpec], page_tokens: u32) -> (Vec<Pool>, Vec<BufferPlace>) {
    let mut pools: Vec<Pool> = Vec::new();
    let mut places = Vec::new();
    let specs = layers.iter().flat_map(|spec| std::iter::repeat_n(spec, spec.count as usize));
    for (layer, spec) in specs.enumerate() {
        for buffer in &spec.buffers {
            let single_bytes = u64::from(buffer.bytes_per_token) * u64::from(page_tokens);
            let key = (single_bytes, buffer.coalescing_group);
            let found = pools.iter().position(|p| (p.single_bytes, p.coalescing_group) == key);
            let pool = found.unwrap_or_else(|| {
                let coalescing_group = buffer.coalescing_group;
                pools.push(Pool { single_bytes, count: 0, coalescing_group });
                pools.len() - 1
            });
            let offset = pools[pool].count;
            pools[pool].count += 1;
            places.push(BufferPlace {
                layer: layer as u32,
                role: buffer.role.clone(),
                pool,
                offset,
            });
        }
    }
    let mut order: Vec<usize> = (0..pools.len()).collect();
    order.sort_by_key(|&pool| std::cmp::Reverse(pools[pool].slot_bytes()));
    for place in &mut places {
        place.pool = order.iter().position(|&pool| pool == place.pool).unwrap_or(place.pool);
    }
    (order.iter().map(|&pool| pools[pool]).collect(), places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BufferSpec;

    fn layers(count: u32, bytes: &[u32]) -> LayerSpec {
        let roles = ["key", "value", "index_key"];
        let buffers = roles.iter().zip(bytes).map(|(r, b)| BufferSpec::new(r, *b)).collect();
        LayerSpec { count, buffers }
    }

    #[test]
    fn buffers_of_one_size_share_one_pool() {
        let (pools, places) = coalesce(&[layers(4, &[128, 128])], 128);
        assert_eq!(pools, [Pool { single_bytes: 16 << 10, count: 8, coalescing_group: 0 }]);
        assert_eq!(places.len(), 8);
        let (draft, _) = coalesce(&[layers(1, &[512, 512])], 128);
        assert_eq!(draft, [Pool { single_bytes: 64 << 10, count: 2, coalescing_group: 0 }]);
    }

    #[test]
    fn equal_sizes_give_an_uneven_layer_stride() {
        let (pools, places) = coalesce(&[layers(3, &[256, 256]), layers(2, &[256, 256, 256])], 1);
        assert_eq!(pools.len(), 1);
        assert_eq!(pools[0].count, 12);
        let first = |layer| places.iter().find(|p| p.layer == layer).map(|p| p.offset);
        assert_eq!((first(2), first(3), first(4)), (Some(4), Some(6), Some(9)));
    }

    #[test]
    fn page_indices_follow_slot_scale_and_offset() {
        let (pools, places) = coalesce(&[layers(4, &[64, 64])], 16);
        let (pool, place) = (&pools[0], &places[5]);
        assert_eq!(place.offset, 5);
        assert_eq!(place.shared_page_index(pool, 3), 24);
        assert_eq!(place.page_index(pool, 3), 29);
        assert_eq!(place.byte_offset(pool, 3), 29 * 1024);
        let bound = place.index_bound(pool, 100);
        assert_eq!(bound, 795);
        assert_eq!((bound + 5) % 8, 0, "the slot count is recovered without remainder");
        assert_eq!((bound + 5) / 8, 100);
    }

    #[test]
    fn a_coalescing_group_keeps_equal_sizes_apart() {
        let mut spec = layers(2, &[64, 64]);
        spec.buffers[1].coalescing_group = 1;
        let (pools, _) = coalesce(&[spec], 16);
        assert_eq!(pools.iter().map(|p| p.count).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn the_largest_pool_comes_first() {
        let (pools, places) = coalesce(&[layers(2, &[8, 64])], 1);
        assert_eq!(pools[0].single_bytes, 64);
        assert!(places.iter().all(|p| (p.role == "value") == (p.pool == 0)));
    }
}
