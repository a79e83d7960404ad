// Product of two matrices in single precision
//
// Recipe: matmul
// Strategy:
//   block-swizzle(rows=8)
//   coalesce
//   double-buffer(buffers=1)
//   launch-bounds(blocks=2)
//   register-block(thread_m=8, thread_n=8)
//   shared-tile(block_k=8, block_m=128, block_n=64)
//   transposed-a-tile
//   triangular-skip
//   vector-load(width=4)
// Written for 4096x4096:float32, 4096x4096:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

constexpr int kBlockM = 128;    // a block computes kBlockM x kBlockN results,
constexpr int kBlockN = 64;    // kBlockK steps of the inner dimension at a time;
constexpr int kBlockK = 8;
constexpr int kThreadM = 8;  // a thread has kThreadM x kThreadN of them
constexpr int kThreadN = 8;
constexpr int kWidth = 4;       // floats per memory access
constexpr int kBuffers = 1;
constexpr int kThreadsN = kBlockN / kThreadN;
constexpr int kThreadsM = kBlockM / kThreadM;
constexpr int kThreads = kThreadsM * kThreadsN;

// How the threads share the loading of a step's tiles: packs per line of neighbours, lines per round, rounds.
constexpr int kPacksA = kBlockK / kWidth;
constexpr int kPacksB = kBlockN / kWidth;
constexpr int kLinesA = kThreads / kPacksA;
constexpr int kLinesB = kThreads / kPacksB;
constexpr int kRoundsA = kBlockM / kLinesA;
constexpr int kRoundsB = kBlockK / kLinesB;
constexpr int kBand = 8;

// A thread's results come in packs that lie a whole round of threads apart, so that neighbouring threads
// read neighbouring packs of a shared row (no bank conflicts). Place of its i-th row or column:
template <int Threads>
__device__ __forceinline__ int place(int thread, int i) {
    return (i / kWidth) * (Threads * kWidth) + thread * kWidth + i % kWidth;
}

// Even: the tile divides all sizes. Otherwise loads and stores are checked, and missing operands are zero.
template <bool Even>
__global__ void __launch_bounds__(kThreads, 2)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ __align__(16) float tile_a[kBuffers][kBlockK][kBlockM];  // inner dimension first
    __shared__ __align__(16) float tile_b[kBuffers][kBlockK][kBlockN];

    const int tiles_m = (m + kBlockM - 1) / kBlockM;
    const int tiles_n = (n + kBlockN - 1) / kBlockN;
    const int tile = int(blockIdx.x);
    // blocks that run together form a compact patch: bands of kBand tile rows, walked column by column
    const int band = tile / (kBand * tiles_n);
    const int inside_band = tile - band * kBand * tiles_n;
    const int height = min(kBand, tiles_m - band * kBand);
    const int row0 = (band * kBand + inside_band % height) * kBlockM;
    const int col0 = inside_band / height * kBlockN;
    // the corner that reaches furthest into the kept triangle decides whether there is anything to do
    if (!((col0) - (row0 + kBlockM - 1) <= 0)) {
        for (int i = threadIdx.x; i < kBlockM * kBlockN; i += kThreads) {
            const int row = row0 + i / kBlockN;
            const int col = col0 + i % kBlockN;
            if (row < m && col < n) c[int64_t(row) * n + col] = 0.0f;
        }
        return;
    }
    // where the rows of the left tile and the columns of the right one are both not zero
    const int first_k = col0 / kBlockK * kBlockK;
    const int last_k = min(k, row0 + kBlockM);

    // this thread's place in the loading, and where its loads start
    const int line_a = threadIdx.x / kPacksA;
    const int at_a = threadIdx.x % kPacksA * kWidth;
    const int line_b = threadIdx.x / kPacksB;
    const int at_b = threadIdx.x % kPacksB * kWidth;
    const float* from_a = a + int64_t(row0 + line_a) * k + at_a;
    const float* from_b = b + int64_t(line_b) * n + col0 + at_b;

    Pack<kWidth> next_a[kRoundsA];
    Pack<kWidth> next_b[kRoundsB];
    const auto fetch = [&](int k0) {  // from global memory to registers
#pragma unroll
        for (int r = 0; r < kRoundsA; ++r) {
            const float* from = from_a + int64_t(r * kLinesA) * k + k0;
            if constexpr (Even) {
                next_a[r] = *reinterpret_cast<const Pack<kWidth>*>(from);
            } else {
                const bool inside = row0 + line_a + r * kLinesA < m;
#pragma unroll
                for (int j = 0; j < kWidth; ++j) next_a[r].at[j] = inside && k0 + at_a + j < last_k ? from[j] : 0.0f;
            }
        }
#pragma unroll
        for (int r = 0; r < kRoundsB; ++r) {
            const float* from = from_b + int64_t(k0 + r * kLinesB) * n;
            if constexpr (Even) {
                next_b[r] = *reinterpret_cast<const Pack<kWidth>*>(from);
            } else {
                const bool inside = k0 + line_b + r * kLinesB < last_k;
#pragma unroll
                for (int j = 0; j < kWidth; ++j) next_b[r].at[j] = inside && col0 + at_b + j < n ? from[j] : 0.0f;
            }
        }
    };
    const auto stash = [&](int buffer) {  // from registers to shared memory
#pragma unroll
        for (int r = 0; r < kRoundsA; ++r) {
            const int line = line_a + r * kLinesA;
#pragma unroll
            for (int j = 0; j < kWidth; ++j) tile_a[buffer][at_a + j][line] = next_a[r].at[j];
        }
#pragma unroll
        for (int r = 0; r < kRoundsB; ++r) {
            const int line = line_b + r * kLinesB;
            *reinterpret_cast<Pack<kWidth>*>(&tile_b[buffer][line][at_b]) = next_b[r];
        }
    };

    const int tn = threadIdx.x % kThreadsN;
    const int tm = threadIdx.x / kThreadsN;
    float sums[kThreadM][kThreadN] = {};
    const auto multiply = [&](int buffer) {  // an outer product per inner step
#pragma unroll
        for (int i = 0; i < kBlockK; ++i) {
            float left[kThreadM];
            float right[kThreadN];
#pragma unroll
            for (int p = 0; p < kThreadM; p += kWidth) {
                const auto v = *reinterpret_cast<const Pack<kWidth>*>(&tile_a[buffer][i][place<kThreadsM>(tm, p)]);
#pragma unroll
                for (int j = 0; j < kWidth; ++j) left[p + j] = v.at[j];
            }
#pragma unroll
            for (int p = 0; p < kThreadN; p += kWidth) {
                const auto v = *reinterpret_cast<const Pack<kWidth>*>(&tile_b[buffer][i][place<kThreadsN>(tn, p)]);
#pragma unroll
                for (int j = 0; j < kWidth; ++j) right[p + j] = v.at[j];
            }
#pragma unroll
            for (int p = 0; p < kThreadM; ++p) {
#pragma unroll
                for (int q = 0; q < kThreadN; ++q) sums[p][q] += left[p] * right[q];
            }
        }
    };

    fetch(first_k);
    stash(0);
    __syncthreads();
    int current = 0;
    for (int k0 = first_k; k0 < last_k; k0 += kBlockK) {
        const bool more = k0 + kBlockK < last_k;
        if (more) fetch(k0 + kBlockK);  // on its way while the current tiles are used
        multiply(current);
        __syncthreads();  // all have read the tiles before they are replaced
        if (more) stash(0);
        __syncthreads();
    }

