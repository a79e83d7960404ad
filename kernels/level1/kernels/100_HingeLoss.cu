// Mean of all elements: mul -> rsub -> clamp
//
// Recipe: total
// Strategy:
//   unroll(factor=2)
//   vector-load(width=4)
// Written for 32768x32768:float32, 32768:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

// mul -> rsub -> clamp
__device__ __forceinline__ float apply(float predictions, float targets) {
    const float v1 = predictions * targets;
    const float v2 = 1.0f - v1;
    const float v3 = v2 < 0.0f ? 0.0f : v2;
    return v3;
}

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;  // at most: every thread takes its share of the elements
constexpr int kWidth = 4;
constexpr int kUnroll = 2;

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// A sum for each place of a pack: they do not wait for each other, and each stays short, which keeps its last bits.
__device__ __forceinline__ void accumulate(float (&sums)[kWidth], Pack<kWidth> predictions_v, Pack<kWidth> targets_v) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[j] += apply(predictions_v.at[j], targets_v.at[j]);
}

// Only thread 0 has the sum of all.
template <typename T>
__device__ __forceinline__ T sum_of_block(T v) {
    __shared__ T parts[kThreads];
    parts[threadIdx.x] = v;
    for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            v += parts[threadIdx.x + half];
            parts[threadIdx.x] = v;
        }
    }
    return v;
}

// One block adds up what the others left behind.
__global__ void __launch_bounds__(kThreads)
total(const float* __restrict__ partials, float* __restrict__ out, int count, double divisor) {
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) *out = float(sum / divisor);
}

// Every thread sums its share of the elements.
template <typename Index>  // 32 bits where they suffice: indices are divided
__global__ void __launch_bounds__(kThreads)
partial_sums(const float* __restrict__ predictions, const float* __restrict__ targets, float* __restrict__ partials, Index d1,
            Index n, Index packs) {
    const auto* wide_predictions = reinterpret_cast<const Pack<kWidth>*>(predictions);
    float sums[kWidth] = {};
    const Index step = Index(gridDim.x) * (kThreads * kUnroll);
    for (Index first = Index(blockIdx.x) * (kThreads * kUnroll) + threadIdx.x; first < packs; first += step) {
        if (first + (kUnroll - 1) * kThreads < packs) {
            // all loads are on their way before the first is used
            Pack<kWidth> predictions_v[kUnroll];
            Pack<kWidth> targets_v[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const Index p = first + u * kThreads;
                predictions_v[u] = wide_predictions[p];
                targets_v[u] = *reinterpret_cast<const Pack<kWidth>*>(targets + (p * kWidth) % d1);
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) accumulate(sums, predictions_v[u], targets_v[u]);
        } else {  // the end of the data: fewer than kUnroll are left
            for (Index p = first; p < packs; p += kThreads) accumulate(sums, wide_predictions[p],
                    *reinterpret_cast<const Pack<kWidth>*>(targets + (p * kWidth) % d1));
        }
    }
    const Index thread = Index(blockIdx.x) * kThreads + threadIdx.x;
    for (Index i = packs * kWidth + thread; i < n; i += Index(gridDim.x) * kThreads) {
        sums[0] += apply(predictions[i], targets[i % d1]);
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += sums[j];
    partials[blockIdx.x * kThreads + threadIdx.x] = sum;
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor predictions, torch::Tensor targets) {
    TORCH_CHECK(predictions.is_cuda(), "predictions must be on a CUDA device");
    TORCH_CHECK(predictions.scalar_type() == torch::kFloat32, "predictions must be float32");
    TORCH_CHECK(predictions.is_contiguous(), "predictions must be contiguous");
    TORCH_CHECK(predictions.dim() == 2, "predictions must have 2 dimensions");
    TORCH_CHECK(targets.is_cuda(), "targets must be on a CUDA device");
    TORCH_CHECK(targets.scalar_type() == torch::kFloat32, "targets must be float32");
    TORCH_CHECK(targets.is_contiguous(), "targets must be contiguous");
    TORCH_CHECK(targets.dim() == 1, "targets must have 1 dimension");
    const int64_t d0 = predictions.size(0);
    const int64_t d1 = predictions.size(1);
    TORCH_CHECK(targets.numel() == d1, "targets does not have the size it should");
    const int64_t n = predictions.numel();
    // a view may start anywhere, and rows may be no multiple of a pack; then everything is left over for the scalar loop
    constexpr size_t bytes = sizeof(Pack<kWidth>);
    const bool wide = d1 % kWidth == 0
                      && aligned(predictions.data_ptr<float>(), bytes)
                      && aligned(targets.data_ptr<float>(), bytes);
    const int64_t packs = wide ? n / kWidth : 0;
    const int64_t items = packs > 0 ? packs : n;
    constexpr int64_t per_block = kThreads * kUnroll;
    constexpr int64_t most = kBlocks;
    const int64_t wanted = (items + per_block - 1) / per_block;
    const int64_t blocks = wanted < 1 ? 1 : wanted > most ? most : wanted;
    auto partials = torch::empty({blocks * kThreads}, predictions.options());
    auto out = torch::empty(at::IntArrayRef(), predictions.options());
    const double divisor = double(n);
    const auto stream = at::cuda::getCurrentCUDAStream();
    if (n <= INT_MAX) {
        partial_sums<<<unsigned(blocks), kThreads, 0, stream>>>(
            predictions.data_ptr<float>(), targets.data_ptr<float>(), partials.data_ptr<float>(), unsigned(d1), unsigned(n),
            unsigned(packs));
    } else {
        partial_sums<<<unsigned(blocks), kThreads, 0, stream>>>(
            predictions.data_ptr<float>(), targets.data_ptr<float>(), partials.data_ptr<float>(), int64_t(d1), int64_t(n),
            int64_t(packs));
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    total<<<1, kThreads, 0, stream>>>(
        partials.data_ptr<float>(), out.data_ptr<float>(), int(partials.numel()), divisor);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Mean of all elements: mul -> rsub -> clamp");
}
#endif
