//! The model's K/V rows, found as a kernel finds them: block table, slot, pool, offset.

use super::arm::PromptRows;
use crate::engine::EngineError;
use crate::engine::pair::{Buffer, Kind, KvPages, Owner as Side};
use crate::{Geometry, Owner};
use paceline_components::GUARD_SLOT;
use paceline_kernels::{AccessError, HostDevice};
use std::sync::OnceLock;

/// Where the buffers of the pair lie in the pools of a geometry.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    page_tokens: usize,
    /// Target, then drafter.
    sides: [Vec<BufferWords>; 2],
}

/// Place of one layer's keys or values.
#[derive(Clone, Copy, Debug, Default)]
struct BufferWords {
    group: u32,
    pool: usize,
    /// Words from one slot to the next.
    slot_words: usize,
    /// First word within a slot.
    first_word: usize,
    /// Words of a page.
    page_words: usize,
}

impl Layout {
    /// Finds every buffer, or says which one the geometry lacks.
    pub(super) fn new(
        geometry: &Geometry,
        layers: [usize; 2],
        row_bytes: usize,
    ) -> Result<Self, String> {
        let page_tokens = geometry.config.page_tokens as usize;
        let sides = [(Owner::Target, layers[0]), (Owner::Draft, layers[1])];
        let [target, draft] = sides.map(|(owner, layers)| {
            let mut found = Vec::new();
            for (index, group) in geometry.groups.iter().enumerate() {
                if group.owner != owner {
                    continue;
                }
                for place in &group.buffers {
                    let pool = &group.pools[place.pool];
                    if pool.single_bytes as usize != row_bytes * page_tokens {
                        continue;
                    }
                    found.push(BufferWords {
                        group: index as u32,
                        pool: place.pool,
                        slot_words: pool.slot_bytes() as usize / 4,
                        first_word: place.byte_offset(pool, 0) as usize / 4,
                        page_words: pool.single_bytes as usize / 4,
                    });
                }
            }
            // Key and value of each layer, in model order.
            if found.len() == 2 * layers {
                return Ok(found);
            }
            Err(format!(
                "the geometry has {} buffers of {row_bytes} bytes a token for {owner:?} layers, \
                 and the pair needs {}: use the geometry `pair`",
                found.len(),
                2 * layers
            ))
        });
        Ok(Self { page_tokens, sides: [target?, draft?] })
    }

    fn of(&self, buffer: Buffer) -> &BufferWords {
        let side = &self.sides[usize::from(buffer.owner == Side::Draft)];
        &side[2 * buffer.layer + usize::from(buffer.kind == Kind::Value)]
    }
}

/// Pages of a device as the model sees them. A wrong access lands on the guard slot, which belongs
/// to nobody, and is reported when the step is done.
pub(super) struct DevicePages<'a> {
    pub device: &'a mut HostDevice,
    pub layout: &'a Layout,
    /// By batch row: what a faulty transfer would have left of the prompt's context rows.
    pub prompt_rows: &'a [Option<PromptRows>],
    pub error: OnceLock<AccessError>,
}

impl DevicePages<'_> {
    /// The first wrong access since, if there was one.
    pub(super) fn finish(self) -> Result<(), EngineError> {
        self.error.into_inner().map_or(Ok(()), |error| Err(EngineError(error.to_string())))
    }

    fn words(&self, place: &BufferWords, slot: u32, position: usize) -> std::ops::Range<usize> {
        let page = slot as usize * place.slot_words + place.first_word;
        let row_words = place.page_words / self.layout.page_tokens;
        page + position % self.layout.page_tokens * row_words..page + place.page_words
    }
}

impl KvPages for DevicePages<'_> {
    fn rows(&self, sequence: usize, buffer: Buffer, position: usize) -> &[f32] {
        if buffer.owner == Side::Draft
            && let Some(rows) = self.prompt_rows.get(sequence).and_then(Option::as_ref)
            && let Some(rows) = rows.from(buffer, position)
        {
            return rows;
        }
        let place = self.layout.of(buffer);
        let (group, row, position_tokens) = (place.group, sequence as u32, position as u32);
        let slot = self.device.slot_to_read(group, row, position_tokens).unwrap_or_else(|error| {
            _ = self.error.set(error);
            GUARD_SLOT
        });
        bytemuck::cast_slice(
            &self.device.pool(group, place.pool)[self.words(place, slot, position)],
        )
    }

    fn rows_mut(&mut self, sequence: usize, buffer: Buffer, position: usize) -> &mut [f32] {
        let place = self.layout.of(buffer);
        let (group, row, position_tokens) = (place.group, sequence as u32, position as u32);
        let slot = self.device.slot_to_write(group, row, position_tokens).unwrap_or_else(|error| {
            _ = self.error.set(error);
            GUARD_SLOT
        });
        let words = self.words(place, slot, position);
        bytemuck::cast_slice_mut(&mut self.device.pool_mut(group, place.pool)[words])
    }
}
