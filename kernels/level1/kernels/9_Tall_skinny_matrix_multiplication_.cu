// Product of two matrices in single precision
//
// Recipe: matmul
// Strategy:
//   async-copy-pipeline(stages=3)
//   coalesce
//   ldmatrix
//   shared-tile(block_k=32, block_m=128, block_n=128)
//   split-tf32
//   tensor-cores
//   warp-tile(warp_m=64, warp_n=32)
//   xor-swizzle
// Written for 32768x32:float32, 32x32768:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

// mma_tf32: c += a b for a 16 x 8 block of results and 8 inner steps; factors are tf32, sums float32.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// split_tf32: x as a sum of two numbers of tf32, 22 to 23 bits of the mantissa together. The first is rounded to nearest
// (a NaN that this turns into zero is left in the rest). From the rest a tensor core cuts off all but 10 bits, and the
// factor, half a unit more in the middle of a binade, makes a rounding of it. An infinity leaves NaN as the rest: where
// PyTorch has an infinite result there is NaN, as in all products that are put together from several.
__device__ __forceinline__ void split_tf32(float x, uint32_t& big, uint32_t& small) {
    big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    small = __float_as_uint((x - __uint_as_float(big)) * 1.000345f);
}

// load_matrices: 4 matrices of 8 rows of 16 bytes from shared memory; lane 8 i + j gives the address of row j of matrix i.
// Lane l gets of each the 4 bytes at 4 * (l % 4) of row l / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
    const uint32_t from = uint32_t(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

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

constexpr int kBlockM = 128;  // a block computes kBlockM x kBlockN results,
constexpr int kBlockN = 128;  // kBlockK steps of the inner dimension at a time;
constexpr int kBlockK = 32;
constexpr int kWarpM = 64;  // a warp has kWarpM x kWarpN of them,
constexpr int kWarpN = 32;
constexpr int kStep = 8;  // and a tensor core does 16 x 8 for kStep inner steps at once
constexpr int kStages = 3;
constexpr int kTilesM = kWarpM / 16;
constexpr int kTilesN = kWarpN / 8;
constexpr int kWarpsN = kBlockN / kWarpN;
constexpr int kThreads = 32 * (kBlockM / kWarpM) * kWarpsN;

// Tiles lie in shared memory as their operands do in global memory: lines of neighbours, inner steps of the left one,
// columns of the right one.
constexpr int kLengthA = kBlockK;
constexpr int kLinesA = kBlockM;
constexpr int kLengthB = kBlockN;
constexpr int kLinesB = kBlockK;
constexpr int kTileA = kLinesA * (kLengthA);
constexpr int kTileB = kLinesB * (kLengthB);
constexpr int kSharedBytes = kStages * (kTileA + kTileB) * int(sizeof(float));

// Pieces of four words change places with the line, so that the lanes of a fragment meet different banks.
__device__ __forceinline__ int place_a(int line, int at) { return line * (kLengthA) + (at ^ (line) % 8 * 4); }
__device__ __forceinline__ int place_b(int line, int at) { return line * (kLengthB) + (at ^ (line) % 4 * 8); }

// Brings Lines x Length words to shared memory, Width at a time; what lies outside of the operand becomes zero.
template <int Width, int Lines, int Length, class Place>
__device__ __forceinline__ void load_tile(float* tile, const float* from, int64_t stride, int lines, int length, Place place) {
    constexpr int kPieces = Length / Width;
    constexpr int kRound = kThreads / kPieces;  // lines at a time
    const int line = threadIdx.x / kPieces;
    const int at = threadIdx.x % kPieces * Width;
    const float* source = from + line * stride + at;
#pragma unroll
    for (int r = 0; r < Lines; r += kRound) {
        const bool inside = line + r < lines && at < length;
        float* to = tile + place(line + r, at);
        copy_async<4 * Width>(to, source + r * stride, inside);
    }
}

template <int Width>
__global__ void __launch_bounds__(kThreads)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    extern __shared__ __align__(16) float tiles[];
    const int tiles_n = (n + kBlockN - 1) / kBlockN;
    const int tile = int(blockIdx.x);
    const int row0 = tile / tiles_n * kBlockM;
    const int col0 = tile % tiles_n * kBlockN;
    const int first_k = 0;
    const int last_k = k;

    const auto load = [&](int stage, int k0) {
        float* tile = tiles + stage * (kTileA + kTileB);
        load_tile<Width, kLinesA, kLengthA>(tile, a + int64_t(row0) * k + k0, k, m - row0, last_k - k0, place_a);
        load_tile<Width, kLinesB, kLengthB>(tile + kTileA, b + int64_t(k0) * n + col0, n, last_k - k0, n - col0, place_b);
    };

    const int lane = threadIdx.x % 32;
    const int group = lane / 4;
    const int quad = lane % 4;
    const int warp_row = threadIdx.x / 32 / kWarpsN * kWarpM;
    const int warp_col = threadIdx.x / 32 % kWarpsN * kWarpN;
    float sums[kTilesM][kTilesN][4] = {};

    // fragments of one step as they lie in shared memory
    uint32_t raw_a[2][kTilesM][4], raw_b[2][kTilesN][2];
    const auto read = [&](int into, const float* tile_a, const float* tile_b, int step) {
#pragma unroll
        for (int i = 0; i < kTilesM; ++i) {
            const int row = warp_row + 16 * i;
            load_matrices(raw_a[into][i], tile_a + place_a(row + lane % 16, step + lane / 16 * 4));
        }
#pragma unroll
        for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                const int line = warp_col + 8 * j + group;
                const int inner = step + quad + 4 * p;
                raw_b[into][j][p] = __float_as_uint(tile_b[place_b(inner, line)]);
            }
        }
    };

    const auto multiply = [&](int stage) {
        const float* tile_a = tiles + stage * (kTileA + kTileB);
        const float* tile_b = tile_a + kTileA;
        read(0, tile_a, tile_b, 0);
#pragma unroll
        for (int step = 0; step < kBlockK; step += kStep) {
            const int now = step / kStep % 2;
            if (step + kStep < kBlockK) read(now ^ 1, tile_a, tile_b, step + kStep);  // on their way during the products
            uint32_t big_a[kTilesM][4], small_a[kTilesM][4];
#pragma unroll
            for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
                for (int p = 0; p < 4; ++p) {
                    split_tf32(__uint_as_float(raw_a[now][i][p]), big_a[i][p], small_a[i][p]);
                }
            }
#pragma unroll
            for (int j = 0; j < kTilesN; ++j) {
                uint32_t big_b[2], small_b[2];
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    split_tf32(__uint_as_float(raw_b[now][j][p]), big_b[p], small_b[p]);
                }
                // tensor cores cut off what they add: a step's products, the small ones first, are summed apart and then
                // rounded into the sum; neighbouring instructions belong to different sums, so that none waits
                float part[kTilesM][4] = {};
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) mma_tf32(part[i], small_a[i], big_b);
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) mma_tf32(part[i], big_a[i], small_b);
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) mma_tf32(part[i], big_a[i], big_b);
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
                    for (int p = 0; p < 4; ++p) sums[i][j][p] += part[i][p];
                }
            }
        }
    };

