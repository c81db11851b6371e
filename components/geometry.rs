//! Geometry: every limit derived from a [`Config`], checked as a whole, fixed for the life of a
//! core.

use crate::config::{Config, Drafter, DrafterKind, GroupSpec, Owner, ReusePolicy};
use crate::error::{ConfigError, SubmitError};
use crate::fault::{Fault, is_broken};
use crate::pool::{BufferPlace, Pool, coalesce};
use crate::sizing::{Demand, slots_for_bytes, with_utilisation_room};
use crate::span::{Lookahead, Retention, window_pages};

/// Most lifecycle groups.
pub const GROUPS_MAX: usize = 8;

/// Slot of a group that unused block-table cells point at; it belongs to nobody.
pub const GUARD_SLOT: u32 = 0;

/// One lifecycle group with its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupGeometry {
    /// Name.
    pub name: String,
    /// Whose keys and values these are.
    pub owner: Owner,
    /// How prefix reuse treats it.
    pub policy: ReusePolicy,
    /// Which pages of a sequence it keeps.
    pub retention: Retention,
    /// Pools, largest slot first.
    pub pools: Vec<Pool>,
    /// Place of every buffer of every layer.
    pub buffers: Vec<BufferPlace>,
    /// Pages requests can hold.
    pub pages: u32,
    /// Pages of the dummy row, in slots `1..=dummy_pages`.
    pub dummy_pages: u32,
    /// Page id of slot 0: page id = base + slot.
    pub base: u32,
}

impl GroupGeometry {
    /// Slots of the group, guard and dummy pages included.
    #[must_use]
    pub fn slots(&self) -> u32 {
        1 + self.dummy_pages + self.pages
    }

    /// Bytes of one page over all pools.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.pools.iter().map(Pool::slot_bytes).sum()
    }
}

/// Everything that is fixed at start-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// The description this came from.
    pub config: Config,
    /// Lifecycle groups.
    pub groups: Vec<GroupGeometry>,
    /// K and the extra beyond history.
    pub lookahead: Lookahead,
    /// Width of the drafter's block, 0 without a drafter.
    pub block_width: u32,
    /// Columns of a block table: pages of the longest capacity a row can have.
    pub columns: u32,
    /// Pages of all groups together.
    pub total_pages: u32,
}

