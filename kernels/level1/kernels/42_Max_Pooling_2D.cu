// Maxima over 4x4 windows
//
// Recipe: pooling
// Strategy:
//   block-shape(columns=256, rows=2)
//   row-marching(rows=16)
//   separable-window
//   unroll(factor=2)
// Written for 32x64x512x512:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kWindowH = 4, kStrideH = 1, kPadH = 1, kDilationH = 1;
constexpr int kWindowW = 4, kStrideW = 1, kPadW = 1, kDilationW = 1;
constexpr int kThreadsX = 256;  // along a row of the result
constexpr int kThreadsY = 2;
constexpr int kRows = 16;  // results of a thread along h
constexpr int kColumns = 2;  // results of a thread along w, kThreadsX apart
constexpr int kTileW = kThreadsX * kColumns;
// A step of the march begins one result and passes kStrideH inputs, so that kLive results are under way at a time.
constexpr int kLive = ((kWindowH - 1) * kDilationH + kStrideH) / kStrideH;
constexpr int kSteps = kRows + kLive - 1;
constexpr int kSpanH = kSteps * kStrideH;
constexpr int kSpanW = (kColumns - 1) * kThreadsX * kStrideW + (kWindowW - 1) * kDilationW + 1;

struct Sizes {
    int in_h, in_w, out_h, out_w;
    unsigned tiles_h, tiles_w;  // blocks along each axis of the result
};

// The larger number; NaN when one of them is, as in PyTorch.
__device__ __forceinline__ float join(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

// Which element of its window the input `q` of a step is for the result begun `age` steps ago; -1 when it is none.
__device__ __forceinline__ constexpr int tap(int age, int q) {
    const int from = age * kStrideH + q;
    return from % kDilationH == 0 && from / kDilationH < kWindowH ? from / kDilationH : -1;
}

__device__ __forceinline__ constexpr bool wanted(int q) {
    for (int age = 0; age < kLive; ++age) {
        if (tap(age, q) >= 0) return true;
    }
    return false;
}

// `otherwise` where there is nothing to load. A predicate, not a branch: loads behind it are on their way together.
__device__ __forceinline__ float load_if(bool there, const float* from, float otherwise) {
    asm("{\n\t.reg .pred there;\n\tsetp.ne.s32 there, %2, 0;\n\t@there ld.global.nc.f32 %0, [%1];\n\t}"
        : "+f"(otherwise)
        : "l"(from), "r"(int(there)));
    return otherwise;
}

// The results of one thread, from (h0, w0) on.
// Columns: all columns that its windows span are in the input; Rows: so are all rows.
template <bool Columns, bool Rows>
__device__ __forceinline__ void results(
    const float* __restrict__ in, float* __restrict__ out, const Sizes& s,
    int h0, int w0) {
    const int start_h = h0 * kStrideH - kPadH;
    const int start_w = w0 * kStrideW - kPadW;
    float live[kLive * kColumns];  // results under way, the youngest first
#pragma unroll 19
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int q = 0; q < kStrideH; ++q) {
            if (!wanted(q)) continue;
            const int r = step * kStrideH + q;
            float part[kColumns];  // what this row gives to every window that contains it
            const int h = start_h + r;
            const bool exists = Rows || unsigned(h) < unsigned(s.in_h);
            const float* row = in + (h * s.in_w + start_w);
            float v[kColumns * kWindowW];
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
#pragma unroll
                for (int j = 0; j < kWindowW; ++j) {
                    const int at = c * kThreadsX * kStrideW + j * kDilationW;
                    const bool there = exists && (Columns || unsigned(start_w + at) < unsigned(s.in_w));
                    v[c * kWindowW + j] = Columns && Rows ? row[at] : load_if(there, row + at, -INFINITY);
                }
            }
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
#pragma unroll
                for (int j = 0; j < kWindowW; ++j) {
                    const float value = v[c * kWindowW + j];
                    part[c] = j > 0 ? join(part[c], value) : value;
                }
            }
