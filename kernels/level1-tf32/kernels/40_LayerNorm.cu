// Layer norm by the data's own statistics
//
// Recipe: norm_split
// Strategy:
//   block-size(threads=1024)
//   row-team(elements=65536)
//   vector-load(width=4)
//   warp-shuffle
//   welford
// Written for 16x64x256x256:float32, 64x256x256:float32, 64x256x256:float32; correct for every shape of the same rank.

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
constexpr int kTeam = 64;  // blocks that share a row, if they can keep it
constexpr int kElements = 65536;  // of a row, that a block can keep
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

// Count, mean, and sum of the squared distances from it, of some elements of a row.
struct Part0 {
    float at[3] = {0.0f, 0.0f, 0.0f};
};

// Chan's formula: what two sets have together, without ever subtracting large sums.
__device__ __forceinline__ void merge(Part0& part, const Part0& other) {
    const float count = part.at[0] + other.at[0];
    const float share = count > 0.0f ? other.at[0] / count : 0.0f;
    const float apart = other.at[1] - part.at[1];
    part.at[1] += apart * share;
    part.at[2] += other.at[2] + apart * apart * (part.at[0] * share);
    part.at[0] = count;
}

template <int Width>
__device__ __forceinline__ void absorb(Part0& part, const Pack<Width>& v, const Stats&) {
    Part0 few;
    few.at[0] = Width;
#pragma unroll
    for (int j = 0; j < Width; ++j) few.at[1] += v.at[j] * (1.0f / Width);
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        const float off = v.at[j] - few.at[1];
        few.at[2] += off * off;
    }
    merge(part, few);
}

__device__ __forceinline__ void finish(const Part0& part, float count, Stats& stats) {
    const float total = part.at[2];
    stats.s[0] = part.at[1];
    stats.s[1] = rsqrtf(total / count + 1e-05f);
}

// One element of the result.
__device__ __forceinline__ float result(float x, const Stats& stats, float weight, float bias) {
    const float s0 = stats.s[0];
    const float s1 = stats.s[1];
    return (x - s0) * s1 * weight + bias;
}

// How a weight lies along the rows: for element i of a row it is number `row / every % times * per_row + i / run`.
struct Along {
    int64_t every, times;
    int per_row, run;

    __device__ __forceinline__ const float* of_row(const float* weight, int64_t row) const {
        return weight + row / every % times * per_row;
    }

    // For neighbouring elements, the first at an aligned address.
    template <int Width>
    __device__ __forceinline__ Pack<Width> pack(const float* of_row, int i) const {
        Pack<Width> found;
        if (run == 1 && reinterpret_cast<uintptr_t>(of_row + i) % sizeof(found) == 0) {
            found = *reinterpret_cast<const Pack<Width>*>(of_row + i);
        } else if (run % Width == 0) {  // the same for all of them
            const float one = of_row[i / run];
#pragma unroll
            for (int j = 0; j < Width; ++j) found.at[j] = one;
        } else {
#pragma unroll
            for (int j = 0; j < Width; ++j) found.at[j] = of_row[(i + j) / run];
        }
        return found;
    }
};

