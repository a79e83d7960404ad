// Norm: linalg_vector_norm -> div
//
// Recipe: norm_split
// Strategy:
//   block-size(threads=512)
//   row-chunks(elements=65536)
//   streaming-store
//   unroll(factor=4)
//   vector-load(width=2)
//   warp-shuffle
// Written for 112x64x512x512:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kThreads = 512;
constexpr int kChunk = 65536;  // elements of a row that a block takes
constexpr int kWidth = 2;

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// What is known of a row once it has been read.
struct Stats {
    float s[1];
};

// Stage 1: the sum over a row of the value.
struct Part0 {
    float at[1] = {0.0f};
};

__device__ __forceinline__ float term0(float x, const Stats&) {
    return x * x;
}

__device__ __forceinline__ void merge(Part0& part, const Part0& other) {
    part.at[0] += other.at[0];
}

template <int Width>
__device__ __forceinline__ void absorb(Part0& part, const Pack<Width>& v, const Stats& stats) {
    float few = term0(v.at[0], stats);
#pragma unroll
    for (int j = 1; j < Width; ++j) few += term0(v.at[j], stats);
    part.at[0] += few;
}

__device__ __forceinline__ void finish(const Part0& part, float, Stats& stats) {
    const float total = part.at[0];
    stats.s[0] = sqrtf(total);
}

// One element of the result: div.
__device__ __forceinline__ float result(float x, const Stats& stats) {
    const float s0 = stats.s[0];
    const float v1 = x / s0;
    return v1;
}

template <class Part>
__device__ __forceinline__ Part warp_merge(Part part) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        Part other;
#pragma unroll
        for (int i = 0; i < int(sizeof(Part) / sizeof(float)); ++i)
            other.at[i] = __shfl_xor_sync(0xffffffffu, part.at[i], lane);
        merge(part, other);
    }
    return part;
}

template <class Part>
__device__ __forceinline__ Part block_merge(Part part) {
    constexpr int kWarps = kThreads / 32;
    constexpr int kFields = sizeof(Part) / sizeof(float);
    __shared__ float parts[kFields][kWarps];
    const int lane = threadIdx.x % 32;
    part = warp_merge(part);
#pragma unroll
    for (int i = 0; i < kFields; ++i)
        if (lane == 0) parts[i][threadIdx.x / 32] = part.at[i];
    __syncthreads();
    Part mine;
#pragma unroll
    for (int i = 0; i < kFields; ++i)
        if (lane < kWarps) mine.at[i] = parts[i][lane];
    return warp_merge(mine);  // every warp repeats this, which spares a second barrier
}

// Nobody reads the result again here: let it leave the cache first.
template <int Width>
__device__ __forceinline__ void store_streaming(Pack<Width>* to, const Pack<Width>& v) {
    if constexpr (Width == 4) {
        __stcs(reinterpret_cast<float4*>(to), make_float4(v.at[0], v.at[1], v.at[2], v.at[3]));
    } else if constexpr (Width == 2) {
        __stcs(reinterpret_cast<float2*>(to), make_float2(v.at[0], v.at[1]));
    } else {
        __stcs(&to->at[0], v.at[0]);
    }
}

// What one chunk of a row adds to its statistics; fields of parts are `stride` apart, those of a row side by side.
template <int Width, class Part>
__global__ void __launch_bounds__(kThreads)
reduce(const float* __restrict__ x, const Stats* __restrict__ known, float* __restrict__ found, int64_t rows, int64_t cols,
       int64_t per_row) {
    const int64_t sets = rows;
    const int64_t set = blockIdx.x % sets;  // the same chunk of all rows first: they share their weights
    const int64_t chunk = blockIdx.x / sets;
    const int64_t row = set;
    const int64_t begin = set * cols + chunk * kChunk;
    const int length = int(min(cols - chunk * kChunk, int64_t(kChunk)));
    // whole packs from the first aligned address on; the few floats around them go to one thread each
    const int head = min(int((Width - begin % Width) % Width), length);
    const int packs = (length - head) / Width;
    const int edge = threadIdx.x >= length - packs * Width ? -1 : threadIdx.x < head ? threadIdx.x : packs * Width + threadIdx.x;
    const auto* in = reinterpret_cast<const Pack<Width>*>(x + begin + head);

    const Stats stats = known[row];
    Part part;
#pragma unroll 4
    for (int p = threadIdx.x; p < packs; p += kThreads) absorb(part, in[p], stats);
    if (edge >= 0) absorb(part, Pack<1>{x[begin + edge]}, stats);
    part = block_merge(part);
    if (threadIdx.x == 0) {
        const int64_t place = row * per_row + chunk;
#pragma unroll
        for (int i = 0; i < int(sizeof(Part) / sizeof(float)); ++i) found[i * rows * per_row + place] = part.at[i];
    }
}

