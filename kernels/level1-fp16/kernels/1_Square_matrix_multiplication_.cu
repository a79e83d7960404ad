// Product of two matrices in single precision
//
// Recipe: matmul
// Strategy:
//   coalesce
//   half-tiles
//   shared-tile(block_k=32, block_m=256, block_n=128)
//   tensor-cores
//   warp-tile(warp_m=64, warp_n=64)
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

// mma_half: c += a b for a 16 x 8 block of results and 16 inner steps; factors are pairs of fp16, sums float32.
__device__ __forceinline__ void mma_half(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{ %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// pack_half: two floats rounded to fp16 in one register, the first in the lower half.
__device__ __forceinline__ uint32_t pack_half(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
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

// load_matrices: 4 matrices of 8 rows of 16 bytes from shared memory; lane 8 i + j gives the address of row j of matrix i.
// Lane l gets of each the 4 bytes of column l / 4 in rows 2 * (l % 4) and below (16-bit elements).
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], const void* row) {
    const uint32_t from = uint32_t(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

constexpr int kBlockM = 256;  // a block computes kBlockM x kBlockN results,
constexpr int kBlockN = 128;  // kBlockK steps of the inner dimension at a time;
constexpr int kBlockK = 32;
constexpr int kWarpM = 64;  // a warp has kWarpM x kWarpN of them,
constexpr int kWarpN = 64;
constexpr int kStep = 16;  // and a tensor core does 16 x 8 for kStep inner steps at once
constexpr int kTilesM = kWarpM / 16;
constexpr int kTilesN = kWarpN / 8;
constexpr int kWarpsN = kBlockN / kWarpN;
constexpr int kThreads = 32 * (kBlockM / kWarpM) * kWarpsN;

// Tiles lie in shared memory as their operands do in global memory: lines of neighbours, inner steps of the left one,
// columns of the right one; two of each, one in use while the other is filled.
constexpr int kLengthA = kBlockK;
constexpr int kLinesA = kBlockM;
constexpr int kLengthB = kBlockN;
constexpr int kLinesB = kBlockK;
constexpr int kTileA = kLinesA * kLengthA;
constexpr int kTileB = kLinesB * kLengthB;
constexpr int kSharedBytes = 2 * (kTileA + kTileB) * int(sizeof(uint16_t));

// Where a number is: pieces of eight change places with the line, so that eight lines of a matrix meet different banks.
template <int Length>
__device__ __forceinline__ int place(int line, int at) {
    constexpr int kPieces = Length / 8;
    constexpr int kSame = kPieces < 8 ? 8 / kPieces : 1;  // lines in 128 bytes
    return line * Length + (at ^ line / kSame % (kPieces < 8 ? kPieces : 8) * 8);
}

// A thread's share of a tile: pieces of four, on their way through its registers.
template <int Lines, int Length>
struct Staged {
    static constexpr int kPieces = Length / 4;
    static constexpr int kRound = kThreads / kPieces;  // lines at a time
    static constexpr int kRounds = Lines / kRound;
    float values[kRounds][4];

    // what lies outside of the operand becomes zero
    template <int Width>
    __device__ __forceinline__ void fetch(const float* from, int64_t stride, int lines, int length) {
        const int line = threadIdx.x / kPieces;
        const int at = threadIdx.x % kPieces * 4;
#pragma unroll
        for (int r = 0; r < kRounds; ++r) {
            const float* source = from + (line + r * kRound) * stride + at;
            const bool exists = line + r * kRound < lines;
            if constexpr (Width == 4) {
                const float4 four = exists && at < length ? *reinterpret_cast<const float4*>(source) : float4{};
                values[r][0] = four.x, values[r][1] = four.y, values[r][2] = four.z, values[r][3] = four.w;
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i) values[r][i] = exists && at + i < length ? source[i] : 0.0f;
            }
        }
    }

    __device__ __forceinline__ void stash(uint16_t* tile) const {
        const int line = threadIdx.x / kPieces;
        const int at = threadIdx.x % kPieces * 4;
#pragma unroll
        for (int r = 0; r < kRounds; ++r) {
            const float* v = values[r];
            uint16_t* to = tile + place<Length>(line + r * kRound, at);
            *reinterpret_cast<uint2*>(to) = uint2{pack_half(v[0], v[1]), pack_half(v[2], v[3])};
        }
    }
};

template <int Width>
__global__ void __launch_bounds__(kThreads)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    extern __shared__ __align__(16) uint16_t tiles[];
    const int tiles_n = (n + kBlockN - 1) / kBlockN;
    const int tile = int(blockIdx.x);
    const int row0 = tile / tiles_n * kBlockM;
    const int col0 = tile % tiles_n * kBlockN;
    const int first_k = 0;
    const int last_k = k;

    Staged<kLinesA, kLengthA> next_a;
    Staged<kLinesB, kLengthB> next_b;
    const auto fetch = [&](int k0) {
        next_a.template fetch<Width>(a + int64_t(row0) * k + k0, k, m - row0, last_k - k0);
        next_b.template fetch<Width>(b + int64_t(k0) * n + col0, n, last_k - k0, n - col0);
    };
    const auto stash = [&](int buffer) {
        next_a.stash(tiles + buffer * (kTileA + kTileB));
        next_b.stash(tiles + buffer * (kTileA + kTileB) + kTileA);
    };

    const int lane = threadIdx.x % 32;
    const int group = lane / 4;
    const int quad = lane % 4;
    const int warp_row = threadIdx.x / 32 / kWarpsN * kWarpM;
    const int warp_col = threadIdx.x / 32 % kWarpsN * kWarpN;
    float sums[kTilesM][kTilesN][4] = {};

    const auto multiply = [&](int buffer) {
        const uint16_t* tile_a = tiles + buffer * (kTileA + kTileB);
        const uint16_t* tile_b = tile_a + kTileA;
#pragma unroll
        for (int step = 0; step < kBlockK; step += kStep) {
            uint32_t left[kTilesM][4], right[kTilesN][2];
#pragma unroll
            for (int i = 0; i < kTilesM; ++i) {
                const int row = warp_row + 16 * i;
                load_matrices(left[i], tile_a + place<kLengthA>(row + lane % 16, step + lane / 16 * 8));
            }
#pragma unroll
            for (int j = 0; j < kTilesN; j += 2) {  // two tiles of columns at once
                const int col = warp_col + 8 * j;
                uint32_t pair[4];
                load_matrices_transposed(pair, tile_b + place<kLengthB>(step + lane % 16, col + lane / 16 * 8));
#pragma unroll
                for (int p = 0; p < 4; ++p) right[j + p / 2][p % 2] = pair[p];
            }
#pragma unroll
            for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) mma_half(sums[i][j], left[i], right[j]);
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
        current ^= 1;
        if (more) stash(current);  // nobody reads this buffer any more
        __syncthreads();
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