// Each of its elements holds for `run` elements of the tensor, one after another, again and again.
Along along(const torch::Tensor& weight, int64_t run, int64_t cols) {
    if (run >= cols) return {run / cols, weight.numel(), 1, int(cols)};
    TORCH_CHECK(weight.numel() * run % cols == 0, "a weight must go through whole rows");
    return {1, weight.numel() * run / cols, int(cols / run), int(run)};
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
          unsigned* started, unsigned* arrived, float* found,
          const float* __restrict__ weight, Along weight_along,
          const float* __restrict__ bias, Along bias_along) {
    constexpr int kSlots = 32 / kWidth;  // packs that a thread keeps in registers
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
    extern __shared__ __align__(16) float row_cache[];  // a thread re-reads only what it wrote itself: no barrier
    auto* cached = reinterpret_cast<Pack<kWidth>*>(row_cache);
    for (int p = kSlots * kThreads + threadIdx.x; p < packs; p += 4 * kThreads) {
        Pack<kWidth> few[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (p + j * kThreads < packs) few[j] = in[p + j * kThreads];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (p + j * kThreads < packs) cached[p + (j - kSlots) * kThreads] = few[j];
    }
    const float* weight_row = weight_along.of_row(weight, row);
    const float* bias_row = bias_along.of_row(bias, row);
    bool simple = true;  // weights start at packs as the row does
    simple &= reinterpret_cast<uintptr_t>(weight_row + skipped + head) % sizeof(Pack<kWidth>) == 0;
    simple &= reinterpret_cast<uintptr_t>(bias_row + skipped + head) % sizeof(Pack<kWidth>) == 0;

    Stats stats;
    Part0 part0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
        if (int(threadIdx.x) + s * kThreads < packs) absorb(part0, kept[s], stats);
    for (int p = kSlots * kThreads + threadIdx.x; p < packs; p += kThreads) absorb(part0, cached[p - kSlots * kThreads], stats);
    if (edge >= 0) absorb(part0, Pack<1>{edge_value}, stats);
    float* found0 = found + row * int64_t(sizeof(Part0) / sizeof(float)) * team;
    finish(team_merge(part0, found0, arrived + row, member, team, team), float(cols), stats);

    const auto mapped = [&](Pack<kWidth> v, int p, auto is_simple) {
        const int i = int(skipped) + head + p * kWidth;
        Pack<kWidth> weights;
        if constexpr (!is_simple.value) weights = weight_along.template pack<kWidth>(weight_row, i);
        if constexpr (is_simple.value) weights = *reinterpret_cast<const Pack<kWidth>*>(weight_row + i);
        Pack<kWidth> biass;
        if constexpr (!is_simple.value) biass = bias_along.template pack<kWidth>(bias_row, i);
        if constexpr (is_simple.value) biass = *reinterpret_cast<const Pack<kWidth>*>(bias_row + i);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) v.at[j] = result(v.at[j], stats, weights.at[j], biass.at[j]);
        out[p] = v;
    };
    if (simple) {
#pragma unroll
        for (int s = 0; s < kSlots; ++s)
            if (int(threadIdx.x) + s * kThreads < packs) mapped(kept[s], threadIdx.x + s * kThreads, std::true_type{});
        for (int p = kSlots * kThreads + threadIdx.x; p < packs; p += kThreads) mapped(cached[p - kSlots * kThreads], p, std::true_type{});
    } else {  // rarely: what is kept in registers is known to unrolled loops only, so everything is read again
        for (int p = threadIdx.x; p < packs; p += kThreads) mapped(in[p], p, std::false_type{});
    }
    if (edge >= 0) {
        const int i = int(skipped) + edge;
        y[begin + edge] = result(edge_value, stats, weight_row[i / weight_along.run], bias_row[i / bias_along.run]);
    }
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 4, "x must have 4 dimensions");
    TORCH_CHECK(weight.is_cuda() && weight.scalar_type() == torch::kFloat32 && weight.is_contiguous(),
                "weight must be a contiguous float32 tensor on a CUDA device");
    TORCH_CHECK(weight.numel() > 0 && x.numel() % (weight.numel() * 1) == 0,
                "weight does not fit x");
    TORCH_CHECK(bias.is_cuda() && bias.scalar_type() == torch::kFloat32 && bias.is_contiguous(),
                "bias must be a contiguous float32 tensor on a CUDA device");
    TORCH_CHECK(bias.numel() > 0 && x.numel() % (bias.numel() * 1) == 0,
                "bias does not fit x");

    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    const int64_t rows = x.size(0);
    const int64_t cols = x.size(1) * x.size(2) * x.size(3);

    // as many blocks as the task's rows need; more for longer rows, and fewer for short ones
    const int64_t fewest = (cols + kElements - 1) / kElements;
    const int64_t most = (cols + kThreads - 1) / kThreads;
    const int64_t team = fewest > kTeam ? fewest : most < kTeam ? most : kTeam;
    const int64_t chunk = ((cols + team - 1) / team + 3) / 4 * 4;
    TORCH_CHECK(cols <= INT_MAX && rows * team <= INT_MAX, "x is too large for one launch");
    const Along weight_along = along(weight, 1, cols);
    const Along bias_along = along(bias, 1, cols);
    auto counts = torch::zeros({rows + 1}, x.options().dtype(torch::kInt32));
    auto found = torch::empty({rows * 1, team, int64_t(sizeof(Part0) / sizeof(float))}, x.options());
    auto* started = reinterpret_cast<unsigned*>(counts.data_ptr<int>());
    // a tensor that does not start at a pack is copied to one that does
    const auto source = aligned(x.data_ptr<float>(), sizeof(Pack<kWidth>)) ? x : x.clone();
    const auto stream = at::cuda::getCurrentCUDAStream();
    constexpr size_t bytes = 32768 * sizeof(float);
    int device = 0;
    int processors = 0;
    int beside = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    C10_CUDA_CHECK(cudaFuncSetAttribute(normalize, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&beside, normalize, kThreads, bytes));
    TORCH_CHECK(team <= int64_t(beside) * processors, "the blocks of a row do not fit on this GPU together");
    normalize<<<unsigned(rows * team), kThreads, bytes, stream>>>(
            source.data_ptr<float>(), y.data_ptr<float>(), cols, int(chunk), unsigned(team), started, started + 1,
            found.data_ptr<float>(),
            weight.data_ptr<float>(), weight_along,
            bias.data_ptr<float>(), bias_along);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Layer norm by the data's own statistics");
}
#endif