impl Geometry {
    /// Checks `config` as a whole and derives the limits.
    ///
    /// # Errors
    /// The first field that is wrong, its value, and what is required of it.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        check_limits(config)?;
        let block_width = check_drafter(config)?;
        let extra = config.num_extra_kv_tokens;
        let has_draft_layers = config.groups.iter().any(|g| g.owner == Owner::Draft);
        let lookahead = Lookahead {
            draft_tokens: config.drafter.map_or(0, |d| d.draft_tokens),
            extra_tokens: if has_draft_layers && !is_broken(Fault::ShortExtra) {
                extra.max(block_width)
            } else {
                extra
            },
        };
        let mut geometry = Self {
            config: config.clone(),
            groups: Vec::with_capacity(config.groups.len()),
            lookahead,
            block_width,
            columns: 0,
            total_pages: 0,
        };
        geometry.columns =
            geometry.longest_capacity(config.max_seq_len).div_ceil(config.page_tokens);
        for (index, spec) in config.groups.iter().enumerate() {
            check_group(config, index, spec)?;
            let mut spec = spec.clone();
            if index == 0 && is_broken(Fault::SharedGroup) {
                spec.layers = config.groups.iter().flat_map(|g| g.layers.clone()).collect();
            }
            geometry.groups.push(group(config, &spec, lookahead));
        }
        geometry.size_groups()?;
        let mut base = 0u32;
        for (index, group) in geometry.groups.iter_mut().enumerate() {
            group.base = base;
            let fix = "fewer pages: page ids of all groups together fit 31 bits";
            base = base.checked_add(group.slots()).filter(|b| *b <= i32::MAX as u32).ok_or_else(
                || ConfigError::new(format!("groups[{index}].pages"), group.pages, fix),
            )?;
        }
        geometry.total_pages = base;
        Ok(geometry)
    }

    /// Drafter slots; the dummy's index comes after them.
    #[must_use]
    pub fn drafter_slots(&self) -> u32 {
        self.config.drafter.map_or(0, |drafter| drafter.slots.unwrap_or(self.config.max_batch))
    }

    /// Page id of a slot: its row in every page column.
    #[must_use]
    pub fn page(&self, group: usize, slot: u32) -> usize {
        (self.groups[group].base + slot) as usize
    }

    /// Most positions a row that ends with `limit_tokens` can need: its last step starts at most
    /// one step in flight past the settled history.
    #[must_use]
    pub fn longest_capacity(&self, limit_tokens: u32) -> u32 {
        let step = self.lookahead.step_tokens();
        let start = limit_tokens.saturating_sub(1) + self.config.overlap_depth * step;
        self.lookahead.capacity(start, step)
    }

    /// Most pages of `group` that a sequence holds at once before it reaches `capacity_tokens`:
    /// what admission charges. Chunks in flight have not slid yet.
    #[must_use]
    pub fn charge(&self, group: &GroupGeometry, capacity_tokens: u32) -> u32 {
        let in_flight = 1 + self.config.overlap_depth;
        let step = self.config.chunk_tokens.max(self.lookahead.step_tokens()) * in_flight;
        group.retention.peak_pages(capacity_tokens, step, self.lookahead.extra_tokens)
    }

    /// Sequences that can hold pages at once (kv-cache-rules §1.8.1): with an outcome in flight a
    /// finished sequence still holds its pages while the next one enters.
    #[must_use]
    pub fn admissible_sequences(&self) -> u32 {
        self.config.max_batch * (1 + self.config.overlap_depth)
    }

    /// Refuses a request that can never run, by name; otherwise the most tokens it may reach.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn check_request(
        &self,
        request: u64,
        prompt_tokens: usize,
        max_new_tokens: u32,
    ) -> Result<u32, SubmitError> {
        let max_seq_len = self.config.max_seq_len;
        if prompt_tokens == 0 {
            return Err(SubmitError::EmptyPrompt { request });
        }
        if max_new_tokens == 0 {
            return Err(SubmitError::NoOutput { request });
        }
        let prompt_tokens = u32::try_from(prompt_tokens).unwrap_or(u32::MAX);
        if prompt_tokens >= max_seq_len {
            return Err(SubmitError::TooLong { request, prompt_tokens, max_seq_len });
        }
        let limit = prompt_tokens.saturating_add(max_new_tokens).min(max_seq_len);
        let capacity = self.longest_capacity(limit);
        for group in &self.groups {
            let needed_pages = self.charge(group, capacity);
            if needed_pages > group.pages {
                let (group, pages) = (group.name.clone(), group.pages);
                return Err(SubmitError::NeverFits { request, group, needed_pages, pages });
            }
        }
        Ok(limit)
    }

    /// Pages of a windowed group's floor: every admissible sequence's window plus one context
    /// chunk, with one page for misalignment (kv-cache-rules §1.8.1).
    #[must_use]
    pub fn window_floor_pages(&self, window_tokens: u32) -> u64 {
        let page = self.config.page_tokens;
        let window = window_pages(window_tokens, self.lookahead.headroom_tokens(), page);
        u64::from(self.admissible_sequences()) * u64::from(window)
            + u64::from(self.config.chunk_tokens.div_ceil(page))
            + 1
    }

    fn size_groups(&mut self) -> Result<(), ConfigError> {
        let sized: Vec<usize> =
            (0..self.groups.len()).filter(|&g| self.config.groups[g].pages.is_none()).collect();
        if sized.is_empty() {
            return Ok(());
        }
        let demands: Vec<Demand> = sized.iter().map(|&g| self.demand(&self.groups[g])).collect();
        for (&index, slots) in sized.iter().zip(slots_for_bytes(self.config.hot_bytes, &demands)?) {
            let group = &mut self.groups[index];
            group.pages = u32::try_from(slots).unwrap_or(u32::MAX) - 1 - group.dummy_pages;
        }
        Ok(())
    }

    /// A windowed draft group takes its floor and no more; the others share the rest by the bytes
    /// of a typical step.
    fn demand(&self, group: &GroupGeometry) -> Demand {
        let chunk = self.lookahead.capacity(0, self.config.chunk_tokens);
        let floor = match group.retention.window_tokens {
            Some(window) => self.window_floor_pages(window),
            None => u64::from(chunk.div_ceil(self.config.page_tokens)),
        };
        let typical = self.config.typical_seq_len.unwrap_or(2049).min(self.config.max_seq_len);
        let context = self.charge(group, chunk);
        let decode = self.charge(group, typical) * (self.config.max_batch - 1);
        let is_draft_window = group.owner == Owner::Draft
            && group.retention.window_tokens.is_some()
            && !is_broken(Fault::SplitByTokens);
        Demand {
            pool_bytes: group.pools.iter().map(Pool::slot_bytes).collect(),
            ratio: if is_draft_window {
                f64::MIN_POSITIVE
            } else {
                f64::from(context + decode) * group.page_bytes() as f64
            },
            min_slots: with_utilisation_room(floor) + 1 + u64::from(group.dummy_pages),
        }
    }
}

