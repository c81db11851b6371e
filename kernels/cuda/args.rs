//! Parameters of the kernels; `abi.h` is the twin of this file too.

use super::queue::Args;
use crate::abi::{Header, PageCopy, PieceCopy, RowMeta, TableDelta, TagRun};
use crate::{TAG_CHECK, TAG_SCRATCH, TAG_WRITE};
use bytemuck::{Pod, Zeroable};
use paceline_components::GUARD_SLOT;

/// A device address.
pub(super) type Address = u64;

/// Bytes a warp copies at a time.
pub(super) const CHUNK_BYTES: u32 = 8192;

/// Memory of one pool of one group.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Pool {
    pub base: Address,
    pub slot_bytes: u32,
    pub group: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct StepArgs {
    pub image: Address,
    pub tables: Address,
    pub rows: Address,
    pub columns: u32,
    pub rows_at: u32,
    pub rows_room: u32,
    pub deltas_at: u32,
    pub deltas_room: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PageArgs {
    pub copies: Address,
    pub pools: Address,
    pub count: u32,
    pub pools_count: u32,
    pub chunks: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceArgs {
    pub pieces: Address,
    pub from: Address,
    pub to: Address,
    pub count: u32,
    pub chunks: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct TagArgs {
    pub runs: Address,
    pub prefixes: Address,
    pub tables: Address,
    pub pools: Address,
    pub verdicts: Address,
    pub table_rows: u32,
    pub columns: u32,
    pub page_tokens: u32,
}

impl Args for StepArgs {}
impl Args for PageArgs {}
impl Args for PieceArgs {}
impl Args for TagArgs {}

/// What the sources take from the host: sizes, which `abi.h` asserts, and constants.
pub(super) fn macros() -> Vec<String> {
    let numbers = [
        ("HEADER_BYTES", size_of::<Header>()),
        ("TABLE_DELTA_BYTES", size_of::<TableDelta>()),
        ("PAGE_COPY_BYTES", size_of::<PageCopy>()),
        ("PIECE_COPY_BYTES", size_of::<PieceCopy>()),
        ("ROW_META_BYTES", size_of::<RowMeta>()),
        ("ROW_META_ROW_BYTE", std::mem::offset_of!(RowMeta, row)),
        ("TAG_RUN_BYTES", size_of::<TagRun>()),
        ("POOL_BYTES", size_of::<Pool>()),
        ("STEP_ARGS_BYTES", size_of::<StepArgs>()),
        ("PAGE_ARGS_BYTES", size_of::<PageArgs>()),
        ("PIECE_ARGS_BYTES", size_of::<PieceArgs>()),
        ("TAG_ARGS_BYTES", size_of::<TagArgs>()),
        ("CHUNK_BYTES", CHUNK_BYTES as usize),
        ("GUARD_SLOT", GUARD_SLOT as usize),
        ("TAG_WRITE", TAG_WRITE as usize),
        ("TAG_SCRATCH", TAG_SCRATCH as usize),
        ("TAG_CHECK", TAG_CHECK as usize),
        ("SCRATCH", crate::tags::SCRATCH as usize),
    ];
    numbers.iter().map(|(name, number)| format!("--define-macro={name}={number}u")).collect()
}
