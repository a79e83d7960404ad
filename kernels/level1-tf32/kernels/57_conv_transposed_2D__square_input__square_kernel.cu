// Transposed convolution in 2-D in single precision
//
// Recipe: convolution
// Strategy:
//   async-copy-pipeline(stages=3)
//   implicit-gemm-offsets
//   launch-bounds(blocks=2)
//   shared-tile(block_k=16, block_m=64, block_n=256)
//   tensor-cores
//   warp-tile(warp_m=32, warp_n=64)
// Written for 8x64x1024x1024:float32, 64x64x3x3:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

// The convolution, in three dimensions; those that it does not have are 1.
constexpr int kGroups = 1;
constexpr int kKernelD = 1, kStrideD = 1, kPadD = 0, kDilationD = 1;
constexpr int kKernelH = 3, kStrideH = 1, kPadH = 0, kDilationH = 1;
constexpr int kKernelW = 3, kStrideW = 1, kPadW = 0, kDilationW = 1;
constexpr int kTaps = kKernelD * kKernelH * kKernelW;

// What a call decides.
struct Sizes {
    int batch, in_channels, out_channels;
    int in_d, in_h, in_w;
    int out_d, out_h, out_w;

    __host__ __device__ int in_per_group() const { return in_channels / kGroups; }
    __host__ __device__ int out_per_group() const { return out_channels / kGroups; }
    __host__ __device__ int64_t in_plane() const { return int64_t(in_d) * in_h * in_w; }
    __host__ __device__ int64_t out_plane() const { return int64_t(out_d) * out_h * out_w; }
};

__device__ __forceinline__ bool inside(int place, int size) { return unsigned(place) < unsigned(size); }

constexpr int kBlockM = 64;   // a block computes kBlockM channels of the result
constexpr int kBlockN = 256;  // at kBlockN places, kBlockK products at a time:
constexpr int kBlockK = 16;   // each is an input channel and a tap, taps changing first
constexpr int kWarpM = 32;    // a warp has kWarpM x kWarpN of the results
constexpr int kWarpN = 64;
constexpr int kWarpsN = kBlockN / kWarpN;
constexpr int kThreads = kWarpsN * (kBlockM / kWarpM) * 32;
constexpr int kStages = 3;    // tiles that are on their way or in use
constexpr int kRowX = kBlockN + 8;      // rows in shared memory, padded against bank conflicts
constexpr int kRowW = kBlockK + 4;
constexpr int kTile = kBlockK * kRowX + kBlockM * kRowW;
constexpr int kPanel = 576;    // products whose places are in the table at a time

// Results at places p, p + kPhases, p + 2 * kPhases, ... of an axis are a phase: they use the same taps, of which
// the j-th is number first + j * kTapStep and, for the q-th place, reads the input at q * kMove + start + j * kNext.
constexpr int kPhasesD = 1, kTapStepD = 1, kMoveD = 1, kNextD = -1;
constexpr int kPhasesH = 1, kTapStepH = 1, kMoveH = 1, kNextH = -1;
constexpr int kPhasesW = 1, kTapStepW = 1, kMoveW = 1, kNextW = -1;

struct Phase {
    int taps, first, start;
};

__device__ __forceinline__ constexpr Phase phase_d(int p) {
    return {1, 0, 0};
}

__device__ __forceinline__ constexpr Phase phase_h(int p) {
    return {3, 0, 0};
}

__device__ __forceinline__ constexpr Phase phase_w(int p) {
    return {3, 0, 0};
}

// Bits that say which taps of an axis read inside of the input. A place has them for all its taps, and a product needs
// the three of its tap; one more is set for every place that exists, and products past the last need what no place has.
constexpr int kBitH = kKernelD, kBitW = kKernelD + kKernelH;
constexpr unsigned kExists = 1u << 31, kNever = 1u << 30;

template <int Next>
__device__ __forceinline__ unsigned taps_inside(int first, int taps, int size) {
    unsigned bits = 0;
    for (int j = 0; j < taps; ++j) bits |= unsigned(inside(first + j * Next, size)) << j;
    return bits;
}

// Of one product: how far from a place's first input its own is, which bits it needs, where its weight is.
struct Product {
    int away;
    unsigned need;
    int weight;
};

struct Window {
    Phase d, h, w;
    int in_h, in_w, plane, depth, weight_step;

