// Mean over rows of the triplet margin loss
//
// Recipe: row_loss
// Strategy:
//   last-block-finish
//   two-stage-reduction
//   unroll(factor=2)
//   vector-load(width=4)
//   warp-per-row
//   warp-shuffle
// Written for 32768x8192:float32, 32768x8192:float32, 32768x8192:float32; correct for every shape of the same rank.

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
constexpr int kGroup = 32;  // threads that share a row
constexpr int kBlocks = 1024;  // at most: every warp takes its share of the rows
constexpr int kWidth = 4;
constexpr int kUnroll = 2;
constexpr float kMargin = 1.0f;
constexpr float kEps = 1e-06f;  // added to every difference

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// Sums of the squared differences so far.
struct State {
    float near = 0.0f;
    float far = 0.0f;
};

template <int Width>
__device__ __forceinline__ void absorb(
    State& state, const Pack<Width>& anchor, const Pack<Width>& positive, const Pack<Width>& negative) {
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        const float near = anchor.at[j] - positive.at[j] + kEps;
        state.near += near * near;
        const float far = anchor.at[j] - negative.at[j] + kEps;
        state.far += far * far;
    }
}

__device__ __forceinline__ State merged(State a, State b) {
    return {a.near + b.near, a.far + b.far};
}

__device__ __forceinline__ State from_lane(State v, int mask) {
    return {__shfl_xor_sync(0xffffffffu, v.near, mask), __shfl_xor_sync(0xffffffffu, v.far, mask)};
}

// Of a row that has all its values: how much nearer the positive should be; NaN stays.
__device__ __forceinline__ float row_loss(State state) {
    const float loss = kMargin + sqrtf(state.near) - sqrtf(state.far);
    return loss < 0.0f ? 0.0f : loss;
}

// What a thread learns from its share of a row: every kGroup-th pack.
template <int Width>
__device__ __forceinline__ State scan(
    const float* __restrict__ anchor, const float* __restrict__ positive, const float* __restrict__ negative,
    int cols, int rank) {
    const auto* anchor_in = reinterpret_cast<const Pack<Width>*>(anchor);
    const auto* positive_in = reinterpret_cast<const Pack<Width>*>(positive);
    const auto* negative_in = reinterpret_cast<const Pack<Width>*>(negative);
    State state;
    const int packs = cols / Width;
    int p = rank;
    for (; p + (kUnroll - 1) * kGroup < packs; p += kUnroll * kGroup) {
        // all loads are on their way before the first is used
        Pack<Width> anchor_v[kUnroll];
        Pack<Width> positive_v[kUnroll];
        Pack<Width> negative_v[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            anchor_v[u] = anchor_in[p + u * kGroup];
            positive_v[u] = positive_in[p + u * kGroup];
            negative_v[u] = negative_in[p + u * kGroup];
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) absorb(state, anchor_v[u], positive_v[u], negative_v[u]);
    }
    for (; p < packs; p += kGroup) absorb(state, anchor_in[p], positive_in[p], negative_in[p]);
    return state;
}

__device__ __forceinline__ State merge_warp(State state) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) state = merged(state, from_lane(state, mask));
    return state;
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