// A row's chunks together, one block per row.
template <class Part>
__global__ void __launch_bounds__(kThreads)
combine(const float* __restrict__ found, Stats* __restrict__ known, int64_t rows, int64_t per_row, float count) {
    const int64_t row = blockIdx.x;
    Part part;
    for (int64_t p = threadIdx.x; p < per_row; p += kThreads) {
        Part other;
#pragma unroll
        for (int i = 0; i < int(sizeof(Part) / sizeof(float)); ++i) other.at[i] = found[(i * rows + row) * per_row + p];
        merge(part, other);
    }
    part = block_merge(part);
    if (threadIdx.x == 0) {
        Stats stats = known[row];
        finish(part, count, stats);
        known[row] = stats;
    }
}

// The result of one chunk.
template <int Width>
__global__ void __launch_bounds__(kThreads)
apply(const float* __restrict__ x, const Stats* __restrict__ known, float* __restrict__ y, int64_t rows, int64_t cols) {
    const int64_t sets = rows;
    const int64_t set = blockIdx.x % sets;  // the same chunk of all rows first: they share their weights
    const int64_t chunk = blockIdx.x / sets;
    const int64_t row = set;
    const int64_t begin = set * cols + chunk * kChunk;
    const int length = int(min(cols - chunk * kChunk, int64_t(kChunk)));
    // whole packs from the first aligned address on; the few floats around them go to one thread each
    const int head = min(int((Width - begin % Width) % Width), length);
    const int packs = (length - head) / Width;
    const int edge = threadIdx.x >= length - packs * Width ? -1 : threadIdx.x < head ? threadIdx.x : packs * Width + threadIdx.x;
    const auto* in = reinterpret_cast<const Pack<Width>*>(x + begin + head);

    auto* out = reinterpret_cast<Pack<Width>*>(y + begin + head);
    const Stats stats = known[row];
#pragma unroll 4
    for (int p = threadIdx.x; p < packs; p += kThreads) {
        Pack<Width> v = in[p];
#pragma unroll
        for (int j = 0; j < Width; ++j) v.at[j] = result(v.at[j], stats);
        store_streaming(&out[p], v);
    }
    if (edge >= 0) {
        y[begin + edge] = result(x[begin + edge], stats);
    }
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 4, "x must have 4 dimensions");

    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    const int64_t rows = 1;
    const int64_t cols = x.size(0) * x.size(1) * x.size(2) * x.size(3);
    const int64_t chunks = (cols + kChunk - 1) / kChunk;
    const int64_t per_row = chunks;
    const int64_t blocks = rows * per_row;
    TORCH_CHECK(cols <= INT_MAX && blocks <= INT_MAX, "x is too large for one launch");
    // the statistics of each row, and what its chunks add to them
    auto stats = torch::zeros({rows, int64_t(sizeof(Stats) / sizeof(float))}, x.options());
    auto found = torch::empty({int64_t(sizeof(Part0) / sizeof(float)), blocks}, x.options());
    auto* known = reinterpret_cast<Stats*>(stats.data_ptr<float>());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    const float count = float(cols);
    // chunks may start anywhere: only the tensors themselves must start at a multiple of the pack
    const bool wide = aligned(in, sizeof(Pack<kWidth>)) && aligned(out, sizeof(Pack<kWidth>));
    if (wide) {
        reduce<kWidth, Part0><<<unsigned(blocks), kThreads, 0, stream>>>(
            in, known, found.data_ptr<float>(), rows, cols, per_row);
    } else {
        reduce<1, Part0><<<unsigned(blocks), kThreads, 0, stream>>>(
            in, known, found.data_ptr<float>(), rows, cols, per_row);
    }
    combine<Part0><<<unsigned(rows), kThreads, 0, stream>>>(found.data_ptr<float>(), known, rows, per_row, count);
    if (wide) {
        apply<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(in, known, out, rows, cols);
    } else {
        apply<1><<<unsigned(blocks), kThreads, 0, stream>>>(in, known, out, rows, cols);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Norm: linalg_vector_norm -> div");
}
#endif