#pragma unroll
            for (int age = 0; age < kLive; ++age) {
                if (tap(age, q) < 0) continue;
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
                    float& one = live[age * kColumns + c];
                    one = tap(age, q) > 0 ? join(one, part[c]) : part[c];
                }
            }
        }
        const int o = step - (kLive - 1);  // the oldest one is complete
        if (o >= 0 && (Rows || h0 + o < s.out_h)) {
            float* line = out + (h0 + o) * s.out_w + w0;
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
                float& one = live[(kLive - 1) * kColumns + c];
                if (Columns || w0 + c * kThreadsX < s.out_w) *(line + c * kThreadsX) = one;
            }
        }
#pragma unroll
        for (int i = kLive * kColumns - 1; i >= kColumns; --i) live[i] = live[i - kColumns];
    }
}

__global__ void __launch_bounds__(kThreadsX * kThreadsY)
pool(const float* __restrict__ x, float* __restrict__ y, Sizes s) {
    unsigned tile = blockIdx.x;
    const int block_w = int(tile % s.tiles_w) * kTileW;
    tile /= s.tiles_w;
    const int block_h = int(tile % s.tiles_h) * (kThreadsY * kRows);
    tile /= s.tiles_h;
    const float* in = x + int64_t(tile) * (s.in_h * s.in_w);
    float* out = y + int64_t(tile) * (s.out_h * s.out_w);
    const int w0 = block_w + int(threadIdx.x);
    const int h0 = block_h + int(threadIdx.y) * kRows;
    if (w0 >= s.out_w || h0 >= s.out_h) return;
    // whole warps decide together, or those at the rim would go both ways
    const int warp_w = w0 - int(threadIdx.x % 32);
    const int last_w = min(warp_w + 31, s.out_w - 1);
    const bool columns = warp_w * kStrideW - kPadW >= 0 &&
                         last_w * kStrideW - kPadW + kSpanW <= s.in_w;
    const int start_h = h0 * kStrideH - kPadH;
    const bool rows = start_h >= 0 && start_h + kSpanH <= s.in_h;
    if (columns && rows) {
        results<true, true>(in, out, s, h0, w0);
    } else if (columns) {
        results<true, false>(in, out, s, h0, w0);
    } else {
        results<false, false>(in, out, s, h0, w0);
    }
}

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() >= 3, "x must have at least 3 dimensions");
    const int64_t rank = x.dim();
    const int64_t in_h = x.size(rank - 2);
    const int64_t in_w = x.size(rank - 1);
    const int64_t room_h = in_h + 2 * kPadH - (kWindowH - 1) * kDilationH - 1;
    const int64_t room_w = in_w + 2 * kPadW - (kWindowW - 1) * kDilationW - 1;
    TORCH_CHECK(room_h >= 0 && room_w >= 0, "the window is larger than the input");
    const int64_t out_h = room_h / kStrideH + 1;
    const int64_t out_w = room_w / kStrideW + 1;
    const int64_t in_plane = in_h * in_w;
    const int64_t out_plane = out_h * out_w;
    TORCH_CHECK(in_plane < INT_MAX / 2 && out_plane < INT_MAX / 2, "one channel is too large");
    auto shape = x.sizes().vec();
    shape[rank - 2] = out_h;
    shape[rank - 1] = out_w;
    auto y = torch::empty(shape, x.options());
    const int64_t results = y.numel();
    if (results == 0) return y;
    Sizes s{};
    s.in_h = int(in_h);
    s.out_h = int(out_h);
    s.in_w = int(in_w);
    s.out_w = int(out_w);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    s.tiles_w = unsigned((out_w + kTileW - 1) / kTileW);
    s.tiles_h = unsigned((out_h + kThreadsY * kRows - 1) / (kThreadsY * kRows));
    const int64_t blocks = results / out_plane * s.tiles_h * s.tiles_w;
    TORCH_CHECK(blocks <= INT_MAX, "the result is too large for one launch");
    const dim3 block(kThreadsX, kThreadsY);
    pool<<<unsigned(blocks), block, 0, stream>>>(in, out, s);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Maxima over 4x4 windows");
}
#endif
