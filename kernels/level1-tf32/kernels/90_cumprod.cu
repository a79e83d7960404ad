// Running product along dimension 1
//
// Recipe: scan
// Strategy:
//   unroll(factor=4)
//   vector-load(width=4)
//   warp-scan
// Written for 32768x32768:float32; correct for every shape of the same rank.

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
constexpr int kGroup = 32;  // threads that share a line
constexpr int kWidth = 4;
constexpr int kUnroll = 4;
// A running product that comes back to small numbers must not have lost their digits on the way.
using Sum = double;
constexpr Sum kNeutral = 1;

__device__ __forceinline__ Sum combined(Sum a, Sum b) { return a * b; }

// Neighbouring elements that travel in one access; the address must be a multiple of the size.
template <class T, int Width>
struct alignas(Width * sizeof(T)) Pack {
    T at[Width];
};

template <int Width, class T>
__device__ __forceinline__ Pack<T, Width> pack_at(const T* from, int64_t at) {
    return *reinterpret_cast<const Pack<T, Width>*>(from + at);
}

template <int Width, class T>
__device__ __forceinline__ void load(T (&run)[Width], const float* x, int i, int taken) {
    if (i < taken) {  // taken is a multiple of Width
        const auto x_pack = pack_at<Width>(x, i);
#pragma unroll
        for (int j = 0; j < Width; ++j) {
            run[j] = x_pack.at[j];
        }
    } else {
#pragma unroll
        for (int j = 0; j < Width; ++j) run[j] = T(kNeutral);
    }
}

template <int Width, class T>
__device__ __forceinline__ void store(float* y, int i, int taken, const T (&run)[Width]) {
    if (i >= taken) return;
    Pack<float, Width> pack;
#pragma unroll
    for (int j = 0; j < Width; ++j) pack.at[j] = float(run[j]);
    *reinterpret_cast<Pack<float, Width>*>(y + i) = pack;
}

// Each lane gets the combination of all lanes up to itself.
__device__ __forceinline__ Sum warp_scan(Sum v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int below = 1; below < 32; below *= 2) {
        const Sum other = __shfl_up_sync(0xffffffffu, v, below);
        if (lane >= below) v = combined(other, v);
    }
    return v;
}

// One warp per line. A thread has packs of Width elements.
template <int Width>
__global__ void __launch_bounds__(kThreads)
scan(const float* __restrict__ x, float* __restrict__ y, int64_t lines, int taken) {
    const int64_t line = int64_t(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
    if (line >= lines) return;  // whole warps leave together
    const int rank = threadIdx.x % kGroup;
    x += line * taken;
    y += line * taken;
    const int lane = threadIdx.x % 32;
    constexpr int kRun = Width;  // consecutive elements of a thread
    constexpr int kRuns = kUnroll;  // such runs, 32 * kRun elements apart
    constexpr int kStretch = 32 * kRun * kRuns;
    Sum carry = kNeutral;
    for (int tile = 0; tile < taken; tile += kStretch) {
        const int first = tile;
        Sum v[kRuns][kRun];
#pragma unroll
        for (int r = 0; r < kRuns; ++r) load(v[r], x, first + (r * 32 + lane) * kRun, taken);
        Sum offset[kRuns];  // what comes before each run in the warp's stretch
        Sum total = kNeutral;
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
#pragma unroll
            for (int j = 1; j < kRun; ++j) v[r][j] = combined(v[r][j - 1], v[r][j]);
            const Sum upto = warp_scan(v[r][kRun - 1]);
            const Sum below = __shfl_up_sync(0xffffffffu, upto, 1);
            offset[r] = lane == 0 ? total : combined(total, below);
            total = combined(total, __shfl_sync(0xffffffffu, upto, 31));
        }
        const Sum base = carry;
        carry = combined(carry, total);
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
            const Sum start = combined(base, offset[r]);
#pragma unroll
            for (int j = 0; j < kRun; ++j) v[r][j] = combined(start, v[r][j]);
        }
#pragma unroll
        for (int r = 0; r < kRuns; ++r) store(y, first + (r * 32 + lane) * kRun, taken, v[r]);
    }
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 2, "x must have 2 dimensions");
    const int64_t taken = x.size(1);
    const int64_t stored = taken;
    const int64_t lines = x.size(0);
    TORCH_CHECK(taken >= 0 && stored <= (1 << 30), "x is too short or too long where it is scanned");
    auto y = torch::empty({x.size(0), stored}, x.options());
    if (y.numel() == 0) return y;
    // every line must start at a multiple of the pack, or one element is taken at a time
    const bool wide_in = taken % kWidth == 0 &&
        aligned(x.data_ptr<float>(), kWidth * sizeof(float));
    const bool wide_out = stored % kWidth == 0 &&
        aligned(y.data_ptr<float>(), kWidth * sizeof(float));
    constexpr int64_t per_block = kThreads / kGroup;
    const int64_t blocks = (lines + per_block - 1) / per_block;
    TORCH_CHECK(blocks <= INT_MAX, "x is too large for one launch");
    const auto stream = at::cuda::getCurrentCUDAStream();
    if (wide_in && wide_out) {
        scan<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(
            x.data_ptr<float>(), y.data_ptr<float>(), lines, int(taken));
    } else {
        scan<1><<<unsigned(blocks), kThreads, 0, stream>>>(
            x.data_ptr<float>(), y.data_ptr<float>(), lines, int(taken));
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Running product along dimension 1");
}
#endif
