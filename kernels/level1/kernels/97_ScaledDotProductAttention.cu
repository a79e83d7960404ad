// Attention in float16
//
// Recipe: attention
// Strategy:
//   async-copy-pipeline(stages=3)
//   head-chunks(columns=256, inner=32)
//   ldmatrix
//   query-tile(queries=128)
//   score-tile
//   tensor-cores
//   xor-swizzle
// Written for 32x32x512x1024:float16, 32x32x512x1024:float16, 32x32x512x1024:float16; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

#include <algorithm>

namespace {

using Element = __half;

__device__ __forceinline__ float to_float(Element x) { return __half2float(x); }
__device__ __forceinline__ Element from_float(float x) { return __float2half_rn(x); }

struct Sizes {  // of one head
    int queries;
    int keys;
    int dim;
    int value_dim;
};

// The plain kernel: one warp per query. It makes kColumns columns of the result at a time, with the scores anew for each,
// and keeps the largest score so far: sums are relative to it. Scores of +inf or NaN make a row NaN, as in PyTorch.
constexpr int kPlainThreads = 128;
constexpr int kSlots = 32;  // columns of a lane
constexpr int kColumns = 32 * kSlots;

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
    return v;
}

__global__ void __launch_bounds__(kPlainThreads)
attention_plain(const Element* __restrict__ q, const Element* __restrict__ k, const Element* __restrict__ v,
                Element* __restrict__ out, int64_t rows, Sizes size, float scale) {
    const int64_t row = int64_t(blockIdx.x) * (kPlainThreads / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    const int64_t head = row / size.queries;
    q += row * size.dim;
    k += head * size.keys * size.dim;
    v += head * size.keys * size.value_dim;
    out += row * size.value_dim;
    const int seen = size.keys;
    for (int column0 = 0; column0 < size.value_dim; column0 += kColumns) {
        float sums[kSlots] = {};
        float peak = -FLT_MAX;
        float total = 0.0f;
        for (int key = 0; key < seen; ++key) {
            float score = 0.0f;
            for (int i = lane; i < size.dim; i += 32) score += to_float(q[i]) * to_float(k[int64_t(key) * size.dim + i]);
            score = warp_sum(score) * scale;
            const float top = fmaxf(peak, score);
            const float fade = expf(peak - top);
            const float weight = expf(score - top);
            peak = top;
            total = total * fade + weight;
            const Element* value = v + int64_t(key) * size.value_dim + column0 + lane;
#pragma unroll
            for (int s = 0; s < kSlots; ++s) {
                const bool inside = column0 + lane + 32 * s < size.value_dim;
                sums[s] = sums[s] * fade + weight * (inside ? to_float(value[32 * s]) : 0.0f);
            }
        }
        if (total == 0.0f) total = 1.0f;  // all scores are -inf: zeros, as the operator has it
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
            const int column = column0 + lane + 32 * s;
            if (column < size.value_dim) out[column] = from_float(sums[s] / total);
        }
    }
}

constexpr int kQueries = 128;   // a block answers so many queries;
constexpr int kWidth = 256;     // it makes the scores of so many keys, and so many output columns, at a time
constexpr int kInner = 32;      // steps of the head dimension in shared memory at a time
constexpr int kKeySteps = 32;   // keys whose values are in shared memory at a time
constexpr int kKeyTiles = 2;    // shared memory has room for the weights of kKeyTiles * kWidth keys
constexpr int kStages = 3;      // tiles of queries and keys on their way or in use
constexpr int kValueStages = 2;
constexpr int kWarpsN = 4;      // the warps lie kWarpsM x kWarpsN over a tile of results
constexpr int kWarpsM = kQueries / 64;
constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kRowTiles = 4;    // a warp has kRowTiles x kColumnTiles blocks of 16 x 8 results
constexpr int kColumnTiles = kWidth / kWarpsN / 8;

// Shared memory in elements. Tiles of queries and keys lie where later the last weights are, which are made when no tile is
// needed any more; what warps tell each other lies where the last stage of values comes, which is fetched last.
constexpr int kWeights = kQueries * kWidth;
constexpr int kStage = (kQueries + kWidth) * kInner;
constexpr int kValueStage = kKeySteps * kWidth;
constexpr int kStagesAt = (kKeyTiles - 1) * kWeights;
constexpr int kValuesAt = kKeyTiles * kWeights;
constexpr int kPartsAt = std::max(kStagesAt + kStages * kStage, kValuesAt + (kValueStages - 1) * kValueStage);
constexpr int kPartsEnd = kPartsAt + 2 * 2 * kWarpsN * kQueries;  // two floats of each warp for each query
constexpr int kFadesAt = std::max(kPartsEnd, kValuesAt + kValueStages * kValueStage);
constexpr size_t kSharedBytes = 2 * (kFadesAt + 2 * kKeyTiles * kQueries);

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

