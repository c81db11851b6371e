// The fused step: block-table deltas and row records, read straight from the mapped step buffer.
//
// A trip over the bus costs about as much as the rest of the kernel, so the first records are
// fetched together with the header that says how many there are; what a step did not fill is
// dropped afterwards.
#include "abi.h"

const u32 EARLY_DELTAS = 256;

// Applies one record for each lane. A run of cells is written by the whole warp.
__device__ void apply(u32* tables, u32 columns, const TableDelta& delta, u32 lane) {
    const u64 first = (u64)delta.table * columns + delta.column;
    if (delta.count == 1) tables[first] = delta.slot;
    for (u32 runs = __ballot_sync(~0u, delta.count > 1); runs; runs &= runs - 1) {
        const u32 owner = __ffs(runs) - 1;
        const u32 count = __shfl_sync(~0u, delta.count, owner);
        const u32 slot = __shfl_sync(~0u, delta.slot, owner);
        u32* cells = tables + __shfl_sync(~0u, first, owner);
        for (u32 cell = lane; cell < count; cell += 32) cells[cell] = slot;
    }
}

extern "C" __global__ void __launch_bounds__(256) step(const StepArgs args) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 threads = gridDim.x * blockDim.x;
    const u32 lane = threadIdx.x % 32;
    const Header* header = (const Header*)args.image;
    const TableDelta* deltas = (const TableDelta*)(args.image + args.deltas_at);
    const u32* words = args.image + args.rows_at;
    const u32 ROW_WORDS = sizeof(RowMeta) / 4;
    const u32 ROW_AT = ROW_META_ROW_BYTE / 4;

    const bool is_early = thread < min(EARLY_DELTAS, args.deltas_room);
    TableDelta delta = {};
    if (is_early) delta = deltas[thread];
    u32 word = 0, row = 0;
    if (thread < args.rows_room * ROW_WORDS) {
        word = words[thread];
        row = words[thread / ROW_WORDS * ROW_WORDS + ROW_AT];
    }
    const u32 deltas_count = header->deltas;
    const u32 words_count = header->rows * ROW_WORDS;

    if (!is_early && thread < deltas_count) delta = deltas[thread];
    for (u32 index = thread; index - lane < deltas_count;) {
        if (index >= deltas_count) delta.count = 0;
        apply(args.tables, args.columns, delta, lane);
        index += threads;
        if (index < deltas_count) delta = deltas[index];
    }
    for (u32 index = thread; index < words_count;) {
        args.rows[row * ROW_WORDS + index % ROW_WORDS] = word;
        index += threads;
        if (index < words_count) {
            word = words[index];
            row = words[index / ROW_WORDS * ROW_WORDS + ROW_AT];
        }
    }
}
