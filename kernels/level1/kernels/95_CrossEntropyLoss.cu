// Mean over rows of the cross entropy
//
// Recipe: row_loss
// Strategy:
//   last-block-finish
//   two-stage-reduction
//   unroll(factor=2)
//   vector-load(width=4)
//   warp-per-row
//   warp-shuffle
// Written for 32768x4096:float32, 32768:int64; correct for every shape of the same rank.

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
constexpr int64_t kIgnored = -100;  // rows with this label do not count

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// The maximum so far, and the sum of exp(value - maximum) so far.
struct State {
    float peak = -FLT_MAX;
    float sum = 0.0f;
};

template <int Width>
__device__ __forceinline__ void absorb(State& state, const Pack<Width>& v) {
    float top = v.at[0];
#pragma unroll
    for (int j = 1; j < Width; ++j) top = fmaxf(top, v.at[j]);
    if (top > state.peak) {  // rare after the first few values
        state.sum *= expf(state.peak - top);
        state.peak = top;
    }
#pragma unroll
    for (int j = 0; j < Width; ++j) state.sum += expf(v.at[j] - state.peak);
}

__device__ __forceinline__ State merged(State a, State b) {
    const float peak = fmaxf(a.peak, b.peak);
    return {peak, a.sum * expf(a.peak - peak) + b.sum * expf(b.peak - peak)};
}

__device__ __forceinline__ State from_lane(State v, int mask) {
    return {__shfl_xor_sync(0xffffffffu, v.peak, mask), __shfl_xor_sync(0xffffffffu, v.sum, mask)};
}

// Of a row that has all its values: the logarithm of their sum over the one that should be large.
__device__ __forceinline__ float row_loss(State state, const float* logits, int cols, int64_t label) {
    if (label == kIgnored) return 0.0f;
    if (label < 0 || label >= cols) return NAN;  // PyTorch stops here
    return logf(state.sum) - (logits[label] - state.peak);
}

// What a thread learns from its share of a row: every kGroup-th pack.
template <int Width>
__device__ __forceinline__ State scan(
    const float* __restrict__ logits,
    int cols, int rank) {
    const auto* logits_in = reinterpret_cast<const Pack<Width>*>(logits);
    State state;
    const int packs = cols / Width;
    int p = rank;
    for (; p + (kUnroll - 1) * kGroup < packs; p += kUnroll * kGroup) {
        // all loads are on their way before the first is used
        Pack<Width> logits_v[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            logits_v[u] = logits_in[p + u * kGroup];
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) absorb(state, logits_v[u]);
    }
    for (; p < packs; p += kGroup) absorb(state, logits_in[p]);
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
total(const float* __restrict__ logits, const int64_t* __restrict__ labels,
      float* __restrict__ partials, unsigned* __restrict__ arrived, float* __restrict__ out, int64_t rows, int cols) {
    constexpr int kRows = kThreads / kGroup;
    const int rank = threadIdx.x % kGroup;
    float part = 0.0f;
    float part_valid = 0.0f;
    for (int64_t row = int64_t(blockIdx.x) * kRows + threadIdx.x / kGroup; row < rows; row += int64_t(gridDim.x) * kRows) {
        const State state = merge_warp(scan<Width>(logits + row * cols, cols, rank));
        if (rank == 0) {  // one lane of each warp counts
            part += row_loss(state, logits + row * cols, cols, labels[row]);
            part_valid += labels[row] != kIgnored ? 1.0f : 0.0f;
        }
    }
    part = sum_of_block(part);
    __syncthreads();  // the same shared memory again
    part_valid = sum_of_block(part_valid);
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = part;
        partials[gridDim.x + blockIdx.x] = part_valid;
        __threadfence();  // the sums must be there before the count says so
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double sum = 0.0;
    double valid = 0.0;
    for (int i = threadIdx.x; i < int(gridDim.x); i += kThreads) {
        sum += __ldcg(partials + i);
        valid += __ldcg(partials + int(gridDim.x) + i);
    }
    sum = sum_of_block(sum);
    __syncthreads();  // the same shared memory again
    valid = sum_of_block(valid);
    if (threadIdx.x == 0) *out = float(sum / valid);
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor logits, torch::Tensor labels) {
    TORCH_CHECK(logits.is_cuda(), "logits must be on a CUDA device");
    TORCH_CHECK(logits.scalar_type() == torch::kFloat32, "logits must be float32");
    TORCH_CHECK(logits.is_contiguous(), "logits must be contiguous");
    TORCH_CHECK(logits.dim() == 2, "logits must have two dimensions");
    const int64_t rows = logits.size(0);
    const int64_t cols = logits.size(1);
    TORCH_CHECK(labels.is_cuda() && labels.is_contiguous(), "labels must be contiguous and on a CUDA device");
    TORCH_CHECK(labels.scalar_type() == torch::kInt64, "labels must be int64");
    TORCH_CHECK(labels.dim() == 1 && labels.size(0) == rows, "there must be one label for each row");
    auto out = torch::empty(at::IntArrayRef(), logits.options());
    constexpr int64_t rows_per_block = kThreads / kGroup;
    constexpr int64_t most = kBlocks;
    const int64_t wanted = (rows + rows_per_block - 1) / rows_per_block;
    const int64_t blocks = wanted < 1 ? 1 : wanted > most ? most : wanted;
    const int64_t count = blocks;
    TORCH_CHECK(cols <= INT_MAX && count <= INT_MAX, "there are too many rows or columns for one launch");
    auto partials = torch::empty({count * 2}, logits.options());
    auto arrived = torch::zeros({1}, logits.options().dtype(torch::kInt32));
    const auto stream = at::cuda::getCurrentCUDAStream();
    // every row must start at a multiple of the pack, or one float is taken at a time
    constexpr size_t bytes = sizeof(Pack<kWidth>);
    bool wide = cols % kWidth == 0;
    wide = wide && aligned(logits.data_ptr<float>(), bytes);
    if (wide) {
        total<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(
            logits.data_ptr<float>(), labels.data_ptr<int64_t>(),
            partials.data_ptr<float>(), reinterpret_cast<unsigned*>(arrived.data_ptr<int>()), out.data_ptr<float>(), rows, int(cols));
    } else {
        total<1><<<unsigned(blocks), kThreads, 0, stream>>>(
            logits.data_ptr<float>(), labels.data_ptr<int64_t>(),
            partials.data_ptr<float>(), reinterpret_cast<unsigned*>(arrived.data_ptr<int>()), out.data_ptr<float>(), rows, int(cols));
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Mean over rows of the cross entropy");
}
#endif