    __device__ __forceinline__ Product product(int k) const {
        const int taps = d.taps * h.taps * w.taps;
        const int channel = k / taps;
        const int tap = k - channel * taps;
        const int row = tap / w.taps;
        const int a = row / h.taps;
        const int b = row - a * h.taps;
        const int e = tap - row * w.taps;
        Product p;
        p.away = channel * plane + (a * kNextD * in_h + b * kNextH) * in_w + e * kNextW;
        p.need = k < depth ? kExists | 1u << a | 1u << (kBitH + b) | 1u << (kBitW + e) : kNever;
        const int row_number = (d.first + a * kTapStepD) * kKernelH + h.first + b * kTapStepH;
        p.weight = channel * weight_step + row_number * kKernelW + w.first + e * kTapStepW;
        return p;
    }
};

// copy_async: Bytes (4, 8 or 16) from global to shared memory without a detour through registers; zeros when not inside.
// The address must be a valid one even then, and both must be multiples of Bytes.
template <int Bytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool inside) {
    const uint32_t to = uint32_t(__cvta_generic_to_shared(shared));
    const int bytes = inside ? Bytes : 0;
    if constexpr (Bytes == 16) {  // .cg keeps the data out of L1
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(global), "n"(Bytes), "r"(bytes) : "memory");
    }
}

// All copies since the last commit form a group; wait until at most Left groups are on their way, this thread's only.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

template <int Left>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(Left) : "memory");
}

// mma_tf32: c += a b for a 16 x 8 block of results and 8 inner steps; factors are tf32, sums float32.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// round_tf32: the nearest number of tf32, which keeps 10 bits of the mantissa.
__device__ __forceinline__ uint32_t round_tf32(float x) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(x));
    return rounded;
}

