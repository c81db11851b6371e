// Wide copies: pages inside their pools, and pieces of pages to and from staging.
//
// A copy is cut into chunks; a warp takes a few neighbouring chunks at a time, so that small pieces
// and large ones fill the device alike. The grid is persistent. Records come over the bus, a
// batch for each warp, and the next batch is on its way while one is copied.
#include "abi.h"

const u32 BATCH = 4;
const u32 IN_FLIGHT = 8;

template <class Record> __device__ Record from_lane(const Record& mine, u32 lane) {
    Record other;
#pragma unroll
    for (u32 word = 0; word < sizeof(Record) / 4; word++)
        ((u32*)&other)[word] = __shfl_sync(~0u, ((const u32*)&mine)[word], lane);
    return other;
}

// One lane's walk over the elements of equal runs, a warp's width at a time, without a division.
struct Walk {
    u64 at, step_bytes, wrap_bytes;
    u32 column, step_columns, columns;

    __device__ Walk(u64 base, u32 element, u32 columns, u32 element_bytes, u32 stride)
        : column(element % columns), step_columns(32 % columns), columns(columns) {
        at = base + (u64)(element / columns) * stride + (u64)column * element_bytes;
        step_bytes = (u64)(32 / columns) * stride + (u64)step_columns * element_bytes;
        wrap_bytes = stride - (u64)columns * element_bytes;
    }

    __device__ void step() {
        at += step_bytes;
        column += step_columns;
        if (column >= columns) {
            column -= columns;
            at += wrap_bytes;
        }
    }
};

// One chunk of one piece by one warp, several loads in flight for each lane.
template <class Element>
__device__ void copy_elements(u64 from, u64 to, const PieceCopy& piece, u32 chunk, u32 lane) {
    const u32 bytes = sizeof(Element);
    const u32 columns = piece.bytes / bytes;
    const u32 first = chunk * (CHUNK_BYTES / bytes);
    const u32 end = min(first + CHUNK_BYTES / bytes, columns * piece.runs);
    Walk load(from, first + lane, columns, bytes, piece.from_stride);
    Walk store(to, first + lane, columns, bytes, piece.to_stride);
    for (u32 element = first + lane; element < end; element += 32 * IN_FLIGHT) {
        Element values[IN_FLIGHT];
#pragma unroll
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            if (element + 32 * i < end) values[i] = *(const Element*)load.at;
            load.step();
        }
#pragma unroll
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            if (element + 32 * i < end) *(Element*)store.at = values[i];
            store.step();
        }
    }
}

// The widest element that divides addresses, sizes and strides.
__device__ void copy_chunk(u64 from, u64 to, const PieceCopy& piece, u32 chunk, u32 lane) {
    u32 bits = (u32)from | (u32)to | piece.bytes;
    if (piece.runs > 1) bits |= piece.from_stride | piece.to_stride;
    if (bits % 16 == 0)
        copy_elements<uint4>(from, to, piece, chunk, lane);
    else if (bits % 4 == 0)
        copy_elements<u32>(from, to, piece, chunk, lane);
    else
        copy_elements<u8>(from, to, piece, chunk, lane);
}

// Calls `copy(record, chunk)` with a whole warp for each chunk of each record.
template <class Record, class Copy>
__device__ void for_each_chunk(const Record* records, u32 count, u32 chunks, Copy copy) {
    const u32 lane = threadIdx.x % 32;
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const u32 warps = gridDim.x * blockDim.x / 32;
    const u32 units = count * chunks;
    const u32 batch = min(BATCH, (units + warps - 1) / warps);
    const u32 stride = warps * batch;
    Record next = {};
    u32 base = warp * batch;
    if (lane < batch && base + lane < units) next = records[(base + lane) / chunks];
    for (; base < units; base += stride) {
        const Record mine = next;
        const u32 ahead = base + stride + lane;
        if (lane < batch && ahead < units) next = records[ahead / chunks];
        for (u32 i = 0; i < batch && base + i < units; i++)
            copy(from_lane(mine, i), (base + i) % chunks);
    }
}

extern "C" __global__ void __launch_bounds__(256) copy_pages(const PageArgs args) {
    const u32 lane = threadIdx.x % 32;
    for_each_chunk(args.copies, args.count, args.chunks, [&](const PageCopy& copy, u32 chunk) {
        for (u32 p = 0; p < args.pools_count; p++) {
            const Pool pool = args.pools[p];
            if (pool.group != copy.group) continue;
            const u32 pool_chunks = (pool.slot_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
            if (chunk < pool_chunks) {
                const u64 from = pool.base + (u64)copy.from * pool.slot_bytes;
                const u64 to = pool.base + (u64)copy.to * pool.slot_bytes;
                const PieceCopy piece = {0, 0, pool.slot_bytes, 1, 0, 0};
                copy_chunk(from, to, piece, chunk, lane);
                break;
            }
            chunk -= pool_chunks;
        }
    });
}

extern "C" __global__ void __launch_bounds__(256) copy_pieces(const PieceArgs args) {
    const u32 lane = threadIdx.x % 32;
    for_each_chunk(args.pieces, args.count, args.chunks, [&](const PieceCopy& piece, u32 chunk) {
        copy_chunk(args.from + piece.from, args.to + piece.to, piece, chunk, lane);
    });
}
