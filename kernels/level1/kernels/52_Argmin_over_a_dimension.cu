// Place of the smallest value over dimension 1
//
// Recipe: reduction
// Strategy:
//   unroll(factor=8)
// Written for 128x4096x4095:float32; correct for every shape of the same rank.

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
constexpr int kUnroll = 8;
using Result = int64_t;

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
__device__ __forceinline__ Pack<float, Width> fetch(const float* x, int64_t at) {
    const Pack<float, Width> x_pack = pack_at<Width>(x, at);
    return x_pack;
}

// The best value so far and its place; NaN beats every number, the first of equals stays, as in PyTorch.
struct Part {
    float value;
    int place;
};

__device__ __forceinline__ void absorb(Part& part, float v, int place) {
    if (v < part.value || (v != v && part.value == part.value)) part = {v, place};
}

// One thread for each pack of Width neighbouring results.
template <int Width>
__global__ void __launch_bounds__(kThreads)
reduce(const float* __restrict__ x, Result* __restrict__ y, int64_t results, int length, int64_t inner) {
    const int64_t result = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * Width;
    if (result >= results) return;
    Part part[Width];
#pragma unroll
    for (int j = 0; j < Width; ++j) part[j] = Part{INFINITY, 0};
    const int64_t origin = result / inner * length * inner + result % inner;
    const int end = length;
    int k = 0;
    for (; k + (kUnroll - 1) * 1 < end; k += kUnroll * 1) {
        Pack<float, Width> v[kUnroll];  // all loads are on their way before the first is used
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) v[u] = fetch<Width>(x, origin + int64_t(k + u * 1) * inner);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int j = 0; j < Width; ++j) absorb(part[j], v[u].at[j], k + u * 1);
        }
    }
    for (; k < end; k += 1) {
        const Pack<float, Width> v = fetch<Width>(x, origin + int64_t(k) * inner);
#pragma unroll
        for (int j = 0; j < Width; ++j) absorb(part[j], v.at[j], k);
    }
#pragma unroll
    for (int j = 0; j < Width; ++j) y[result + j] = part[j].place;
}

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 3, "x must have 3 dimensions");
    const int64_t outer = x.size(0);
    const int64_t length = x.size(1);
    const int64_t inner = x.size(2);
    TORCH_CHECK(length > 0 && length <= (1 << 30), "x is too short or too long where it is reduced");
    auto y = torch::empty({x.size(0), x.size(2)}, x.options().dtype(torch::kInt64));
    const int64_t results = outer * inner;
    if (results == 0) return y;
    constexpr int64_t per_block = kThreads;
    const int64_t blocks = (results + per_block - 1) / per_block;
    TORCH_CHECK(blocks <= INT_MAX, "x is too large for one launch");
    const auto stream = at::cuda::getCurrentCUDAStream();
    reduce<1><<<unsigned(blocks), kThreads, 0, stream>>>(
        x.data_ptr<float>(), y.data_ptr<Result>(), results, int(length), inner);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Place of the smallest value over dimension 1");
}
#endif
