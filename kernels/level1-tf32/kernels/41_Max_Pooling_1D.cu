// Maxima over 8 windows
//
// Recipe: pooling
// Strategy:
//   shared-halo
//   unroll(factor=4)
//   vector-load(width=4)
// Written for 64x192x65536:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kWindowW = 8, kStrideW = 1, kPadW = 4, kDilationW = 3;
constexpr int kThreadsX = 256;  // along a row of the result
constexpr int kColumns = 4;  // results of a thread along w, kThreadsX apart
constexpr int kTileW = kThreadsX * kColumns;
constexpr int kSpanW = (kColumns - 1) * kThreadsX * kStrideW + (kWindowW - 1) * kDilationW + 1;
constexpr int kWidth = 4;
constexpr int kShift = 0;  // from an aligned element to the first one of a thread
// the inputs of a block's results, the padding included
constexpr int kHaloW = (kShift + (kTileW - 1) * kStrideW + (kWindowW - 1) * kDilationW + kWidth) / kWidth * kWidth;
constexpr int kHalo = kHaloW;

struct Sizes {
    int in_w, out_w;
    unsigned tiles_w;  // blocks along each axis of the result
};

// The larger number; NaN when one of them is, as in PyTorch.
__device__ __forceinline__ float join(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// The results of one thread, from w0 on.
// Wide: rows are aligned for packs.
template <bool Wide>
__device__ __forceinline__ void results(
    const float* in, float* __restrict__ out, const Sizes& s,
    int w0) {
    float live[kColumns];
    const float* row = in;
    float v[kColumns * kWindowW];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int j = 0; j < kWindowW; ++j) {
            const int at = c * kThreadsX * kStrideW + j * kDilationW;
            v[c * kWindowW + j] = row[at];
        }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        float& one = live[c];
#pragma unroll
        for (int j = 0; j < kWindowW; ++j) {
            const float value = v[c * kWindowW + j];
            one = j > 0 ? join(one, value) : value;
        }
    }
    float* line = out + w0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        float& one = live[c];
        if (w0 + c * kThreadsX < s.out_w) *(line + c * kThreadsX) = one;
    }
}

template <bool Wide>
__global__ void __launch_bounds__(kThreadsX)
pool(const float* __restrict__ x, float* __restrict__ y, Sizes s) {
    unsigned tile = blockIdx.x;
    const int block_w = int(tile % s.tiles_w) * kTileW;
    tile /= s.tiles_w;
    const float* in = x + int64_t(tile) * (s.in_w);
    float* out = y + int64_t(tile) * (s.out_w);
    __shared__ __align__(16) float halo[kHalo];
    const int thread = threadIdx.x;
    constexpr int threads = kThreadsX;
    if (Wide) {  // packs lie in the input or outside of it, never across its rim
        for (int i = thread; i < kHalo / kWidth; i += threads) {
            const int w = i % (kHaloW / kWidth) * kWidth + block_w * kStrideW - kPadW - kShift;
            const bool there = unsigned(w) < unsigned(s.in_w);
            Pack<kWidth> pack;
            if (there) pack = *reinterpret_cast<const Pack<kWidth>*>(in + w);
#pragma unroll
            for (int j = 0; j < kWidth; ++j) pack.at[j] = there ? pack.at[j] : -INFINITY;
            *reinterpret_cast<Pack<kWidth>*>(halo + i * kWidth) = pack;
        }
    } else {
        for (int i = thread; i < kHalo; i += threads) {
            const int w = i % kHaloW + block_w * kStrideW - kPadW - kShift;
            const bool there = unsigned(w) < unsigned(s.in_w);
            halo[i] = there ? in[w] : -INFINITY;
        }
    }
    __syncthreads();
    const int w0 = block_w + int(threadIdx.x);
    if (w0 >= s.out_w) return;
    const float* mine = halo + int(threadIdx.x) * kStrideW + kShift;
    results<Wide>(mine, out, s, w0);
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() >= 2, "x must have at least 2 dimensions");
    const int64_t rank = x.dim();
    const int64_t in_w = x.size(rank - 1);
    const int64_t room_w = in_w + 2 * kPadW - (kWindowW - 1) * kDilationW - 1;
    TORCH_CHECK(room_w >= 0, "the window is larger than the input");
    const int64_t out_w = room_w / kStrideW + 1;
    const int64_t in_plane = in_w;
    const int64_t out_plane = out_w;
    TORCH_CHECK(in_plane < INT_MAX / 2 && out_plane < INT_MAX / 2, "one channel is too large");
    auto shape = x.sizes().vec();
    shape[rank - 1] = out_w;
    auto y = torch::empty(shape, x.options());
    const int64_t results = y.numel();
    if (results == 0) return y;
    Sizes s{};
    s.in_w = int(in_w);
    s.out_w = int(out_w);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    s.tiles_w = unsigned((out_w + kTileW - 1) / kTileW);
    const int64_t blocks = results / out_plane * s.tiles_w;
    TORCH_CHECK(blocks <= INT_MAX, "the result is too large for one launch");
    const dim3 block(kThreadsX);
    // every row must start at a multiple of a pack, or one float is taken at a time
    const bool wide = in_w % kWidth == 0 && aligned(in, sizeof(Pack<kWidth>));
    if (wide) {
        pool<true><<<unsigned(blocks), block, 0, stream>>>(in, out, s);
    } else {
        pool<false><<<unsigned(blocks), block, 0, stream>>>(in, out, s);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Maxima over 8 windows");
}
#endif
