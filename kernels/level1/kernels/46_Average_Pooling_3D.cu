// Means over 3x3x3 windows
//
// Recipe: pooling
// Strategy:
//   block-shape(columns=64, rows=8)
//   row-marching(rows=32)
//   separable-window
//   vector-load(width=4)
//   window-registers(outputs=2)
// Written for 16x32x128x128x256:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kWindowD = 3, kStrideD = 2, kPadD = 1, kDilationD = 1;
constexpr int kWindowH = 3, kStrideH = 2, kPadH = 1, kDilationH = 1;
constexpr int kWindowW = 3, kStrideW = 2, kPadW = 1, kDilationW = 1;
constexpr float kScale = 1.0f / 27;
constexpr int kThreadsX = 64;  // along a row of the result
constexpr int kThreadsY = 8;
constexpr int kRows = 32;  // results of a thread along d
constexpr int kColumns = 2;  // results of a thread along w, side by side
constexpr int kTileW = kThreadsX * kColumns;
// A step of the march begins one result and passes kStrideD inputs, so that kLive results are under way at a time.
constexpr int kLive = ((kWindowD - 1) * kDilationD + kStrideD) / kStrideD;
constexpr int kSteps = kRows + kLive - 1;
constexpr int kSpanD = kSteps * kStrideD;
constexpr int kSpanW = (kColumns - 1) * kStrideW + (kWindowW - 1) * kDilationW + 1;
constexpr int kWidth = 4;
constexpr int kShift = 3;  // from an aligned element to the first one of a thread
constexpr int kPacks = (kShift + kSpanW + kWidth - 1) / kWidth;

struct Sizes {
    int in_d, in_h, in_w, out_d, out_h, out_w;
    unsigned tiles_d, tiles_h, tiles_w;  // blocks along each axis of the result
};

__device__ __forceinline__ float join(float a, float b) { return a + b; }

// Neighbouring floats that travel in one access; the address must be a multiple of the size.
template <int Width>
struct alignas(Width * sizeof(float)) Pack {
    float at[Width];
};

// Which element of its window the input `q` of a step is for the result begun `age` steps ago; -1 when it is none.
__device__ __forceinline__ constexpr int tap(int age, int q) {
    const int from = age * kStrideD + q;
    return from % kDilationD == 0 && from / kDilationD < kWindowD ? from / kDilationD : -1;
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

__device__ __forceinline__ Pack<kWidth> load_pack_if(bool there, const Pack<kWidth>* from, float otherwise) {
    Pack<kWidth> pack;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) pack.at[j] = otherwise;
    asm("{\n\t.reg .pred there;\n\tsetp.ne.s32 there, %5, 0;\n\t@there ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "+f"(pack.at[0]), "+f"(pack.at[1]), "+f"(pack.at[2]), "+f"(pack.at[3])
        : "l"(from), "r"(int(there)));
    return pack;
}

// The results of one thread, from (d0, h0, w0) on.
// Columns: all columns that its windows span are in the input; Rows: so are all rows and planes.
// Wide: rows are aligned for packs.
template <bool Columns, bool Rows, bool Wide>
__device__ __forceinline__ void results(
    const float* __restrict__ in, float* __restrict__ out, const Sizes& s,
    int d0, int h0, int w0) {
    const int start_d = d0 * kStrideD - kPadD;
    const int start_h = h0 * kStrideH - kPadH;
    const int start_w = w0 * kStrideW - kPadW;
    float live[kLive * kColumns];  // results under way, the youngest first
#pragma unroll 2
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int q = 0; q < kStrideD; ++q) {
            if (!wanted(q)) continue;
            const int r = step * kStrideD + q;
            float part[kColumns];  // what this plane gives to every window that contains it
#pragma unroll
            for (int i = 0; i < kWindowH; ++i) {
                const int d = start_d + r;
                const int h = start_h + i * kDilationH;
                const bool exists = Rows || (unsigned(d) < unsigned(s.in_d) && unsigned(h) < unsigned(s.in_h));
                const float* row = in + ((d * s.in_h + h) * s.in_w + start_w);
                float v[kPacks * kWidth];
                if (Wide) {
#pragma unroll
                    for (int p = 0; p < kPacks; ++p) {  // packs lie in the input or outside of it, never across its rim
                        const int at = p * kWidth - kShift;
                        const bool there = exists && (Columns || unsigned(start_w + at) < unsigned(s.in_w));
                        const auto* from = reinterpret_cast<const Pack<kWidth>*>(row + at);
                        const auto pack = Columns && Rows ? *from : load_pack_if(there, from, 0.0f);
#pragma unroll
                        for (int j = 0; j < kWidth; ++j) v[p * kWidth + j] = pack.at[j];
                    }
                } else {
#pragma unroll
                    for (int k = 0; k < kSpanW; ++k) {
                        const bool there = exists && (Columns || unsigned(start_w + k) < unsigned(s.in_w));
                        v[kShift + k] = Columns && Rows ? row[k] : load_if(there, row + k, 0.0f);
                    }
                }
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
#pragma unroll
                    for (int j = 0; j < kWindowW; ++j) {
                        const float value = v[kShift + c * kStrideW + j * kDilationW];
                        part[c] = i + j > 0 ? join(part[c], value) : value;
                    }
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
        if (o >= 0 && (Rows || d0 + o < s.out_d)) {
            float* line = out + ((d0 + o) * s.out_h + h0) * s.out_w + w0;
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
                float& one = live[(kLive - 1) * kColumns + c];
                one *= kScale;
                if (!Wide && (Columns || w0 + c < s.out_w)) *(line + c) = one;
            }
            if (Wide) {
#pragma unroll
                for (int c = 0; c < kColumns; c += 2) {
                    Pack<2> pack;
#pragma unroll
                    for (int j = 0; j < 2; ++j) pack.at[j] = live[(kLive - 1) * kColumns + c + j];
                    if (Columns || w0 + c < s.out_w) *(reinterpret_cast<Pack<2>*>(line + c)) = pack;
                }
            }
        }
#pragma unroll
        for (int i = kLive * kColumns - 1; i >= kColumns; --i) live[i] = live[i - kColumns];
    }
}

