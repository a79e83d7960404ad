// Maxima over 8 windows
//
// Recipe: pooling
// Strategy:
//   unroll(factor=8)
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
constexpr int kColumns = 8;  // results of a thread along w, kThreadsX apart
constexpr int kTileW = kThreadsX * kColumns;
constexpr int kSpanW = (kColumns - 1) * kThreadsX * kStrideW + (kWindowW - 1) * kDilationW + 1;

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

// `otherwise` where there is nothing to load. A predicate, not a branch: loads behind it are on their way together.
__device__ __forceinline__ float load_if(bool there, const float* from, float otherwise) {
    asm("{\n\t.reg .pred there;\n\tsetp.ne.s32 there, %2, 0;\n\t@there ld.global.nc.f32 %0, [%1];\n\t}"
        : "+f"(otherwise)
        : "l"(from), "r"(int(there)));
    return otherwise;
}

// The results of one thread, from w0 on.
// Columns: all columns that its windows span are in the input.

template <bool Columns>
__device__ __forceinline__ void results(
    const float* __restrict__ in, float* __restrict__ out, const Sizes& s,
    int w0) {
    const int start_w = w0 * kStrideW - kPadW;
    float live[kColumns];
    const float* row = in + (start_w);
    float v[kColumns * kWindowW];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int j = 0; j < kWindowW; ++j) {
            const int at = c * kThreadsX * kStrideW + j * kDilationW;
            const bool there = (Columns || unsigned(start_w + at) < unsigned(s.in_w));
            v[c * kWindowW + j] = Columns ? row[at] : load_if(there, row + at, -INFINITY);
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
        if (Columns || w0 + c * kThreadsX < s.out_w) *(line + c * kThreadsX) = one;
    }
}

__global__ void __launch_bounds__(kThreadsX)
pool(const float* __restrict__ x, float* __restrict__ y, Sizes s) {
    unsigned tile = blockIdx.x;
    const int block_w = int(tile % s.tiles_w) * kTileW;
    tile /= s.tiles_w;
    const float* in = x + int64_t(tile) * (s.in_w);
    float* out = y + int64_t(tile) * (s.out_w);
    const int w0 = block_w + int(threadIdx.x);
    if (w0 >= s.out_w) return;
    // whole warps decide together, or those at the rim would go both ways
    const int warp_w = w0 - int(threadIdx.x % 32);
    const int last_w = min(warp_w + 31, s.out_w - 1);
    const bool columns = warp_w * kStrideW - kPadW >= 0 &&
                         last_w * kStrideW - kPadW + kSpanW <= s.in_w;
    if (columns) {
        results<true>(in, out, s, w0);
    } else {
        results<false>(in, out, s, w0);
    }
}

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
    pool<<<unsigned(blocks), block, 0, stream>>>(in, out, s);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Maxima over 8 windows");
}
#endif