#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
        const int k0 = first_k + stage * kBlockK;
        if (k0 < last_k) load(stage, k0);
        commit_copies();
    }
    int stage = 0;
    for (int k0 = first_k; k0 < last_k; k0 += kBlockK) {
        wait_for_copies<kStages - 2>();
        __syncthreads();  // this stage has come, and nobody reads the one before it any more
        const int ahead = k0 + (kStages - 1) * kBlockK;
        if (ahead < last_k) load(stage == 0 ? kStages - 1 : stage - 1, ahead);
        commit_copies();
        multiply(stage);
        stage = stage + 1 == kStages ? 0 : stage + 1;
    }

#pragma unroll
    for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
        for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = row0 + warp_row + 16 * i + 8 * h + group;
                const int first = col0 + warp_col + 8 * j + 2 * quad;
                float value[2];
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    value[p] = sums[i][j][2 * h + p];
                }
                float* to = c + int64_t(row) * n + first;
                if constexpr (Width == 4) {  // n is a multiple of four, and so is the address
                    if (row < m && first < n) *reinterpret_cast<float2*>(to) = float2{value[0], value[1]};
                } else {
                    if (row < m && first < n) to[0] = value[0];
                    if (row < m && first + 1 < n) to[1] = value[1];
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
    // rows that start at multiples of 16 bytes are copied in such pieces, others word by word
    const bool wide = k % 4 == 0 && n % 4 == 0 && aligned(left, 16) && aligned(right, 16);
    const auto kernel = wide ? matmul<4> : matmul<1>;
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    kernel<<<unsigned(blocks), kThreads, kSharedBytes, stream>>>(left, right, out, int(m), int(n), int(k));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Product of two matrices in single precision");
}
#endif
