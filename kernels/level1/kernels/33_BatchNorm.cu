// Batch norm by the data's own statistics
//
// Recipe: norm_split
// Strategy:
//   row-chunks(elements=32768)
//   unroll(factor=4)
//   vector-load(width=4)
//   warp-shuffle
//   welford
// Written for 64x64x512x512:float32, 64:float32, 64:float32, 64:float32, 64:float32, :int64; correct for every shape of the same rank.

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
constexpr int kChunk = 32768;  // elements of a row that a block takes
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

// What one chunk of a row adds to its statistics; fields of parts are `stride` apart, those of a row side by side.
template <int Width, class Part>
__global__ void __launch_bounds__(kThreads)
reduce(const float* __restrict__ x, const Stats* __restrict__ known, float* __restrict__ found, int64_t rows, int64_t cols,
       int64_t pieces, int64_t per_row) {
    const int64_t sets = rows * pieces;
    const int64_t set = blockIdx.x % sets;  // the same chunk of all rows first: they share their weights
    const int64_t chunk = blockIdx.x / sets;
    const int64_t row = set % rows;
    const int64_t begin = set * cols + chunk * kChunk;
    const int length = int(min(cols - chunk * kChunk, int64_t(kChunk)));
    // whole packs from the first aligned address on; the few floats around them go to one thread each
    const int head = min(int((Width - begin % Width) % Width), length);
    const int packs = (length - head) / Width;
    const int edge = threadIdx.x >= length - packs * Width ? -1 : threadIdx.x < head ? threadIdx.x : packs * Width + threadIdx.x;
    const auto* in = reinterpret_cast<const Pack<Width>*>(x + begin + head);

    const Stats stats = known[row];
    Part part;
#pragma unroll 4
    for (int p = threadIdx.x; p < packs; p += kThreads) absorb(part, in[p], stats);
    if (edge >= 0) absorb(part, Pack<1>{x[begin + edge]}, stats);
    part = block_merge(part);
    if (threadIdx.x == 0) {
        const int64_t place = row * per_row + set / rows * (per_row / pieces) + chunk;
#pragma unroll
        for (int i = 0; i < int(sizeof(Part) / sizeof(float)); ++i) found[i * rows * per_row + place] = part.at[i];
    }
}

// A row's chunks together, one block per row.
template <class Part>
__global__ void __launch_bounds__(kThreads)
combine(const float* __restrict__ found, Stats* __restrict__ known, int64_t rows, int64_t per_row, float count) {
    const int64_t row = blockIdx.x;
    Part part;
    for (int64_t p = threadIdx.x; p < per_row; p += kThreads) {
        Part other;
#pragma unroll
        for (int i = 0; i < int(sizeof(Part) / sizeof(float)); ++i) other.at[i] = found[(i * rows + row) * per_row + p];
        merge(part, other);
    }
    part = block_merge(part);
    if (threadIdx.x == 0) {
        Stats stats = known[row];
        finish(part, count, stats);
        known[row] = stats;
    }
}

