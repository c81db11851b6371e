//! Records of the step buffer. `cuda/abi.h` is the twin of this file; sizes are asserted in both.

use bytemuck::{Pod, Zeroable};

/// First words of a step buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Header {
    /// Layout of the buffer, [`ABI_VERSION`].
    pub version: u32,
    /// Step number, low word.
    pub step_low: u32,
    /// Step number, high word.
    pub step_high: u32,
    /// Records in the rows section.
    pub rows: u32,
    /// Records in the table section.
    pub deltas: u32,
    /// Records in the page-copy section.
    pub copies: u32,
    /// Words in the input section.
    pub inputs: u32,
}

/// Version of the layout.
pub const ABI_VERSION: u32 = 1;

/// `count` cells of one block table, from `column` on, now name `slot`.
///
/// No cell is named twice in a step, so records may be applied in any order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TableDelta {
    /// `group * rows + row`.
    pub table: u32,
    /// First column.
    pub column: u32,
    /// Cells.
    pub count: u32,
    /// Slot in the group.
    pub slot: u32,
}

/// One page is copied to another of its group, in every pool. Sources are read before any row of
/// the step writes; destinations are written once.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct PageCopy {
    /// Group.
    pub group: u32,
    /// Slot to copy from.
    pub from: u32,
    /// Slot to copy to.
    pub to: u32,
    /// Leading tokens of the page that matter.
    pub tokens: u32,
}

/// A piece of memory is copied between a pool and staging: `runs` runs of `bytes`, each a stride
/// after the one before. One run is a plain piece; many are a head slice of a page, the slice of
/// each token's bytes. Offsets are in bytes from the bases.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct PieceCopy {
    /// Offset of the first run at the source.
    pub from: u64,
    /// Offset of the first run at the destination.
    pub to: u64,
    /// Bytes of a run.
    pub bytes: u32,
    /// Runs; all together take less than 2 GiB.
    pub runs: u32,
    /// Bytes from one run to the next at the source.
    pub from_stride: u32,
    /// Bytes from one run to the next at the destination.
    pub to_stride: u32,
}

/// Content tags of `count` positions of a row are written or checked through the block table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TagRun {
    /// Group.
    pub group: u32,
    /// Batch row.
    pub row: u32,
    /// First position.
    pub first: u32,
    /// Positions.
    pub count: u32,
    /// Index of the first position's prefix hash.
    pub prefixes: u32,
    /// [`TAG_WRITE`], [`TAG_SCRATCH`] or [`TAG_CHECK`].
    pub kind: u32,
}

/// The run writes the tags of its prefixes.
pub const TAG_WRITE: u32 = 0;
/// The run writes scratch, which nobody may read.
pub const TAG_SCRATCH: u32 = 1;
/// The run checks that its positions hold the tags of its prefixes.
pub const TAG_CHECK: u32 = 2;

/// One row of the step: everything a target or drafter kernel needs beside the block tables.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct RowMeta {
    /// Request id, low word.
    pub request_low: u32,
    /// Request id, high word.
    pub request_high: u32,
    /// Batch row: the block-table row in every group.
    pub row: u32,
    /// [`FLAG_PREFILL`] and the others.
    pub flags: u32,
    /// Settled history in tokens; with an outcome in flight the device knows the true length,
    /// which lies in `start ..= start_bound`.
    pub start: u32,
    /// Upper bound of the position of the first token computed.
    pub start_bound: u32,
    /// Tokens computed: the chunk, or the anchor and its drafts.
    pub tokens: u32,
    /// Drafts among them.
    pub drafts: u32,
    /// First word of the chunk's token ids in the input section.
    pub input: u32,
    /// The anchor's token id, or [`ON_DEVICE`] while the step that emits it is in flight.
    pub anchor: u32,
    /// Drafter slot, or `NO_SLOT`: the row drafts nothing.
    pub slot: u32,
    /// Positions backed by pages in every group.
    pub covered: u32,
    /// First position whose drafter context was written or claimed: a drafter reads none before.
    pub context_first: u32,
}

/// The row computes a chunk of its prompt.
pub const FLAG_PREFILL: u32 = 1;
/// The chunk ends the prompt: the row emits its next token.
pub const FLAG_LAST_CHUNK: u32 = 2;
/// First step of this binding: nothing the device remembers of the row holds.
pub const FLAG_BOUND: u32 = 4;
/// The row only pads the batch: dummy slot, dummy pages, nothing is emitted.
pub const FLAG_DUMMY: u32 = 8;

/// The drafter slot is new to the row: its context length is the position of the row's first token,
/// whatever it was for others before.
pub const FLAG_SEED: u32 = 16;

/// The token id is known to the device only.
pub const ON_DEVICE: u32 = u32::MAX;

const _: () = assert!(size_of::<Header>() == 28);
const _: () = assert!(size_of::<TableDelta>() == 16);
const _: () = assert!(size_of::<PageCopy>() == 16);
const _: () = assert!(size_of::<PieceCopy>() == 32);
const _: () = assert!(size_of::<TagRun>() == 24);
const _: () = assert!(size_of::<RowMeta>() == 52);

impl PieceCopy {
    /// The piece the other way round.
    #[must_use]
    pub fn back(&self) -> Self {
        let Self { from, to, from_stride, to_stride, .. } = *self;
        Self { from: to, to: from, from_stride: to_stride, to_stride: from_stride, ..*self }
    }

    /// Ends of the piece at the source and at the destination.
    #[must_use]
    pub fn ends(&self) -> (u64, u64) {
        let last = u64::from(self.runs.max(1) - 1);
        let end = |at: u64, stride: u32| at + last * u64::from(stride) + u64::from(self.bytes);
        (end(self.from, self.from_stride), end(self.to, self.to_stride))
    }
}

impl RowMeta {
    /// The request id.
    #[must_use]
    pub fn request(&self) -> u64 {
        u64::from(self.request_high) << 32 | u64::from(self.request_low)
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether the row verifies drafts of a live request.
    #[must_use]
    pub fn is_decode(&self) -> bool {
        !self.has(FLAG_PREFILL) && !self.has(FLAG_DUMMY)
    }

    /// Fewest and most tokens the row emits.
    #[must_use]
    pub fn emits(&self) -> (u32, u32) {
        if self.has(FLAG_DUMMY) {
            (0, 0)
        } else if self.has(FLAG_PREFILL) {
            let last = u32::from(self.has(FLAG_LAST_CHUNK));
            (last, last)
        } else {
            (1, self.tokens)
        }
    }
}
