// Product of a matrix and a vector
//
// Recipe: reduction
// Strategy:
//   block-per-row
//   several-rows(rows=4)
//   unroll(factor=2)
//   vector-load(width=4)
//   warp-shuffle
// Written for 2048x1048576:float32, 1048576x1:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

// x * x1
__device__ __forceinline__ float prepared(float x, float x1) {
    const float v1 = x * x1;
    return v1;
}

constexpr int kThreads = 256;
constexpr int kGroup = kThreads;  // threads that share a row
constexpr int kRows = 4;
constexpr int kWidth = 4;
constexpr int kUnroll = 2;
constexpr int kChunk = 512;  // accesses that are summed on their own, or a long sum would lose its last bits
using Result = float;

// Neighbouring elements that travel in one access; the address must be a multiple of the size.
template <class T, int Width>
struct alignas(Width * sizeof(T)) Pack {
    T at[Width];
};

template <int Width, class T>
__device__ __forceinline__ Pack<T, Width> pack_at(const T* from, int64_t at) {
    return *reinterpret_cast<const Pack<T, Width>*>(from + at);
}

template <int Width>
__device__ __forceinline__ Pack<float, Width> fetch(const float* x, const float* x1, int64_t at) {
    const Pack<float, Width> x_pack = pack_at<Width>(x, at);
    const Pack<float, Width> x1_pack = pack_at<Width>(x1, at);
    Pack<float, Width> v;
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        v.at[j] = prepared(x_pack.at[j], x1_pack.at[j]);
    }
    return v;
}

using Part = float;

__device__ __forceinline__ Part merged(Part a, Part b) { return a + b; }

__device__ __forceinline__ Part warp_merged(Part part) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        part = merged(part, __shfl_xor_sync(0xffffffffu, part, lane));
    }
    return part;
}

template <int Width>
__device__ __forceinline__ Part merged(Pack<float, Width> v) {
#pragma unroll
    for (int half = Width / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; ++j) v.at[j] = merged(v.at[j], v.at[j + half]);
    }
    return v.at[0];
}

// One block for kRows rows, in packs of Width elements.
template <int Width>
__global__ void __launch_bounds__(kThreads)
reduce(const float* __restrict__ x, const float* __restrict__ x1, Result* __restrict__ y, int64_t rows, int length) {
    const int64_t row = int64_t(blockIdx.x) * kRows;
    const int rank = threadIdx.x;
    int64_t origin[kRows];
    Part part[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        origin[r] = min(row + r, rows - 1) * length;  // past the end: the last row once more
        part[r] = 0.0f;
    }
    const int packs = length / Width;
    for (int start = rank; start < packs; start += kChunk * kGroup) {
        const int end = min(start + kChunk * kGroup, packs);
        Part sum[kRows] = {};
        int k = start;
        for (; k + (kUnroll - 1) * kGroup < end; k += kUnroll * kGroup) {
            Pack<float, Width> v[kUnroll][kRows];  // all loads are on their way before the first is used
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
                for (int r = 0; r < kRows; ++r) v[u][r] = fetch<Width>(x + origin[r], x1, int64_t(k + u * kGroup) * Width);
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
                for (int r = 0; r < kRows; ++r) sum[r] = merged(sum[r], merged(v[u][r]));
            }
        }
        for (; k < end; k += kGroup) {
            Pack<float, Width> v[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) v[r] = fetch<Width>(x + origin[r], x1, int64_t(k) * Width);
#pragma unroll
            for (int r = 0; r < kRows; ++r) sum[r] = merged(sum[r], merged(v[r]));
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) part[r] = merged(part[r], sum[r]);
    }
    constexpr int kWarps = kThreads / 32;
    __shared__ Part parts[kRows][kWarps];
    const int lane = rank % 32;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        part[r] = warp_merged(part[r]);
        if (lane == 0) parts[r][rank / 32] = part[r];
    }
    __syncthreads();
    if (rank >= 32) return;  // the first warp finishes
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        part[r] = warp_merged(lane < kWarps ? parts[r][lane] : 0.0f);
        if (lane == 0 && row + r < rows) y[row + r] = part[r];
    }
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor x, torch::Tensor x1) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x1.is_cuda(), "x1 must be on a CUDA device");
    TORCH_CHECK(x1.scalar_type() == torch::kFloat32, "x1 must be float32");
    TORCH_CHECK(x1.is_contiguous(), "x1 must be contiguous");
    TORCH_CHECK(x.dim() == 2, "x must have 2 dimensions");
    const int64_t outer = x.size(0);
    const int64_t length = x.size(1);
    const int64_t inner = 1;
    TORCH_CHECK(x1.numel() == length, "x1 must be as long as the sums");
    TORCH_CHECK(length >= 0 && length <= (1 << 30), "x is too long where it is reduced");
    auto y = torch::empty({x.size(0), 1}, x.options());
    const int64_t results = outer * inner;
    if (results == 0) return y;
    // every row must start at a multiple of the pack, or one element is taken at a time
    const bool wide = length % kWidth == 0 &&
        aligned(x.data_ptr<float>(), kWidth * sizeof(float)) &&
        aligned(x1.data_ptr<float>(), kWidth * sizeof(float));
    constexpr int64_t per_block = kRows;
    const int64_t blocks = (results + per_block - 1) / per_block;
    TORCH_CHECK(blocks <= INT_MAX, "x is too large for one launch");
    const auto stream = at::cuda::getCurrentCUDAStream();
    if (wide) {
        reduce<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(
            x.data_ptr<float>(), x1.data_ptr<float>(), y.data_ptr<Result>(), results, int(length));
    } else {
        reduce<1><<<unsigned(blocks), kThreads, 0, stream>>>(
            x.data_ptr<float>(), x1.data_ptr<float>(), y.data_ptr<Result>(), results, int(length));
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Product of a matrix and a vector");
}
#endif