// Where a tile with rows of Columns elements keeps a chunk of eight of them. The chunk's place in its row is changed with the row,
// so that the same chunk of eight rows lies in different banks.
template <int Columns>
__device__ __forceinline__ int place(int row, int chunk) {
    constexpr int kChunks = Columns / 8;
    constexpr int kShift = kChunks >= 8 ? 0 : kChunks == 4 ? 1 : 2;  // rows that share the banks' 128 bytes
    constexpr int kMask = kChunks >= 8 ? 7 : kChunks - 1;
    return (row * kChunks + (chunk ^ ((row >> kShift) & kMask))) * 8;
}

// A tile of Rows x Columns elements to shared memory, zeros outside of the first `rows` rows and `columns` columns.
// Packed: everything is made of aligned chunks, which travel by themselves. Otherwise they go element by element.
template <bool Packed, int Rows, int Columns>
__device__ __forceinline__ void fetch(Element* tile, const Element* __restrict__ from, int stride, int rows, int columns) {
    constexpr int kChunks = Columns / 8;
    static_assert(kThreads % kChunks == 0 && Rows % (kThreads / kChunks) == 0, "the threads share a tile evenly");
    const int chunk = threadIdx.x % kChunks;
#pragma unroll
    for (int round = 0; round < Rows * kChunks / kThreads; ++round) {
        const int row = threadIdx.x / kChunks + round * (kThreads / kChunks);
        Element* to = tile + place<Columns>(row, chunk);
        const Element* source = from + int64_t(row) * stride + chunk * 8;
        if constexpr (Packed) {
            const bool inside = row < rows && chunk * 8 < columns;
            copy_async<16>(to, inside ? source : from, inside);
        } else {
            for (int i = 0; i < 8; ++i) to[i] = row < rows && chunk * 8 + i < columns ? source[i] : from_float(0.0f);
        }
    }
}

// Factors of a product of 16 x 8 results with kStep inner steps.
constexpr int kStep = 16;
struct Left {
    uint32_t at[4];
};
struct Right {
    uint32_t at[2];
};

__device__ __forceinline__ void multiply(float (&c)[4], const Left& a, const Right& b) { mma_half(c, a.at, b.at); }

// A left factor from results: two neighbouring blocks of 16 x 8 lie as the factor must.
__device__ __forceinline__ Left left_of(const float (*c)[4]) {
    return {pack_half(c[0][0], c[0][1]), pack_half(c[0][2], c[0][3]), pack_half(c[1][0], c[1][1]), pack_half(c[1][2], c[1][3])};
}

// The left factor of an inner step from a tile.
template <int Columns>
__device__ __forceinline__ void load_left(Left& a, const Element* tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    load_matrices(a.at, tile + place<Columns>(row + lane % 16, 2 * step + lane / 16));
}

// Two right factors, of 16 columns, from a tile whose rows are the columns of the factor (keys) ...
template <int Columns>
__device__ __forceinline__ void load_right(Right (&b)[2], const Element* tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    uint32_t four[4];
    load_matrices(four, tile + place<Columns>(row + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < 4; ++i) b[i / 2].at[i % 2] = four[i];
}

// ... and from one whose rows are the inner steps (values).
template <int Columns>
__device__ __forceinline__ void load_right_transposed(Right (&b)[2], const Element* tile, int step, int column) {
    const int lane = threadIdx.x % 32;
    uint32_t four[4];
    load_matrices_transposed(four, tile + place<Columns>(step * 16 + lane / 8 % 2 * 8 + lane % 8, column / 8 + lane / 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) b[i / 2].at[i % 2] = four[i];
}

// Two neighbouring 16 x 8 blocks of results. Lanes exchange halves, so that each stores eight bytes and a row has 32
// in one piece.
template <bool Packed>
__device__ __forceinline__ void store_results(Element* __restrict__ out, int64_t stride, int row, int column, int rows, int columns,
                                              const float (&left)[4], const float (&right)[4], float first, float second) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int to_row = row + lane / 4 + 8 * half;
        const float factor = half == 0 ? first : second;
        const float x[2][2] = {
            {left[2 * half] * factor, left[2 * half + 1] * factor},
            {right[2 * half] * factor, right[2 * half + 1] * factor},
        };
        if constexpr (Packed) {
            const uint32_t mine[2] = {pack_half(x[0][0], x[0][1]), pack_half(x[1][0], x[1][1])};
            const bool odd = lane % 2 != 0;
            const uint32_t theirs = __shfl_xor_sync(0xffffffffu, odd ? mine[0] : mine[1], 1);
            const uint2 four = odd ? make_uint2(theirs, mine[1]) : make_uint2(mine[0], theirs);
            const int to_column = column + (odd ? 8 : 0) + lane % 4 / 2 * 4;
            if (to_row < rows && to_column < columns) *reinterpret_cast<uint2*>(out + to_row * stride + to_column) = four;
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int to_column = column + i / 2 * 8 + lane % 4 * 2 + i % 2;
                if (to_row < rows && to_column < columns) out[to_row * stride + to_column] = from_float(x[i / 2][i % 2]);
            }
        }
    }
}

