// Content tags through the block table; twin of tags.rs and of the host device's access checks.
#include "abi.h"

__device__ u64 mix(u64 x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
    return x ^ x >> 32;
}

__device__ u64 tag(u32 group, u64 prefix, u32 position) {
    return mix(prefix ^ (u64)group << 32 ^ position) | 1;
}

// Runs blockIdx.x of the list; blocks in y share the positions of a run. A verdict is the first
// wrong position and the slot found there.
extern "C" __global__ void __launch_bounds__(256) run_tags(const TagArgs args) {
    const TagRun run = args.runs[blockIdx.x];
    const u32* table = args.tables + ((u64)run.group * args.table_rows + run.row) * args.columns;
    u64* tags = (u64*)args.pools[run.group].base;
    const u32 threads = gridDim.y * blockDim.x;
    for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < run.count; i += threads) {
        const u32 position = run.first + i;
        const u32 column = position / args.page_tokens;
        const u32 slot = column < args.columns ? table[column] : GUARD_SLOT;
        u64* cell = tags + (u64)slot * args.page_tokens + position % args.page_tokens;
        u64 content = SCRATCH;
        if (run.kind != TAG_SCRATCH) content = tag(run.group, args.prefixes[run.prefixes + i], position);
        bool is_wrong = slot == GUARD_SLOT;
        if (run.kind == TAG_CHECK)
            is_wrong = is_wrong || *cell != content;
        else if (!is_wrong)
            *cell = content;
        if (is_wrong) atomicMin(args.verdicts + blockIdx.x, (u64)position << 32 | slot);
    }
}
