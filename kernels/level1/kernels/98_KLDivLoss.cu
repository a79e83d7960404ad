// Sum over the number of rows of all elements: log -> kl_div
//
// Recipe: total
// Strategy:
//   grid-stride(blocks_per_sm=8)
//   last-block-finish
//   two-stage-reduction
//   vector-load(width=4)
//   warp-shuffle
// Written for 16384x16384:float32, 16384x16384:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

// log -> kl_div
__device__ __forceinline__ float apply(float predictions, float targets) {
    const float v1 = logf(predictions);
    const float v2 = (targets == 0.0f ? 0.0f : targets * logf(targets)) - targets * v1;
    return v2;
}

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 8;
constexpr int kWidth = 4;

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

template <typename T>
__device__ __forceinline__ T sum_of_warp(T v) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
    return v;
}

// Only thread 0 has the sum of all.
template <typename T>
__device__ __forceinline__ T sum_of_block(T v) {
    constexpr int kWarps = kThreads / 32;
    __shared__ T parts[kWarps];
    const int lane = threadIdx.x % 32;
    v = sum_of_warp(v);
    if (lane == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    return threadIdx.x < 32 ? sum_of_warp(lane < kWarps ? parts[lane] : T(0)) : T(0);
}

// Every block sums its share and leaves the sum in `partials`; the last one to do so adds them up, in a fixed order.
__global__ void __launch_bounds__(kThreads)
total(const float* __restrict__ predictions, const float* __restrict__ targets, float* __restrict__ partials,
            unsigned* __restrict__ arrived, float* __restrict__ out, int64_t n, int64_t packs, double divisor) {
    const auto* wide_predictions = reinterpret_cast<const Pack<kWidth>*>(predictions);
    const auto* wide_targets = reinterpret_cast<const Pack<kWidth>*>(targets);
    float sums[kWidth] = {};
    const int64_t step = int64_t(gridDim.x) * kThreads;
    for (int64_t first = int64_t(blockIdx.x) * kThreads + threadIdx.x; first < packs; first += step) {
        accumulate(sums, wide_predictions[first], wide_targets[first]);
    }
    const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    for (int64_t i = packs * kWidth + thread; i < n; i += int64_t(gridDim.x) * kThreads) {
        sums[0] += apply(predictions[i], targets[i]);
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += sums[j];
    const float part = sum_of_block(sum);
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = part;
        __threadfence();  // the sum must be there before the count says so
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double sum_of_all = 0.0;
    for (int i = threadIdx.x; i < int(gridDim.x); i += kThreads) sum_of_all += __ldcg(partials + i);  // from L2: others wrote it
    sum_of_all = sum_of_block(sum_of_all);
    if (threadIdx.x == 0) *out = float(sum_of_all / divisor);
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor predictions, torch::Tensor targets) {
    TORCH_CHECK(predictions.is_cuda(), "predictions must be on a CUDA device");
    TORCH_CHECK(predictions.scalar_type() == torch::kFloat32, "predictions must be float32");
    TORCH_CHECK(predictions.is_contiguous(), "predictions must be contiguous");
    TORCH_CHECK(targets.is_cuda(), "targets must be on a CUDA device");
    TORCH_CHECK(targets.scalar_type() == torch::kFloat32, "targets must be float32");
    TORCH_CHECK(targets.is_contiguous(), "targets must be contiguous");
    TORCH_CHECK(targets.sizes() == predictions.sizes(), "all tensors must have one shape");
    const int64_t n = predictions.numel();
    // a view may start anywhere; then everything is left over for the scalar loop
    constexpr size_t bytes = sizeof(Pack<kWidth>);
    const bool wide = aligned(predictions.data_ptr<float>(), bytes)
                      && aligned(targets.data_ptr<float>(), bytes);
    const int64_t packs = wide ? n / kWidth : 0;
    const int64_t items = packs > 0 ? packs : n;
    constexpr int64_t per_block = kThreads;
    int device = 0;
    int sms = 1;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    const int64_t most = int64_t(sms) * kBlocksPerSm;
    const int64_t wanted = (items + per_block - 1) / per_block;
    const int64_t blocks = wanted < 1 ? 1 : wanted > most ? most : wanted;
    auto partials = torch::empty({blocks}, predictions.options());
    auto out = torch::empty(at::IntArrayRef(), predictions.options());
    auto arrived = torch::zeros({1}, predictions.options().dtype(torch::kInt32));
    const double divisor = double(predictions.size(0));
    const auto stream = at::cuda::getCurrentCUDAStream();
    total<<<unsigned(blocks), kThreads, 0, stream>>>(
        predictions.data_ptr<float>(), targets.data_ptr<float>(), partials.data_ptr<float>(),
        reinterpret_cast<unsigned*>(arrived.data_ptr<int>()), out.data_ptr<float>(), n, packs, divisor);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Sum over the number of rows of all elements: log -> kl_div");
}
#endif