// The result as a product of matrices, weight x input, whose second factor is gathered on the way to shared memory.
__global__ void __launch_bounds__(kThreads, 2)
convolution(const float* __restrict__ x, const float* __restrict__ weight,
            float* __restrict__ y, Sizes sizes) {
    extern __shared__ __align__(16) float tiles[];  // per stage: inputs, products by places; weights, channels by products
    __shared__ int64_t out_at[kBlockN];  // where the results of a place go, or -1
    __shared__ int2 table[kPanel];  // of the products of a panel: away and need
    __shared__ int weight_at[kPanel];

    // channels change first from block to block, so that blocks which run together read the same inputs
    const int out_per_group = sizes.out_per_group();
    const int tiles_m = (out_per_group + kBlockM - 1) / kBlockM;
    int block = blockIdx.x;
    const int channel0 = block % tiles_m * kBlockM;
    block /= tiles_m;
    const int group = block % kGroups;
    block /= kGroups;
    constexpr int start_d = 0, start_h = 0;
    const int place0 = block * kBlockN;

    Window window;
    window.d = phase_d(start_d);
    window.h = phase_h(start_h);
    window.in_h = sizes.in_h;
    window.in_w = sizes.in_w;
    window.plane = int(sizes.in_plane());
    window.weight_step = out_per_group * kTaps;
    const int in_per_group = sizes.in_per_group();

    // places that this thread loads: their image's inputs, and their numbers along the axes
    constexpr int kColumns = kBlockN > kThreads ? kBlockN / kThreads : 1;
    constexpr int kRows = kThreads > kBlockN ? kThreads / kBlockN : 1;
    const int row_x = threadIdx.x / kBlockN;
    const int column_x = threadIdx.x % kBlockN;
    const int places_w = (sizes.out_w + kPhasesW - 1) / kPhasesW;
    const int places_h = (sizes.out_h + kPhasesH - 1) / kPhasesH;
    const int places_d = (sizes.out_d + kPhasesD - 1) / kPhasesD;
    const float* image_at[kColumns];
    int at_d[kColumns], at_h[kColumns], at_w[kColumns];
    bool exists[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        int place = place0 + column_x + c * kThreads;
        at_w[c] = place % places_w;
        place /= places_w;
        at_h[c] = place % places_h;
        place /= places_h;
        at_d[c] = place % places_d;
        const int image = place / places_d;
        const int d = start_d + at_d[c] * kPhasesD, h = start_h + at_h[c] * kPhasesH, w = at_w[c] * kPhasesW;
        exists[c] = image < sizes.batch && d < sizes.out_d && h < sizes.out_h;
        image_at[c] = x + (int64_t(exists[c] ? image : 0) * sizes.in_channels + int64_t(group) * in_per_group) * window.plane;
        if (row_x == 0) {
            const int64_t pixel = (int64_t(d) * sizes.out_h + h) * sizes.out_w + w;
            const int64_t at = int64_t(image) * sizes.out_channels * sizes.out_plane() + pixel;
            out_at[column_x + c * kThreads] = exists[c] ? at : -1;
        }
    }
    const float* const weights = weight + int64_t(group) * in_per_group * out_per_group * kTaps;
    const int channel_step = kTaps;

    constexpr int start_w = 0;
    window.w = phase_w(start_w);
    window.depth = in_per_group * window.d.taps * window.h.taps * window.w.taps;
    const float* from[kColumns];  // the input of a place's first tap
    unsigned have[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        const int z = at_d[c] * kMoveD + window.d.start;
        const int v = at_h[c] * kMoveH + window.h.start;
        const int u = at_w[c] * kMoveW + window.w.start;
        from[c] = image_at[c] + (z * sizes.in_h + v) * sizes.in_w + u;
        have[c] = kExists | taps_inside<kNextD>(z, window.d.taps, sizes.in_d);
        have[c] |= taps_inside<kNextH>(v, window.h.taps, sizes.in_h) << kBitH;
        have[c] |= taps_inside<kNextW>(u, window.w.taps, sizes.in_w) << kBitW;
        if (!exists[c]) have[c] = 0;
    }

    const auto fetch = [&](int k0, int first, float* tile) {  // the products from k0 on; the table begins with `first`
        float* const tile_w = tile + kBlockK * kRowX;
        constexpr int kOwn = kBlockK / kRows;  // rows of inputs that a thread loads
#pragma unroll
        for (int r = 0; r < kOwn; ++r) {
            const int row = row_x * kOwn + r;
            const int2 entry = table[k0 - first + row];
            const int away = entry.x;
            const unsigned need = unsigned(entry.y);
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
                const bool ok = (have[c] & need) == need;
                float* to = tile + row * kRowX + column_x + c * kThreads;
                copy_async<4>(to, from[c] + away, ok);  // reads nothing unless ok, so that the address does not matter then
            }
        }
        constexpr int kRowsW = kThreads / kBlockK;
        const int column = threadIdx.x % kBlockK;
        const int at = weight_at[k0 - first + column];
        const bool counts = k0 + column < window.depth;
#pragma unroll
        for (int r = 0; r < (kBlockM + kRowsW - 1) / kRowsW; ++r) {
            const int row = threadIdx.x / kBlockK + r * kRowsW;
            if (kBlockM % kRowsW != 0 && row >= kBlockM) continue;
            const bool ok = counts && channel0 + row < out_per_group;
            const float* source = weights + (ok ? (channel0 + row) * channel_step + at : 0);
            copy_async<4>(tile_w + row * kRowW + column, source, ok);
        }
    };

    const int lane_group = threadIdx.x % 32 / 4;
    const int lane_quad = threadIdx.x % 4;
    const int warp_n = threadIdx.x / 32 % kWarpsN * kWarpN;
    const int warp_m = threadIdx.x / 32 / kWarpsN * kWarpM;
    constexpr int kTilesN = kWarpN / 16;
    constexpr int kTilesM = kWarpM / 8;
    float sums[kTilesN][kTilesM][4] = {};
    const auto multiply = [&](const float* tile) {
        const float* const tile_w = tile + kBlockK * kRowX;
#pragma unroll
        for (int k = 0; k < kBlockK; k += 8) {
            uint32_t b[kTilesM][2];
#pragma unroll
            for (int j = 0; j < kTilesM; ++j) {
                const float* at = tile_w + (warp_m + j * 8 + lane_group) * kRowW + k + lane_quad;
                b[j][0] = round_tf32(at[0]);
                b[j][1] = round_tf32(at[4]);
            }
#pragma unroll
            for (int i = 0; i < kTilesN; ++i) {
                const float* at = tile + (k + lane_quad) * kRowX + warp_n + i * 16 + lane_group;
                uint32_t a[4];
                a[0] = round_tf32(at[0]);
                a[1] = round_tf32(at[8]);
                a[2] = round_tf32(at[4 * kRowX]);
                a[3] = round_tf32(at[4 * kRowX + 8]);
#pragma unroll
                for (int j = 0; j < kTilesM; ++j) mma_tf32(sums[i][j], a, b[j]);
            }
        }
    };
    const auto visit = [&](const auto& finish) {  // all results of this thread
#pragma unroll
        for (int i = 0; i < kTilesN; ++i) {
#pragma unroll
            for (int j = 0; j < kTilesM; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    finish(warp_m + j * 8 + lane_quad * 2 + e % 2, warp_n + i * 16 + lane_group + e / 2 * 8,
                           sums[i][j][e]);
                }
            }
        }
    };

    for (int first = 0; first < window.depth; first += kPanel) {
        const int end = min(first + kPanel, window.depth);
        __syncthreads();  // nobody reads the table any more
        for (int k = threadIdx.x; first + k < end + kBlockK - 1 && k < kPanel; k += kThreads) {  // whole steps
            const Product p = window.product(first + k);
            table[k] = make_int2(p.away, int(p.need));
            weight_at[k] = p.weight;
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < kStages - 1; ++s) {
            if (first + s * kBlockK < end) fetch(first + s * kBlockK, first, tiles + s * kTile);
            commit_copies();
        }
        int slot = 0;
        for (int k0 = first; k0 < end; k0 += kBlockK) {
            wait_for_copies<kStages - 2>();
            __syncthreads();  // this step's tile is complete, and the last step's is free
            const int next = k0 + (kStages - 1) * kBlockK;
            if (next < end) fetch(next, first, tiles + (slot == 0 ? kStages - 1 : slot - 1) * kTile);
            commit_copies();
            multiply(tiles + slot * kTile);
            slot = slot == kStages - 1 ? 0 : slot + 1;
        }
    }

    // the results of this block
    const auto index_of = [&](int channel, int place) {  // of a result, or -1
        const int64_t at = out_at[place];
        if (at < 0 || channel0 + channel >= out_per_group) return int64_t(-1);
        return at + (group * out_per_group + channel0 + channel) * sizes.out_plane() + start_w;
    };
    const auto store = [&](int channel, int64_t index, float sum) {
        y[index] = sum;
    };
    visit([&](int channel, int place, float sum) {
        const int64_t index = index_of(channel, place);
        if (index >= 0) store(channel, index, sum);
    });
}

}  // namespace