// Over the four lanes that share a row of a fragment.
__device__ __forceinline__ float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// In two phases: the weights exp(scale * score - largest so far) of all keys, kept in shared memory, then their product
// with the values.
template <bool Packed>
__global__ void __launch_bounds__(kThreads)
attention(const Element* __restrict__ q, const Element* __restrict__ k, const Element* __restrict__ v,
          Element* __restrict__ out, Sizes size, float scale) {
    extern __shared__ __align__(128) uint16_t memory[];
    auto* weights = reinterpret_cast<Element*>(memory);
    auto* stages = reinterpret_cast<Element*>(memory + kStagesAt);
    auto* value_stages = reinterpret_cast<Element*>(memory + kValuesAt);
    auto* peaks = reinterpret_cast<float(*)[kQueries]>(memory + kPartsAt);  // of each column of warps
    auto* totals = peaks + kWarpsN;
    auto* fades = reinterpret_cast<float(*)[kQueries]>(memory + kFadesAt);  // of the sums before each key tile

    const int tiles = (size.queries + kQueries - 1) / kQueries;
    const int64_t head = blockIdx.x / tiles;
    const int query0 = int(blockIdx.x % tiles) * kQueries;
    const int rows = size.queries - query0;
    q += (head * size.queries + query0) * size.dim;
    k += head * size.keys * size.dim;
    v += head * size.keys * size.value_dim;
    out += (head * size.queries + query0) * size.value_dim;
    const int keys = size.keys;

    const int lane = threadIdx.x % 32;
    const int warp_row = threadIdx.x / 32 / kWarpsN * 64;
    const int warp_n = threadIdx.x / 32 % kWarpsN;
    const int warp_column = warp_n * (kWidth / kWarpsN);
    float sums[kRowTiles][kColumnTiles][4] = {};

    // --- weights ---
    const int chunks = (size.dim + kInner - 1) / kInner;
    const int key_tiles = (keys + kWidth - 1) / kWidth;
    const int steps = key_tiles * chunks;
    const auto fetch_step = [&](int step) {
        if (step < steps) {
            const int key0 = step / chunks * kWidth;
            // to and fro: the queries' elements that a key tile ends with are those that the next one finds in the cache
            const int i0 = (step / chunks % 2 ? chunks - 1 - step % chunks : step % chunks) * kInner;
            Element* stage = stages + step % kStages * kStage;
            fetch<Packed, kQueries, kInner>(stage, q + i0, size.dim, rows, size.dim - i0);
            fetch<Packed, kWidth, kInner>(stage + kQueries * kInner, k + int64_t(key0) * size.dim + i0, size.dim,
                                          keys - key0, size.dim - i0);
        }
        commit_copies();
    };
    const int key_steps = (keys + kKeySteps - 1) / kKeySteps;
    const int value_steps = (size.value_dim + kWidth - 1) / kWidth * key_steps;
    const auto fetch_values = [&](int step) {
        if (step < value_steps) {
            const int column0 = step / key_steps * kWidth;
            const int key0 = step % key_steps * kKeySteps;
            fetch<Packed, kKeySteps, kWidth>(value_stages + step % kValueStages * kValueStage,
                                             v + int64_t(key0) * size.value_dim + column0, size.value_dim, keys - key0,
                                             size.value_dim - column0);
        }
        commit_copies();
    };

    for (int step = 0; step < kStages - 1; ++step) fetch_step(step);
    float peak[kRowTiles][2];
    float total[kRowTiles][2] = {};
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) peak[m][0] = peak[m][1] = -FLT_MAX;
    for (int tile = 0; tile < key_tiles; ++tile) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const int step = tile * chunks + chunk;
            wait_for_copies<kStages - 2>();
            __syncthreads();  // this step's tiles are complete, and the last one's have been read by all
            fetch_step(step + kStages - 1);
            const Element* tile_q = stages + step % kStages * kStage;
            const Element* tile_k = tile_q + kQueries * kInner;