fn group(config: &Config, spec: &GroupSpec, lookahead: Lookahead) -> GroupGeometry {
    let (pools, buffers) = coalesce(&spec.layers, config.page_tokens);
    let default_policy = match (spec.owner, spec.window_tokens) {
        (Owner::Draft, Some(_)) => ReusePolicy::Optional,
        _ => ReusePolicy::Required,
    };
    let dummy_tokens = lookahead.capacity(0, lookahead.step_tokens());
    GroupGeometry {
        name: spec.name.clone(),
        owner: spec.owner,
        policy: spec.policy.unwrap_or(default_policy),
        retention: Retention {
            page_tokens: config.page_tokens,
            window_tokens: spec.window_tokens,
            sink_pages: spec.sink_tokens.div_ceil(config.page_tokens),
        },
        pools,
        buffers,
        pages: spec.pages.unwrap_or(0),
        dummy_pages: if config.graph_batches.is_empty() && !config.attention_dp {
            0
        } else {
            dummy_tokens.div_ceil(config.page_tokens)
        },
        base: 0,
    }
}

fn check_limits(config: &Config) -> Result<(), ConfigError> {
    let step = 1 + config.drafter.map_or(0, |d| d.draft_tokens);
    let bounds = [
        ("page_tokens", config.page_tokens, 1, 1 << 16),
        ("max_batch", config.max_batch, 1, u32::from(u16::MAX) - 1),
        ("token_budget", config.token_budget, 2 * step, 1 << 24),
        ("chunk_tokens", config.chunk_tokens, 1, config.token_budget),
        ("max_seq_len", config.max_seq_len, 2, 1 << 26),
        ("num_extra_kv_tokens", config.num_extra_kv_tokens, 0, 1 << 16),
        ("overlap_depth", config.overlap_depth, 0, 1),
        ("decode_share_percent", config.decode_share_percent, 1, 99),
        ("max_passed_over", config.max_passed_over, 1, u32::MAX),
        ("max_waiting", config.max_waiting, 1, 1 << 24),
        ("typical_seq_len", config.typical_seq_len.unwrap_or(1), 1, config.max_seq_len),
    ];
    for (field, value, least, most) in bounds {
        if value < least || value > most {
            return Err(ConfigError::new(field, value, format!("takes {least} to {most}")));
        }
    }
    let sorted = config.graph_batches.windows(2).all(|pair| pair[0] < pair[1]);
    let within = config.graph_batches.iter().all(|b| (1..=config.max_batch).contains(b));
    if !sorted || !within {
        let fix = format!("takes ascending sizes of 1 to max_batch = {}", config.max_batch);
        return Err(ConfigError::new("graph_batches", format!("{:?}", config.graph_batches), fix));
    }
    if config.groups.is_empty() || config.groups.len() > GROUPS_MAX {
        let fix = format!("takes 1 to {GROUPS_MAX} lifecycle groups");
        return Err(ConfigError::new("groups", format!("{} groups", config.groups.len()), fix));
    }
    if !config.groups.iter().any(|g| g.owner == Owner::Target) {
        return Err(ConfigError::new("groups", "no target group", "give the target a group"));
    }
    Ok(())
}

