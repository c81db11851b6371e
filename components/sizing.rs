//! From bytes to slots (kv-cache-rules §1.8): how a byte quota becomes pages of each group.

use crate::ConfigError;

/// Memory is handed out in grains of `2 MiB << clamp(floor(log2(quota / 1 GiB)), 0, 4)`.
#[must_use]
pub fn grain_bytes(quota_bytes: u64) -> u64 {
    let gib = quota_bytes >> 30;
    let exponent = if gib == 0 { 0 } else { gib.ilog2().min(4) };
    (2 << 20) << exponent
}

/// Slots to ask for so that `slots` of them fit under the highest utilisation at which work is
/// still admitted, 97 %.
#[must_use]
pub fn with_utilisation_room(slots: u64) -> u64 {
    (slots * 100).div_ceil(97)
}

/// What a group asks of the hot tier.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Bytes of one page in each of the group's pools.
    pub pool_bytes: Vec<u64>,
    /// Weight of the group's share.
    pub ratio: f64,
    /// Slots it must have.
    pub min_slots: u64,
}

impl Demand {
    fn grains(&self, slots: u64, grain: u64) -> u64 {
        self.pool_bytes.iter().map(|bytes| (slots * bytes).div_ceil(grain)).sum()
    }

    /// Most slots whose pools, each rounded up to grains, fit in `grains`.
    fn slots(&self, grains: u64, grain: u64) -> u64 {
        let (mut least, mut most) = (0, grains * grain / self.pool_bytes.iter().sum::<u64>());
        while least < most {
            let middle = (least + most).div_ceil(2);
            if self.grains(middle, grain) <= grains { least = middle } else { most = middle - 1 }
        }
        least
    }
}

/// Slots of each group out of `quota_bytes` (kv-cache-rules §1.8): shares by ratio, groups at or
/// below their floor are pinned to it and the rest is shared again.
///
/// # Errors
/// When the floors alone take more than the quota.
pub fn slots_for_bytes(quota_bytes: u64, demands: &[Demand]) -> Result<Vec<u64>, ConfigError> {
    let grain = grain_bytes(quota_bytes);
    let floor: u64 = demands.iter().map(|d| d.grains(d.min_slots, grain)).sum();
    let mut budget = quota_bytes / grain;
    if floor > budget {
        return Err(ConfigError::new(
            "hot_bytes",
            quota_bytes,
            format!("at least {} bytes are needed for every group's floor", floor * grain),
        ));
    }
    let mut slots = vec![0; demands.len()];
    let mut active: Vec<usize> = (0..demands.len()).collect();
    active.sort_by(|&a, &b| demands[a].ratio.total_cmp(&demands[b].ratio));
    'share: loop {
        let (mut left, mut weight) =
            (budget, active.iter().map(|&g| demands[g].ratio).sum::<f64>());
        for (place, &group) in active.iter().enumerate() {
            let demand = &demands[group];
            let grains = (left as f64 * demand.ratio / weight).round() as u64;
            slots[group] = demand.slots(grains, grain);
            if slots[group] <= demand.min_slots {
                slots[group] = demand.min_slots;
                budget -= demand.grains(demand.min_slots, grain);
                active.remove(place);
                continue 'share;
            }
            left -= demand.grains(slots[group], grain);
            weight -= demand.ratio;
        }
        break;
    }
    for (slots, demand) in slots.iter_mut().zip(demands) {
        *slots = demand.slots(demand.grains(*slots, grain), grain);
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grains_grow_with_the_quota_from_2_to_32_mib() {
        for (gib, mib) in [(0, 2), (1, 2), (2, 4), (7, 8), (8, 16), (16, 32), (80, 32)] {
            assert_eq!(grain_bytes(gib << 30), mib << 20, "{gib} GiB");
        }
    }

    #[test]
    fn a_floor_of_100_slots_asks_for_104() {
        assert_eq!(with_utilisation_room(100), 104);
    }

    #[test]
    fn a_small_group_keeps_its_floor_and_the_rest_goes_to_the_other() {
        let small = Demand { pool_bytes: vec![1 << 20], ratio: 0.01, min_slots: 100 };
        let large = Demand { pool_bytes: vec![4 << 20, 1 << 20], ratio: 0.99, min_slots: 1 };
        let slots = slots_for_bytes(1 << 30, &[small.clone(), large.clone()]).unwrap();
        assert_eq!(slots[0], 100);
        let used = small.grains(slots[0], 2 << 20) + large.grains(slots[1], 2 << 20);
        assert!((508..=512).contains(&used), "{used} of 512 grains");
    }

    #[test]
    fn floors_above_the_quota_are_an_error_that_names_the_bytes() {
        let demand = Demand { pool_bytes: vec![1 << 20], ratio: 1.0, min_slots: 2048 };
        let error = slots_for_bytes(1 << 30, &[demand]).unwrap_err();
        assert_eq!(error.field, "hot_bytes");
        assert!(error.fix.contains(&(2u64 << 30).to_string()), "{error}");
    }
}