#pragma unroll
            for (int i = 0; i < kInner / kStep; ++i) {
                Left a[kRowTiles];
                Right b[kColumnTiles / 2][2];
#pragma unroll
                for (int m = 0; m < kRowTiles; ++m) load_left<kInner>(a[m], tile_q, warp_row + 16 * m, i);
#pragma unroll
                for (int n = 0; n < kColumnTiles / 2; ++n) load_right<kInner>(b[n], tile_k, warp_column + 16 * n, i);
#pragma unroll
                for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
                    for (int n = 0; n < kColumnTiles; ++n) multiply(sums[m][n], a[m], b[n / 2][n % 2]);
                }
            }
        }

        const int key0 = tile * kWidth + warp_column + lane % 4 * 2;
        const int past = keys - tile * kWidth - warp_column;
        const bool hidden = past < kWidth / kWarpsN;  // some of the warp's keys count for nothing
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp_row + 16 * m + 8 * half + lane / 4;
                const int end = keys;
                float top = -FLT_MAX;
#pragma unroll
                for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        float& score = sums[m][n][2 * half + i];
                        score *= scale;
                        if (hidden && key0 + 8 * n + i >= end) score = -INFINITY;
                        top = fmaxf(top, score);
                    }
                }
                top = quad_max(top);
                if (lane % 4 == 0) peaks[warp_n][row] = top;
            }
        }
        __syncthreads();  // the last tiles of queries and keys have been read by all, too
        if (tile == key_tiles - 1) {
            for (int step = 0; step < kValueStages - 1; ++step) fetch_values(step);
        }
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp_row + 16 * m + 8 * half + lane / 4;
                float top = peak[m][half];
#pragma unroll
                for (int n = 0; n < kWarpsN; ++n) top = fmaxf(top, peaks[n][row]);
                const float fade = exp2f(peak[m][half] - top);
                if (warp_n == 0 && lane % 4 == 0) fades[tile][row] = fade;
                peak[m][half] = top;
                float part = 0.0f;