template <bool Wide>
__global__ void __launch_bounds__(kThreadsX * kThreadsY)
pool(const float* __restrict__ x, float* __restrict__ y, Sizes s) {
    unsigned tile = blockIdx.x;
    const int block_w = int(tile % s.tiles_w) * kTileW;
    tile /= s.tiles_w;
    const int block_h = int(tile % s.tiles_h) * kThreadsY;
    tile /= s.tiles_h;
    const int d0 = int(tile % s.tiles_d) * kRows;
    tile /= s.tiles_d;
    const float* in = x + int64_t(tile) * (s.in_d * s.in_h * s.in_w);
    float* out = y + int64_t(tile) * (s.out_d * s.out_h * s.out_w);
    const int w0 = block_w + int(threadIdx.x) * kColumns;
    const int h0 = block_h + int(threadIdx.y);
    if (w0 >= s.out_w || h0 >= s.out_h) return;
    // whole warps decide together, or those at the rim would go both ways
    const int warp_w = w0 - int(threadIdx.x % 32) * kColumns;
    const int last_w = min(warp_w + 31 * kColumns, s.out_w - 1);
    const bool columns = warp_w * kStrideW - kPadW >= kShift &&
                         last_w * kStrideW - kPadW + kPacks * kWidth - kShift <= s.in_w;
    const int start_h = h0 * kStrideH - kPadH;
    const int start_d = d0 * kStrideD - kPadD;
    const bool rows = start_h >= 0 && start_h + (kWindowH - 1) * kDilationH < s.in_h && start_d >= 0 && start_d + kSpanD <= s.in_d;
    if (columns && rows) {
        results<true, true, Wide>(in, out, s, d0, h0, w0);
    } else if (columns) {
        results<true, false, Wide>(in, out, s, d0, h0, w0);
    } else {
        results<false, false, Wide>(in, out, s, d0, h0, w0);
    }
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() >= 4, "x must have at least 4 dimensions");
    const int64_t rank = x.dim();
    const int64_t in_d = x.size(rank - 3);
    const int64_t in_h = x.size(rank - 2);
    const int64_t in_w = x.size(rank - 1);
    const int64_t room_d = in_d + 2 * kPadD - (kWindowD - 1) * kDilationD - 1;
    const int64_t room_h = in_h + 2 * kPadH - (kWindowH - 1) * kDilationH - 1;
    const int64_t room_w = in_w + 2 * kPadW - (kWindowW - 1) * kDilationW - 1;
    TORCH_CHECK(room_d >= 0 && room_h >= 0 && room_w >= 0, "the window is larger than the input");
    const int64_t out_d = room_d / kStrideD + 1;
    const int64_t out_h = room_h / kStrideH + 1;
    const int64_t out_w = room_w / kStrideW + 1;
    const int64_t in_plane = in_d * in_h * in_w;
    const int64_t out_plane = out_d * out_h * out_w;
    TORCH_CHECK(in_plane < INT_MAX / 2 && out_plane < INT_MAX / 2, "one channel is too large");
    auto shape = x.sizes().vec();
    shape[rank - 3] = out_d;
    shape[rank - 2] = out_h;
    shape[rank - 1] = out_w;
    auto y = torch::empty(shape, x.options());
    const int64_t results = y.numel();
    if (results == 0) return y;
    Sizes s{};
    s.in_d = int(in_d);
    s.out_d = int(out_d);
    s.in_h = int(in_h);
    s.out_h = int(out_h);
    s.in_w = int(in_w);
    s.out_w = int(out_w);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    s.tiles_w = unsigned((out_w + kTileW - 1) / kTileW);
    s.tiles_h = unsigned((out_h + kThreadsY - 1) / kThreadsY);
    s.tiles_d = unsigned((out_d + kRows - 1) / kRows);
    const int64_t blocks = results / out_plane * s.tiles_d * s.tiles_h * s.tiles_w;
    TORCH_CHECK(blocks <= INT_MAX, "the result is too large for one launch");
    const dim3 block(kThreadsX, kThreadsY);
    // every row must start at a multiple of a pack, or one float is taken at a time
    const bool wide = in_w % kWidth == 0 && aligned(in, sizeof(Pack<kWidth>)) &&
                      out_w % 2 == 0 && aligned(out, sizeof(Pack<2>));
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
    module.def("forward", &forward, "Means over 3x3x3 windows");
}
#endif