torch::Tensor forward(torch::Tensor x, torch::Tensor weight) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 4, "x must have 4 dimensions");
    TORCH_CHECK(weight.is_cuda(), "weight must be on a CUDA device");
    TORCH_CHECK(weight.scalar_type() == torch::kFloat32, "weight must be float32");
    TORCH_CHECK(weight.is_contiguous(), "weight must be contiguous");
    TORCH_CHECK(weight.dim() == 4, "weight must have 4 dimensions");
    TORCH_CHECK(weight.size(2) == kKernelH, "the kernel is written for another window");
    TORCH_CHECK(weight.size(3) == kKernelW, "the kernel is written for another window");
    const int64_t out_channels = weight.size(1) * kGroups;
    TORCH_CHECK(x.size(1) == weight.size(0) && x.size(1) % kGroups == 0, "the channels of x and weight must agree");
    const int64_t in_d = 1, out_d = 1;
    const int64_t in_h = x.size(2);
    const int64_t reach_h = kDilationH * (kKernelH - 1) + 1;  // of the window
    const int64_t out_h = (in_h - 1) * kStrideH + reach_h;
    const int64_t in_w = x.size(3);
    const int64_t reach_w = kDilationW * (kKernelW - 1) + 1;  // of the window
    const int64_t out_w = (in_w - 1) * kStrideW + reach_w;
    TORCH_CHECK(in_h > 0 && out_h > 0, "the window is larger than x");
    TORCH_CHECK(in_w > 0 && out_w > 0, "the window is larger than x");
    auto y = torch::empty({x.size(0), out_channels, out_h, out_w}, x.options());
    if (y.numel() == 0) return y;
    // a group of channels of one image, and all results of one channel, are counted in 32 bits
    TORCH_CHECK(x.size(1) * in_d * in_h * in_w <= INT_MAX && x.size(0) * out_d * out_h * out_w <= INT_MAX - 1024 &&
                    out_channels * x.size(1) * kTaps <= INT_MAX,
                "a tensor is too large");
    const Sizes sizes{int(x.size(0)), int(x.size(1)), int(out_channels), int(in_d), int(in_h), int(in_w),
                      int(out_d),     int(out_h),     int(out_w)};
    const auto stream = at::cuda::getCurrentCUDAStream();
    const auto tiles_of = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
    const int64_t rows = sizes.batch * tiles_of(out_d, kPhasesD) * tiles_of(out_h, kPhasesH);
    const int64_t tiles_n = tiles_of(rows * tiles_of(out_w, kPhasesW), kBlockN);
    const int64_t blocks = tiles_n * kPhasesD * kPhasesH * kGroups * tiles_of(sizes.out_per_group(), kBlockM);
    TORCH_CHECK(blocks <= INT_MAX, "the result has too many tiles for one launch");
    constexpr size_t bytes = 66048;
    C10_CUDA_CHECK(cudaFuncSetAttribute(convolution, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
    convolution<<<unsigned(blocks), kThreads, bytes, stream>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), sizes);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Transposed convolution in 2-D in single precision");
}
#endif