#pragma unroll
                for (int n = 0; n < kColumnTiles; ++n) {
                    float& x = sums[m][n][2 * half];
                    float& y = sums[m][n][2 * half + 1];
                    x = exp2f(x - top);
                    y = exp2f(y - top);
                    part += x + y;
                    Element* to = weights + tile * kWeights + place<kWidth>(row, warp_column / 8 + n) + lane % 4 * 2;
                    *reinterpret_cast<uint32_t*>(to) = pack_half(x, y);
                    x = y = 0.0f;
                }
                total[m][half] = total[m][half] * fade + part;
            }
        }
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float part = quad_sum(total[m][half]);
            if (lane % 4 == 0) totals[warp_n][warp_row + 16 * m + 8 * half + lane / 4] = part;
        }
    }
    __syncthreads();
    float norm[kRowTiles][2];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp_row + 16 * m + 8 * half + lane / 4;
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < kWarpsN; ++n) sum += totals[n][row];
            if (sum == 0.0f) sum = 1.0f;  // all scores are -inf: zeros, as the operator has it
            norm[m][half] = 1.0f / sum;
        }
    }

    // --- products with the values ---
    int step = 0;
    for (int column0 = 0; column0 < size.value_dim; column0 += kWidth) {
        for (int key0 = 0; key0 < keys; key0 += kKeySteps, ++step) {
            wait_for_copies<kValueStages - 2>();
            __syncthreads();  // this step's values are complete, and the last one's have been read by all
            fetch_values(step + kValueStages - 1);
            const int tile = key0 / kWidth;
            if (tile > 0 && key0 % kWidth == 0) {  // from here on weights are relative to another maximum
#pragma unroll
                for (int m = 0; m < kRowTiles; ++m) {
                    const float* fade = &fades[tile][warp_row + 16 * m + lane / 4];
#pragma unroll
                    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
                        for (int i = 0; i < 4; ++i) sums[m][n][i] *= fade[i / 2 * 8];
                    }
                }
            }
            const Element* tile_p = weights + tile * kWeights;
            const Element* tile_v = value_stages + step % kValueStages * kValueStage;
#pragma unroll
            for (int i = 0; i < kKeySteps / kStep; ++i) {
                Left a[kRowTiles];
                Right b[kColumnTiles / 2][2];
#pragma unroll
                for (int m = 0; m < kRowTiles; ++m) {
                    load_left<kWidth>(a[m], tile_p, warp_row + 16 * m, key0 % kWidth / kStep + i);
                }
#pragma unroll
                for (int n = 0; n < kColumnTiles / 2; ++n) {
                    load_right_transposed<kWidth>(b[n], tile_v, i, warp_column + 16 * n);
                }
#pragma unroll
                for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
                    for (int n = 0; n < kColumnTiles; ++n) multiply(sums[m][n], a[m], b[n / 2][n % 2]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
            for (int n = 0; n < kColumnTiles; n += 2) {
                store_results<Packed>(out, size.value_dim, warp_row + 16 * m, column0 + warp_column + 8 * n, rows,
                                      size.value_dim, sums[m][n], sums[m][n + 1], norm[m][0], norm[m][1]);
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[m][n][i] = sums[m][n + 1][i] = 0.0f;
            }
        }
    }
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    TORCH_CHECK(q.is_cuda() && q.is_contiguous(), "q must be contiguous, on a CUDA device");
    TORCH_CHECK(q.scalar_type() == torch::kFloat16, "q must be float16");
    TORCH_CHECK(q.dim() == 4, "q must have 4 dimensions");
    TORCH_CHECK(k.is_cuda() && k.is_contiguous(), "k must be contiguous, on a CUDA device");
    TORCH_CHECK(k.scalar_type() == torch::kFloat16, "k must be float16");
    TORCH_CHECK(k.dim() == 4, "k must have 4 dimensions");
    TORCH_CHECK(v.is_cuda() && v.is_contiguous(), "v must be contiguous, on a CUDA device");
    TORCH_CHECK(v.scalar_type() == torch::kFloat16, "v must be float16");
    TORCH_CHECK(v.dim() == 4, "v must have 4 dimensions");
    int64_t heads = 1;
    for (int64_t i = 0; i < 4 - 2; ++i) {
        TORCH_CHECK(k.size(i) == q.size(i) && v.size(i) == q.size(i), "leading dimensions must agree");
        heads *= q.size(i);
    }
    const int64_t queries = q.size(4 - 2);
    const int64_t keys = k.size(4 - 2);
    const int64_t dim = q.size(4 - 1);
    const int64_t value_dim = v.size(4 - 1);
    TORCH_CHECK(k.size(4 - 1) == dim && v.size(4 - 2) == keys, "keys must fit queries and values");
    TORCH_CHECK(queries <= INT_MAX / 2 && keys <= INT_MAX / 2 && dim <= INT_MAX / 2 && value_dim <= INT_MAX / 2,
                "a dimension is too large");
    TORCH_CHECK(keys > 0, "there must be a key");
    auto shape = q.sizes().vec();
    shape.back() = value_dim;
    auto y = torch::empty(shape, q.options());
    if (y.numel() == 0) return y;
    const auto* qs = static_cast<const Element*>(q.data_ptr());
    const auto* ks = static_cast<const Element*>(k.data_ptr());
    const auto* vs = static_cast<const Element*>(v.data_ptr());
    auto* out = static_cast<Element*>(y.data_ptr());
    const Sizes size{int(queries), int(keys), int(dim), int(value_dim)};
    const float scale = float(1.0 / std::sqrt(double(dim)));
    const auto stream = at::cuda::getCurrentCUDAStream();
    const int64_t blocks = heads * ((queries + kQueries - 1) / kQueries);
    TORCH_CHECK(blocks <= INT_MAX, "there are too many queries for one launch");
    bool packed = dim % 8 == 0 && value_dim % 8 == 0;
    for (const void* pointer : {q.data_ptr(), k.data_ptr(), v.data_ptr(), y.data_ptr()}) packed = packed && aligned(pointer, 16);
    const auto launch = [&](auto kernel) {
        C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kSharedBytes)));
        // exponentials to the base of two are what the hardware has
        constexpr float log2_e = 1.4426950408889634f;
        kernel<<<unsigned(blocks), kThreads, kSharedBytes, stream>>>(qs, ks, vs, out, size, scale * log2_e);
    };
    if (keys > int64_t(kKeyTiles) * kWidth) {  // the weights do not fit in shared memory
        const int64_t warps = kPlainThreads / 32;
        const int64_t blocks = (heads * queries + warps - 1) / warps;
        TORCH_CHECK(blocks <= INT_MAX, "there are too many queries for one launch");
        attention_plain<<<unsigned(blocks), kPlainThreads, 0, stream>>>(qs, ks, vs, out, heads * queries, size, scale);

    } else if (packed) {
        launch(attention<true>);
    } else {
        launch(attention<false>);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Attention in float16");
}
#endif
