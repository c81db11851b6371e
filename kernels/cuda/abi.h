// Twin of abi.rs and cuda/args.rs. The host passes the size of each of its records and its
// constants (CHUNK_BYTES, GUARD_SLOT, TAG_*, SCRATCH) as macros, so that the two cannot drift apart.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Header {
    u32 version, step_low, step_high, rows, deltas, copies, inputs;
};

struct __align__(16) TableDelta {
    u32 table, column, count, slot;
};

struct __align__(16) PageCopy {
    u32 group, from, to, tokens;
};

struct __align__(16) PieceCopy {
    u64 from, to;
    u32 bytes, runs, from_stride, to_stride;
};

struct RowMeta {
    u32 request_low, request_high, row, flags, start, start_bound, tokens, drafts, input, anchor;
    u32 slot, covered, context_first;
};

struct TagRun {
    u32 group, row, first, count, prefixes, kind;
};

// Memory of one pool of one group.
struct Pool {
    u64 base;
    u32 slot_bytes, group;
};

struct StepArgs {
    const u32* image;
    u32* tables;
    u32* rows;
    u32 columns, rows_at, rows_room, deltas_at, deltas_room;
};

struct PageArgs {
    const PageCopy* copies;
    const Pool* pools;
    u32 count, pools_count, chunks;
};

struct PieceArgs {
    const PieceCopy* pieces;
    u64 from, to;
    u32 count, chunks;
};

struct TagArgs {
    const TagRun* runs;
    const u64* prefixes;
    const u32* tables;
    const Pool* pools;
    u64* verdicts;
    u32 table_rows, columns, page_tokens;
};

static_assert(sizeof(Header) == HEADER_BYTES, "Header");
static_assert(sizeof(TableDelta) == TABLE_DELTA_BYTES, "TableDelta");
static_assert(sizeof(PageCopy) == PAGE_COPY_BYTES, "PageCopy");
static_assert(sizeof(PieceCopy) == PIECE_COPY_BYTES, "PieceCopy");
static_assert(sizeof(RowMeta) == ROW_META_BYTES, "RowMeta");
static_assert(sizeof(TagRun) == TAG_RUN_BYTES, "TagRun");
static_assert(sizeof(Pool) == POOL_BYTES, "Pool");
static_assert(sizeof(StepArgs) == STEP_ARGS_BYTES, "StepArgs");
static_assert(sizeof(PageArgs) == PAGE_ARGS_BYTES, "PageArgs");
static_assert(sizeof(PieceArgs) == PIECE_ARGS_BYTES, "PieceArgs");
static_assert(sizeof(TagArgs) == TAG_ARGS_BYTES, "TagArgs");