// The result of one chunk.
template <int Width>
__global__ void __launch_bounds__(kThreads)
apply(const float* __restrict__ x, const Stats* __restrict__ known, float* __restrict__ y, int64_t rows, int64_t cols, int64_t pieces,
      const float* __restrict__ weight, Along weight_along,
      const float* __restrict__ bias, Along bias_along) {
    const int64_t sets = rows * pieces;
    const int64_t set = blockIdx.x % sets;  // the same chunk of all rows first: they share their weights
    const int64_t chunk = blockIdx.x / sets;
    const int64_t row = set % rows;
    const int64_t begin = set * cols + chunk * kChunk;
    const int length = int(min(cols - chunk * kChunk, int64_t(kChunk)));
    // whole packs from the first aligned address on; the few floats around them go to one thread each
    const int head = min(int((Width - begin % Width) % Width), length);
    const int packs = (length - head) / Width;
    const int edge = threadIdx.x >= length - packs * Width ? -1 : threadIdx.x < head ? threadIdx.x : packs * Width + threadIdx.x;
    const auto* in = reinterpret_cast<const Pack<Width>*>(x + begin + head);

    auto* out = reinterpret_cast<Pack<Width>*>(y + begin + head);
    const Stats stats = known[row];
    const float* weight_row = weight_along.of_row(weight, row);
    const float* bias_row = bias_along.of_row(bias, row);
#pragma unroll 4
    for (int p = threadIdx.x; p < packs; p += kThreads) {
        Pack<Width> v = in[p];
        const auto weights = weight_along.template pack<Width>(weight_row, int(chunk * kChunk) + head + p * Width);
        const auto biass = bias_along.template pack<Width>(bias_row, int(chunk * kChunk) + head + p * Width);
#pragma unroll
        for (int j = 0; j < Width; ++j) v.at[j] = result(v.at[j], stats, weights.at[j], biass.at[j]);
        out[p] = v;
    }
    if (edge >= 0) {
        const int i = int(chunk * kChunk) + edge;
        y[begin + edge] = result(x[begin + edge], stats, weight_row[i / weight_along.run], bias_row[i / bias_along.run]);
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
    TORCH_CHECK(weight.numel() > 0 && x.numel() % (weight.numel() * x.size(2) * x.size(3)) == 0,
                "weight does not fit x");
    TORCH_CHECK(bias.is_cuda() && bias.scalar_type() == torch::kFloat32 && bias.is_contiguous(),
                "bias must be a contiguous float32 tensor on a CUDA device");
    TORCH_CHECK(bias.numel() > 0 && x.numel() % (bias.numel() * x.size(2) * x.size(3)) == 0,
                "bias does not fit x");

    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    const int64_t pieces = x.size(0);
    const int64_t rows = x.size(1);
    const int64_t cols = x.size(2) * x.size(3);
    const int64_t chunks = (cols + kChunk - 1) / kChunk;
    const int64_t per_row = chunks * pieces;
    const int64_t blocks = rows * per_row;
    TORCH_CHECK(cols <= INT_MAX && blocks <= INT_MAX, "x is too large for one launch");
    const Along weight_along = along(weight, x.size(2) * x.size(3), cols);
    const Along bias_along = along(bias, x.size(2) * x.size(3), cols);
    // the statistics of each row, and what its chunks add to them
    auto stats = torch::zeros({rows, int64_t(sizeof(Stats) / sizeof(float))}, x.options());
    auto found = torch::empty({int64_t(sizeof(Part0) / sizeof(float)), blocks}, x.options());
    auto* known = reinterpret_cast<Stats*>(stats.data_ptr<float>());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    const float count = float(cols * pieces);
    // chunks may start anywhere: only the tensors themselves must start at a multiple of the pack
    const bool wide = aligned(in, sizeof(Pack<kWidth>)) && aligned(out, sizeof(Pack<kWidth>));
    if (wide) {
        reduce<kWidth, Part0><<<unsigned(blocks), kThreads, 0, stream>>>(
            in, known, found.data_ptr<float>(), rows, cols, pieces, per_row);
    } else {
        reduce<1, Part0><<<unsigned(blocks), kThreads, 0, stream>>>(
            in, known, found.data_ptr<float>(), rows, cols, pieces, per_row);
    }
    combine<Part0><<<unsigned(rows), kThreads, 0, stream>>>(found.data_ptr<float>(), known, rows, per_row, count);
    if (wide) {
        apply<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(in, known, out, rows, cols, pieces,
        weight.data_ptr<float>(), weight_along,
        bias.data_ptr<float>(), bias_along);
    } else {
        apply<1><<<unsigned(blocks), kThreads, 0, stream>>>(in, known, out, rows, cols, pieces,
        weight.data_ptr<float>(), weight_along,
        bias.data_ptr<float>(), bias_along);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Batch norm by the data's own statistics");
}
#endif
