// Logarithm of softmax over the last dimension
//
// Recipe: softmax_long
// Strategy:
//   block-per-row
//   online-softmax
//   row-team(elements=16384)
//   vector-load(width=4)
//   warp-shuffle
// Written for 4096x393216:float32; correct for every shape of the same rank.

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
constexpr int kTeam = 24;  // blocks that share a row, if they can keep it
constexpr int kElements = 16384;  // of a row, that a block can keep
constexpr int kWidth = 4;

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// What is known of a row once it has been read.
struct Stats {
    float s[2];
};

// The maximum so far, and the sum of exp(value - maximum) so far.
struct Part0 {
    float at[2] = {-FLT_MAX, 0.0f};
};

__device__ __forceinline__ void merge(Part0& part, const Part0& other) {
    const float peak = fmaxf(part.at[0], other.at[0]);
    part.at[1] = part.at[1] * expf(part.at[0] - peak) + other.at[1] * expf(other.at[0] - peak);
    part.at[0] = peak;
}

template <int Width>
__device__ __forceinline__ void absorb(Part0& part, const Pack<Width>& v, const Stats&) {
    float top = v.at[0];
#pragma unroll
    for (int j = 1; j < Width; ++j) top = fmaxf(top, v.at[j]);
    if (top > part.at[0]) {  // rare after the first few values
        part.at[1] *= expf(part.at[0] - top);
        part.at[0] = top;
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < Width; ++j) sum += expf(v.at[j] - part.at[0]);
    part.at[1] += sum;
}

__device__ __forceinline__ void finish(const Part0& part, float, Stats& stats) {
    const float total = part.at[1];
    stats.s[0] = part.at[0];
    stats.s[1] = logf(total);
}

// One element of the result.
__device__ __forceinline__ float result(float x, const Stats& stats) {
    const float s0 = stats.s[0];
    const float s1 = stats.s[1];
    return x - s0 - s1;
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

// What a block found made known to its team, and what all of them found. Fields of parts are `team` apart.
template <class Part>
__device__ __forceinline__ Part team_merge(Part part, float* found, unsigned* arrived, int member, unsigned team, unsigned expected) {
    constexpr int kFields = sizeof(Part) / sizeof(float);
    part = block_merge(part);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < kFields; ++i) __stcg(&found[i * team + member], part.at[i]);
            __threadfence();  // the values must be there before the block counts
            atomicAdd(arrived, 1u);
        }
        __syncwarp();
        while (*static_cast<volatile unsigned*>(arrived) < expected) __nanosleep(50);
        __threadfence();  // and read after it
    }
    __syncthreads();
    Part all;
    for (unsigned p = threadIdx.x % 32; p < team; p += 32) {
        Part other;
#pragma unroll
        for (int i = 0; i < kFields; ++i) other.at[i] = __ldcg(&found[i * team + p]);
        merge(all, other);
    }
    return warp_merge(all);  // every warp repeats this, in the same order
}

// A block per part of a row; `found` has room for 1 part of each, `arrived` counts a row's blocks.
__global__ void __launch_bounds__(kThreads)
normalize(const float* __restrict__ x, float* __restrict__ y, int64_t cols, int chunk, unsigned team,
          unsigned* started, unsigned* arrived, float* found) {
    constexpr int kSlots = 64 / kWidth;  // packs that a thread keeps in registers
    // places by the order of starting: a block waits only for those that run or come next
    __shared__ unsigned place;
    if (threadIdx.x == 0) place = atomicAdd(started, 1u);
    __syncthreads();
    const int64_t row = place / team;
    const int member = place % team;
    const int64_t skipped = min(int64_t(member) * chunk, cols);
    const int64_t begin = row * cols + skipped;
    const int length = int(min(cols - skipped, int64_t(chunk)));
    // whole packs from the first aligned address on; the few floats around them go to one thread each
    const int head = min(int((kWidth - begin % kWidth) % kWidth), length);
    const int packs = (length - head) / kWidth;
    const int edge = threadIdx.x >= length - packs * kWidth ? -1 : threadIdx.x < head ? threadIdx.x : packs * kWidth + threadIdx.x;
    const float edge_value = edge >= 0 ? x[begin + edge] : 0.0f;
    const auto* in = reinterpret_cast<const Pack<kWidth>*>(x + begin + head);
    auto* out = reinterpret_cast<Pack<kWidth>*>(y + begin + head);
    Pack<kWidth> kept[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
        if (int(threadIdx.x) + s * kThreads < packs) kept[s] = in[threadIdx.x + s * kThreads];  // all loads on their way

    Stats stats;
    Part0 part0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
        if (int(threadIdx.x) + s * kThreads < packs) absorb(part0, kept[s], stats);
    if (edge >= 0) absorb(part0, Pack<1>{edge_value}, stats);
    float* found0 = found + row * int64_t(sizeof(Part0) / sizeof(float)) * team;
    finish(team_merge(part0, found0, arrived + row, member, team, team), float(cols), stats);

    const auto mapped = [&](Pack<kWidth> v, int p) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) v.at[j] = result(v.at[j], stats);
        out[p] = v;
    };
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
        if (int(threadIdx.x) + s * kThreads < packs) mapped(kept[s], threadIdx.x + s * kThreads);
    if (edge >= 0) {
        y[begin + edge] = result(edge_value, stats);
    }
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

    // as many blocks as the task's rows need; more for longer rows, and fewer for short ones
    const int64_t fewest = (cols + kElements - 1) / kElements;
    const int64_t most = (cols + kThreads - 1) / kThreads;
    const int64_t team = fewest > kTeam ? fewest : most < kTeam ? most : kTeam;
    const int64_t chunk = ((cols + team - 1) / team + 3) / 4 * 4;
    TORCH_CHECK(cols <= INT_MAX && rows * team <= INT_MAX, "x is too large for one launch");
    auto counts = torch::zeros({rows + 1}, x.options().dtype(torch::kInt32));
    auto found = torch::empty({rows * 1, team, int64_t(sizeof(Part0) / sizeof(float))}, x.options());
    auto* started = reinterpret_cast<unsigned*>(counts.data_ptr<int>());
    // a tensor that does not start at a pack is copied to one that does
    const auto source = aligned(x.data_ptr<float>(), sizeof(Pack<kWidth>)) ? x : x.clone();
    const auto stream = at::cuda::getCurrentCUDAStream();
    constexpr size_t bytes = 0 * sizeof(float);
    int device = 0;
    int processors = 0;
    int beside = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&beside, normalize, kThreads, bytes));
    TORCH_CHECK(team <= int64_t(beside) * processors, "the blocks of a row do not fit on this GPU together");
    normalize<<<unsigned(rows * team), kThreads, bytes, stream>>>(
            source.data_ptr<float>(), y.data_ptr<float>(), cols, int(chunk), unsigned(team), started, started + 1,
            found.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Logarithm of softmax over the last dimension");
}
#endif
