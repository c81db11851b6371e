// What the deltas replace, for the benchmark: every step one whole table for each layer, turned
// from page ids into the layer's own kernel page indices.
#include "abi.h"

struct ConvertArgs {
    const u32* from;
    u32* to;
    u32 cells, layers, from_layers;
};

extern "C" __global__ void __launch_bounds__(256) convert_tables(const ConvertArgs args) {
    const u32 threads = gridDim.x * blockDim.x;
    for (u32 cell = blockIdx.x * blockDim.x + threadIdx.x; cell < args.cells; cell += threads)
        for (u32 layer = 0; layer < args.layers; layer++) {
            const u32 page = args.from[(u64)(layer % args.from_layers) * args.cells + cell];
            args.to[(u64)layer * args.cells + cell] = page * args.layers + layer;
        }
}