fn check_drafter(config: &Config) -> Result<u32, ConfigError> {
    let draft_group = config.groups.iter().position(|g| g.owner == Owner::Draft);
    let Some(Drafter { kind, draft_tokens, block_width, slots }) = config.drafter else {
        return match draft_group {
            Some(g) => {
                let fix = "needs a [drafter] section, or owner = \"target\"";
                Err(ConfigError::new(format!("groups[{g}].owner"), "draft", fix))
            }
            None => Ok(0),
        };
    };
    let least = match kind {
        DrafterKind::Dflash => draft_tokens + 1,
        DrafterKind::Dspark => draft_tokens,
    };
    if draft_tokens == 0 || draft_tokens > 255 {
        return Err(ConfigError::new("drafter.draft_tokens", draft_tokens, "takes 1 to 255"));
    }
    if slots.is_some_and(|slots| slots > config.max_batch) {
        let fix = format!("takes 0 to max_batch = {}", config.max_batch);
        return Err(ConfigError::new("drafter.slots", slots.unwrap_or_default(), fix));
    }
    if block_width < least || block_width > 1024 {
        let fix = format!("a {kind:?} drafter of {draft_tokens} drafts needs {least} to 1024");
        return Err(ConfigError::new("drafter.block_width", block_width, fix));
    }
    Ok(block_width)
}