// Losses of the rows, one warp per row, added up in every block.
// The last block to be done adds up what all have left in `partials`, in a fixed order.
template <int Width>
__global__ void __launch_bounds__(kThreads)
total(const float* __restrict__ anchor, const float* __restrict__ positive, const float* __restrict__ negative,
      float* __restrict__ partials, unsigned* __restrict__ arrived, float* __restrict__ out, int64_t rows, int cols, double divisor) {
    constexpr int kRows = kThreads / kGroup;
    const int rank = threadIdx.x % kGroup;
    float part = 0.0f;
    for (int64_t row = int64_t(blockIdx.x) * kRows + threadIdx.x / kGroup; row < rows; row += int64_t(gridDim.x) * kRows) {
        const State state = merge_warp(scan<Width>(anchor + row * cols, positive + row * cols, negative + row * cols, cols, rank));
        if (rank == 0) {  // one lane of each warp counts
            part += row_loss(state);
        }
    }
    part = sum_of_block(part);
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = part;
        __threadfence();  // the sums must be there before the count says so
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double sum = 0.0;
    for (int i = threadIdx.x; i < int(gridDim.x); i += kThreads) {
        sum += __ldcg(partials + i);
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) *out = float(sum / divisor);
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor anchor, torch::Tensor positive, torch::Tensor negative) {
    TORCH_CHECK(anchor.is_cuda(), "anchor must be on a CUDA device");
    TORCH_CHECK(anchor.scalar_type() == torch::kFloat32, "anchor must be float32");
    TORCH_CHECK(anchor.is_contiguous(), "anchor must be contiguous");
    TORCH_CHECK(anchor.dim() == 2, "anchor must have two dimensions");
    TORCH_CHECK(positive.is_cuda(), "positive must be on a CUDA device");
    TORCH_CHECK(positive.scalar_type() == torch::kFloat32, "positive must be float32");
    TORCH_CHECK(positive.is_contiguous(), "positive must be contiguous");
    TORCH_CHECK(positive.dim() == 2, "positive must have two dimensions");
    TORCH_CHECK(negative.is_cuda(), "negative must be on a CUDA device");
    TORCH_CHECK(negative.scalar_type() == torch::kFloat32, "negative must be float32");
    TORCH_CHECK(negative.is_contiguous(), "negative must be contiguous");
    TORCH_CHECK(negative.dim() == 2, "negative must have two dimensions");
    const int64_t rows = anchor.size(0);
    const int64_t cols = anchor.size(1);
    TORCH_CHECK(positive.sizes() == anchor.sizes(), "all tensors must have one shape");
    TORCH_CHECK(negative.sizes() == anchor.sizes(), "all tensors must have one shape");
    auto out = torch::empty(at::IntArrayRef(), anchor.options());
    constexpr int64_t rows_per_block = kThreads / kGroup;
    constexpr int64_t most = kBlocks;
    const int64_t wanted = (rows + rows_per_block - 1) / rows_per_block;
    const int64_t blocks = wanted < 1 ? 1 : wanted > most ? most : wanted;
    const int64_t count = blocks;
    TORCH_CHECK(cols <= INT_MAX && count <= INT_MAX, "there are too many rows or columns for one launch");
    auto partials = torch::empty({count}, anchor.options());
    auto arrived = torch::zeros({1}, anchor.options().dtype(torch::kInt32));
    const double divisor = double(rows);
    const auto stream = at::cuda::getCurrentCUDAStream();
    // every row must start at a multiple of the pack, or one float is taken at a time
    constexpr size_t bytes = sizeof(Pack<kWidth>);
    bool wide = cols % kWidth == 0;
    wide = wide && aligned(anchor.data_ptr<float>(), bytes);
    wide = wide && aligned(positive.data_ptr<float>(), bytes);
    wide = wide && aligned(negative.data_ptr<float>(), bytes);
    if (wide) {
        total<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(
            anchor.data_ptr<float>(), positive.data_ptr<float>(), negative.data_ptr<float>(),
            partials.data_ptr<float>(), reinterpret_cast<unsigned*>(arrived.data_ptr<int>()), out.data_ptr<float>(), rows, int(cols), divisor);
    } else {
        total<1><<<unsigned(blocks), kThreads, 0, stream>>>(
            anchor.data_ptr<float>(), positive.data_ptr<float>(), negative.data_ptr<float>(),
            partials.data_ptr<float>(), reinterpret_cast<unsigned*>(arrived.data_ptr<int>()), out.data_ptr<float>(), rows, int(cols), divisor);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Mean over rows of the triplet margin loss");
}
#endif
