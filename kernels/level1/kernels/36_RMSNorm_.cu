// Norm: pow -> mean -> add -> sqrt -> div
//
// Recipe: norm_columns
// Strategy:
//   read-only-path
//   register-cache
//   split-length(parts=4)
//   vector-load(width=4)
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

constexpr int kThreads = 256;
constexpr int kParts = 4;  // threads that share a column
constexpr int kColumns = kThreads / kParts;
constexpr int kWidth = 4;
constexpr int kSlots = 16;  // elements of a column that a thread keeps
constexpr int kChunk = 256;  // reduced on its own, or a long column's sum would lose its last bits

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// What is known of a row once it has been read.
struct Stats {
    float s[1];
};

// Stage 1: the sum over a row of pow.
struct Part0 {
    float at[1] = {0.0f};
};

__device__ __forceinline__ float term0(float x, const Stats&) {
    const float v1 = x * x;
    return v1;
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

__device__ __forceinline__ void finish(const Part0& part, float count, Stats& stats) {
    const float total = part.at[0];
    stats.s[0] = total / count;
}

// One element of the result: add -> sqrt -> div.
__device__ __forceinline__ float result(float x, const Stats& stats) {
    const float s0 = stats.s[0];
    const float v1 = s0 + 1e-05f;
    const float v2 = sqrtf(v1);
    const float v3 = x / v2;
    return v3;
}

// What the threads of a column have together; every one of them gets it. Each type of part is merged once per block.
template <int Width, class Part>
__device__ __forceinline__ void column_merge(Part (&mine)[Width]) {
    constexpr int kFields = sizeof(Part) / sizeof(float);
    __shared__ Pack<Width> parts[kFields][kThreads];
#pragma unroll
    for (int i = 0; i < kFields; ++i)
#pragma unroll
        for (int j = 0; j < Width; ++j) parts[i][threadIdx.x].at[j] = mine[j].at[i];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < Width; ++j) mine[j] = Part();
    for (int t = threadIdx.x % kColumns; t < kThreads; t += kColumns) {
#pragma unroll
        for (int j = 0; j < Width; ++j) {
            Part other;
#pragma unroll
            for (int i = 0; i < kFields; ++i) other.at[i] = parts[i][t].at[j];
            merge(mine[j], other);
        }
    }
}

// Some threads per column (Width columns side by side): lanes of a warp walk the contiguous axis, steps go from element to element
// of a column, `inner` apart.
// The first kSlots * kParts elements of a column are read once and kept.
template <int Width>
__global__ void __launch_bounds__(kThreads)
normalize(const float* __restrict__ x, float* __restrict__ y, int64_t items, int cols, int64_t inner) {
    // threads without a column of their own repeat the last one, for the barriers' sake, and store nothing
    const int64_t item = int64_t(blockIdx.x) * kColumns + threadIdx.x % kColumns;
    const bool stores = item < items;
    const int64_t column = (stores ? item : items - 1) * Width;
    const int part = threadIdx.x / kColumns;
    const int64_t begin = column / inner * cols * inner + column % inner;
    const auto load = [&](int i) { return *reinterpret_cast<const Pack<Width>*>(x + begin + i * inner); };

    Stats stats[Width];
    Pack<Width> kept[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) kept[s] = load(min(part + s * kParts, cols - 1));  // all loads on their way
    Part0 part0[Width];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
        if (part + s * kParts < cols) {
#pragma unroll
            for (int j = 0; j < Width; ++j) absorb(part0[j], Pack<1>{kept[s].at[j]}, stats[j]);
        }
    }
    for (int first = part + kSlots * kParts; first < cols; first += kChunk * kParts) {
        Part0 chunk[Width];
        const int end = min(first + kChunk * kParts, cols);
        for (int i = first; i < end; i += kParts) {
            const Pack<Width> v = load(i);
#pragma unroll
            for (int j = 0; j < Width; ++j) absorb(chunk[j], Pack<1>{v.at[j]}, stats[j]);
        }
#pragma unroll
        for (int j = 0; j < Width; ++j) merge(part0[j], chunk[j]);
    }
    column_merge<Width>(part0);
#pragma unroll
    for (int j = 0; j < Width; ++j) finish(part0[j], float(cols), stats[j]);
    if (!stores) return;

    const auto mapped = [&](Pack<Width> v, int i) {
        const int64_t at = begin + i * inner;
#pragma unroll
        for (int j = 0; j < Width; ++j) v.at[j] = result(v.at[j], stats[j]);
        *reinterpret_cast<Pack<Width>*>(y + at) = v;
    };
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
        if (part + s * kParts < cols) mapped(kept[s], part + s * kParts);
    for (int i = part + kSlots * kParts; i < cols; i += kParts) mapped(load(i), i);
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
    const int64_t cols = x.size(1);
    const int64_t inner = x.size(2) * x.size(3);
    const int64_t columns = x.numel() / cols;
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    // neighbouring columns must stay neighbours at every step, or a thread takes one
    constexpr size_t bytes = sizeof(Pack<kWidth>);
    const bool wide = inner % kWidth == 0 && aligned(in, bytes) && aligned(out, bytes);
    const int64_t items = wide ? columns / kWidth : columns;
    const int64_t blocks = (items + kColumns - 1) / kColumns;
    TORCH_CHECK(cols <= INT_MAX / 2 && blocks <= INT_MAX, "x is too large for one launch");
    if (wide) {
        normalize<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(in, out, items, int(cols), inner);
    } else {
        normalize<1><<<unsigned(blocks), kThreads, 0, stream>>>(in, out, items, int(cols), inner);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Norm: pow -> mean -> add -> sqrt -> div");
}
#endif