fn check_group(config: &Config, index: usize, spec: &GroupSpec) -> Result<(), ConfigError> {
    let error = |field: &str, value: String, fix: &str| {
        Err(ConfigError::new(format!("groups[{index}].{field}"), value, fix))
    };
    if spec.name.is_empty() || config.groups[..index].iter().any(|g| g.name == spec.name) {
        return error("name", format!("{:?}", spec.name), "takes a name no other group has");
    }
    if spec.window_tokens == Some(0) {
        return error("window_tokens", "0".to_owned(), "takes at least 1, or leave it out");
    }
    if spec.sink_tokens > 0 && spec.window_tokens.is_none() {
        return error("sink_tokens", spec.sink_tokens.to_string(), "sinks need window_tokens");
    }
    if spec.pages == Some(0) {
        return error("pages", "0".to_owned(), "takes at least 1, or leave it out");
    }
    if spec.pages.is_none() && config.hot_bytes == 0 {
        let fix = "give hot_bytes, or pages for every group";
        return error("pages", "none".to_owned(), fix);
    }
    if spec.owner == Owner::Target && spec.policy.is_some_and(|p| p != ReusePolicy::Required) {
        let fix = "takes \"required\" for a target group: its content must be there";
        return error("policy", format!("{:?}", spec.policy), fix);
    }
    if spec.policy == Some(ReusePolicy::Optional) && spec.window_tokens.is_none() {
        return error("policy", "optional".to_owned(), "an optional group needs window_tokens");
    }
    let has_bytes = |l: &crate::LayerSpec| {
        l.count > 0 && !l.buffers.is_empty() && l.buffers.iter().all(|b| b.bytes_per_token > 0)
    };
    if spec.layers.is_empty() || !spec.layers.iter().all(has_bytes) {
        let fix = "takes layers of count > 0 with buffers of bytes_per_token > 0";
        return error("layers", format!("{} entries", spec.layers.len()), fix);
    }
    for (l, layer) in spec.layers.iter().enumerate() {
        for (b, buffer) in layer.buffers.iter().enumerate() {
            if layer.buffers[..b].iter().any(|other| other.role == buffer.role) {
                let fix = "a role names one buffer of a layer";
                return error(&format!("layers[{l}].buffers[{b}].role"), buffer.role.clone(), fix);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BufferSpec, LayerSpec};

    #[test]
    fn the_built_in_geometries_are_valid() {
        let m3 = Geometry::new(&Config::m3()).unwrap();
        assert_eq!(m3.lookahead, Lookahead { draft_tokens: 7, extra_tokens: 7 });
        assert_eq!(m3.groups[0].policy, ReusePolicy::Required);
        assert_eq!(m3.groups[1].policy, ReusePolicy::Optional);
        assert_eq!(m3.groups[0].pools[0].count, 2 * 61);
        assert_eq!(m3.groups[0].pools[1].count, 58);
        assert_eq!(m3.groups[1].page_bytes(), 128 * 20_480);
        Geometry::new(&Config::pair()).unwrap();
    }

    #[test]
    fn the_draft_group_takes_every_window_and_a_chunk_whatever_the_quota() {
        let mut config = Config::m3();
        for gib in [40, 80, 120] {
            config.hot_bytes = gib << 30;
            let m3 = Geometry::new(&config).unwrap();
            assert_eq!(m3.window_floor_pages(4096), 34 * 64 + 64 + 1);
            let floor = with_utilisation_room(2241) as u32;
            let slack = (32 << 20) / m3.groups[1].page_bytes() as u32 + 1;
            let pages = m3.groups[1].pages;
            assert!((floor..=floor + slack).contains(&pages), "{gib} GiB: {pages} pages");
            let used: u64 = m3.groups.iter().map(|g| u64::from(g.slots()) * g.page_bytes()).sum();
            assert!(used <= gib << 30 && used > (gib << 30) - (128 << 20), "{gib} GiB: {used}");
        }
    }

    #[test]
    fn draft_layers_never_change_the_targets_pools() {
        for draft_bytes in [512, 128] {
            let mut config = Config::m3();
            let kv = |b| vec![BufferSpec::new("key", b), BufferSpec::new("value", b)];
            config.groups[0].layers = vec![LayerSpec { count: 4, buffers: kv(128) }];
            config.groups[1].layers = vec![LayerSpec { count: 1, buffers: kv(draft_bytes) }];
            let both = Geometry::new(&config).unwrap();
            config.groups.truncate(1);
            let alone = Geometry::new(&config).unwrap();
            assert_eq!(both.groups[0].pools, alone.groups[0].pools);
            assert_eq!(both.groups[0].buffers, alone.groups[0].buffers);
            let pools = &both.groups[1].pools;
            assert_eq!((pools.len(), pools[0].count), (1, 2));
            assert_eq!(pools[0].single_bytes, u64::from(draft_bytes) * 128);
        }
    }

    #[test]
    fn the_extra_is_the_block_width_only_where_draft_layers_live() {
        let mut config = Config::m3();
        assert_eq!(Geometry::new(&config).unwrap().lookahead.extra_tokens, 7);
        config.groups.truncate(1);
        assert_eq!(Geometry::new(&config).unwrap().lookahead.extra_tokens, 6);
    }

    #[test]
    fn every_wrong_field_is_named_with_its_value() {
        type Edit = fn(&mut Config);
        let cases: [(&str, Edit); 14] = [
            ("page_tokens = 0", |c| c.page_tokens = 0),
            ("max_batch = 0", |c| c.max_batch = 0),
            ("token_budget = 15", |c| c.token_budget = 15),
            ("chunk_tokens = 8193", |c| c.chunk_tokens = 8193),
            ("overlap_depth = 2", |c| c.overlap_depth = 2),
            ("groups = 0 groups", |c| c.groups.clear()),
            ("drafter.block_width = 6", |c| {
                c.drafter.as_mut().unwrap().block_width = 6;
            }),
            ("groups[1].owner = draft", |c| c.drafter = None),
            ("groups[1].name = \"target\"", |c| c.groups[1].name = "target".into()),
            ("groups[1].window_tokens = 0", |c| c.groups[1].window_tokens = Some(0)),
            ("groups[0].sink_tokens = 4", |c| c.groups[0].sink_tokens = 4),
            ("groups[0].pages = 0", |c| c.groups[0].pages = Some(0)),
            ("graph_batches = [8, 4]", |c| c.graph_batches = vec![8, 4]),
            ("hot_bytes = 1073741824", |c| c.hot_bytes = 1 << 30),
        ];
        for (message, edit) in cases {
            let mut config = Config::m3();
            edit(&mut config);
            let error = Geometry::new(&config).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{message}: ")), "{error}");
        }
    }

    #[test]
    fn a_request_that_can_never_fit_is_refused_by_name() {
        let geometry = Geometry::new(&Config::small(64, &[None], 16)).unwrap();
        assert_eq!(geometry.check_request(1, 60, 4), Ok(64));
        let error = geometry.check_request(7, 2000, 48).unwrap_err();
        let expected = "request 7: needs 32 pages of group `group0`, which has 16: \
                        it can never run; shorten it or give the group more pages";
        assert_eq!(error.to_string(), expected);
        assert_eq!(geometry.check_request(8, 0, 4), Err(SubmitError::EmptyPrompt { request: 8 }));
    }
}
