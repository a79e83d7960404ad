// Norm: linalg_vector_norm -> div
//
// Recipe: norm_rows
// Strategy:
//   block-per-row
//   block-size(threads=1024)
//   register-cache
//   shared-cache
//   vector-load(width=4)
//   warp-shuffle
// Written for 32768x65535:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kThreads = 1024;
constexpr int kGroup = kThreads;  // threads that share a row
constexpr int kWidth = 4;
constexpr int kSlots = 8;  // packs of a row that a thread keeps in registers
constexpr int kReserved = 1 * 1024;  // bytes of shared memory that the reductions may use

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

// One block per row, in packs of Width floats.
// The first part of a row is kept in registers, the next in shared memory.
// What is not kept is read again from its end: that is what the caches still have.
template <int Width>
__global__ void __launch_bounds__(kThreads)
normalize(const float* __restrict__ x, float* __restrict__ y, int64_t rows, int cols, int64_t held) {
    const int64_t row = blockIdx.x;
    const int rank = threadIdx.x;
    const int64_t begin = row * cols;
    // whole packs from the first aligned address on; the few floats around them go to one thread each
    const int head = int((Width - begin % Width) % Width);
    const int packs = (cols - head) / Width;
    const int edge = rank >= cols - packs * Width ? -1 : rank < head ? rank : packs * Width + rank;
    const float edge_value = edge >= 0 ? x[begin + edge] : 0.0f;
    const auto* in = reinterpret_cast<const Pack<Width>*>(x + begin + head);
    auto* out = reinterpret_cast<Pack<Width>*>(y + begin + head);
    extern __shared__ __align__(16) float row_cache[];  // a thread re-reads only what it wrote itself: no barrier
    auto* cached = reinterpret_cast<Pack<Width>*>(row_cache);
    const int cache_begin = kSlots * kGroup;
    const int rest = min(packs, cache_begin + int(held / Width));  // from here on nothing is kept
    const int first = rest + rank;
    const int last = first < packs ? first + (packs - 1 - first) / kGroup * kGroup : -1;

    Stats stats;
    Part0 part0;
    Pack<Width> kept[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) kept[s] = in[min(rank + s * kGroup, packs - 1)];  // all loads on their way
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
        if (rank + s * kGroup < packs) absorb(part0, kept[s], stats);
    for (int p = cache_begin + rank; p < rest; p += kGroup) {
        const Pack<Width> v = in[p];
        cached[p - cache_begin] = v;
        absorb(part0, v, stats);
    }
    for (int p = first; p < packs; p += kGroup) absorb(part0, in[p], stats);
    if (edge >= 0) absorb(part0, Pack<1>{edge_value}, stats);
    finish(block_merge(part0), float(cols), stats);

    const auto mapped = [&](Pack<Width> v, int p) {
#pragma unroll
        for (int j = 0; j < Width; ++j) v.at[j] = result(v.at[j], stats);
        out[p] = v;
    };
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
        if (rank + s * kGroup < packs) mapped(kept[s], rank + s * kGroup);
    for (int p = cache_begin + rank; p < rest; p += kGroup) mapped(cached[p - cache_begin], p);
    for (int p = last; p >= rest; p -= kGroup) mapped(in[p], p);
    if (edge >= 0) y[begin + edge] = result(edge_value, stats);
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 2, "x must have 2 dimensions");

    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    const int64_t rows = x.size(0);
    const int64_t cols = x.size(1);
    const int64_t blocks = rows;
    TORCH_CHECK(cols <= INT_MAX - kThreads && blocks <= INT_MAX, "x is too large for one launch");
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    // rows may start anywhere: only the tensors themselves must start at a multiple of the pack
    const bool wide = cols >= 2 * kWidth && aligned(in, sizeof(Pack<kWidth>)) && aligned(out, sizeof(Pack<kWidth>));
    // what is kept of a row in shared memory: all of it that the registers do not hold, or as much as fits
    int device = 0;
    int most = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    most -= kReserved;
    int64_t held = cols - int64_t(kSlots) * kGroup * (wide ? kWidth : 1);
    held = held < 0 ? 0 : held > most / 4 ? most / 4 : held;
    held -= held % 4;
    const size_t bytes = size_t(held) * sizeof(float);
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        normalize<kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        normalize<1>, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    if (wide) {
        normalize<kWidth><<<unsigned(blocks), kThreads, bytes, stream>>>(in, out, rows, int(cols), held);
    } else {
        normalize<1><<<unsigned(blocks), kThreads, bytes, stream>>>(in, out, rows, int(cols), held);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Norm: linalg_vector_norm -> div");
}
#endif