#pragma unroll
    for (int p = 0; p < kThreadM; ++p) {
        const int row = row0 + place<kThreadsM>(tm, p);
        if (!Even && row >= m) continue;
#pragma unroll
        for (int q = 0; q < kThreadN; q += kWidth) {
            const int first = col0 + place<kThreadsN>(tn, q);
            float* to = c + int64_t(row) * n + first;
            Pack<kWidth> v;
#pragma unroll
            for (int j = 0; j < kWidth; ++j) {
                const int col = first + j;
                v.at[j] = (col - row <= 0 ? sums[p][q + j] : 0.0f);
            }
            if constexpr (Even) {
                *reinterpret_cast<Pack<kWidth>*>(to) = v;
            } else {
#pragma unroll
                for (int j = 0; j < kWidth; ++j) {
                    if (first + j < n) to[j] = v.at[j];
                }
            }
        }
    }
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda(), "a must be on a CUDA device");
    TORCH_CHECK(a.scalar_type() == torch::kFloat32, "a must be float32");
    TORCH_CHECK(a.is_contiguous(), "a must be contiguous");
    TORCH_CHECK(a.dim() == 2, "a must have 2 dimensions");

    TORCH_CHECK(b.is_cuda(), "b must be on a CUDA device");
    TORCH_CHECK(b.scalar_type() == torch::kFloat32, "b must be float32");
    TORCH_CHECK(b.is_contiguous(), "b must be contiguous");
    TORCH_CHECK(b.dim() == 2, "b must have 2 dimensions");

    TORCH_CHECK(a.size(1) == b.size(0), "the dimensions must agree");
    const int64_t m = a.size(0);
    const int64_t n = b.size(1);
    const int64_t k = a.size(1);
    TORCH_CHECK(m <= INT_MAX - 1024 && n <= INT_MAX - 1024 && k <= INT_MAX - 1024, "a dimension is too large");
    auto c = torch::empty({a.size(0), b.size(1)}, a.options());
    if (c.numel() == 0) return c;
    const float* left = a.data_ptr<float>();
    const float* right = b.data_ptr<float>();
    float* out = c.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    const int64_t blocks = ((m + kBlockM - 1) / kBlockM) * ((n + kBlockN - 1) / kBlockN);
    TORCH_CHECK(blocks <= INT_MAX, "the result has too many tiles for one launch");
    // sizes that the tile divides need no bounds checks
    bool even = k > 0 && m % kBlockM == 0 && n % kBlockN == 0 && k % kBlockK == 0;
    constexpr size_t bytes = sizeof(Pack<kWidth>);
    even = even && aligned(left, bytes) && aligned(right, bytes) && aligned(out, bytes);
    if (even) {
        matmul<true><<<unsigned(blocks), kThreads, 0, stream>>>(left, right, out, int(m), int(n), int(k));
    } else {
        matmul<false><<<unsigned(blocks), kThreads, 0, stream>>>(left, right, out, int(m), int(n), int(k));
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Product of two matrices in single precision");
}
#endif
