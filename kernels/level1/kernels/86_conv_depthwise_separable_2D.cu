// Filters of 3x3 on each channel, then a mix of the channels
//
// Recipe: separable
// Strategy:
//   double-buffer(buffers=2)
//   fused-stages
//   shared-tile(block_k=32, block_m=128, block_n=256)
//   split-tf32
//   tensor-cores
//   warp-tile(warp_m=64, warp_n=32)
// Written for 16x64x512x512:float32, 64x1x3x3:float32, 128x64x1x1:float32; correct for every shape of the same rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kWindowH = 3, kStrideH = 1, kPadH = 1, kDilationH = 1;
constexpr int kWindowW = 3, kStrideW = 1, kPadW = 1, kDilationW = 1;
constexpr int kTaps = kWindowH * kWindowW;

struct Sizes {
    int channels, mixed;  // of the input, and of the result
    int in_h, in_w, out_h, out_w;
    unsigned tiles_h, tiles_w, tiles_m;  // blocks along each axis of the result
};

// mma_tf32: c += a b for a 16 x 8 block of results and 8 inner steps; factors are tf32, sums float32.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// round_tf32: the nearest number of tf32, which keeps 10 bits of the mantissa.
__device__ __forceinline__ uint32_t round_tf32(float x) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(x));
    return rounded;
}

// split_tf32: x as a sum of two numbers of tf32, 22 to 23 bits of the mantissa together. The first is rounded to nearest
// (a NaN that this turns into zero is left in the rest). From the rest a tensor core cuts off all but 10 bits, and the
// factor, half a unit more in the middle of a binade, makes a rounding of it. An infinity leaves NaN as the rest: where
// PyTorch has an infinite result there is NaN, as in all products that are put together from several.
__device__ __forceinline__ void split_tf32(float x, uint32_t& big, uint32_t& small) {
    big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    small = __float_as_uint((x - __uint_as_float(big)) * 1.000345f);
}

constexpr int kBlockM = 128;  // a block computes kBlockM channels of the result
constexpr int kTileH = 8, kTileW = 32;  // at a tile of places,
constexpr int kBlockN = kTileH * kTileW;
constexpr int kBlockK = 32;  // kBlockK channels of the input at a time
constexpr int kThreads = 512;
constexpr int kWarpM = 64, kWarpN = 32;  // results of a warp
constexpr int kSpanH = (kTileH - 1) * kStrideH + (kWindowH - 1) * kDilationH + 1;  // rows of the input under a tile
constexpr int kSpanW = (kTileW - 1) * kStrideW + (kWindowW - 1) * kDilationW + 1;
// rows in shared memory are longer than needed, so that the lanes of a fragment meet different banks
constexpr int kRowN = kBlockN + 8;
constexpr int kRowK = kBlockK + 4;
constexpr int kStage = kBlockK * kRowN + kBlockM * kRowK;
constexpr int kSharedBytes = 2 * kStage * int(sizeof(float));

// Filters kBlockK channels from k0 on: a warp takes a channel, its lanes the columns of the tile, and each marches down
// the rows, so that an input is loaded once for all results below each other. Channels that do not exist are zero.
// Inside: all inputs exist.
template <bool Inside>
__device__ __forceinline__ void filter_tile(
    float* tile, const float* __restrict__ image, const float* __restrict__ filters,
    const Sizes& s, int k0, int h0, int w0) {
    const int lane = threadIdx.x % 32;
    const int start_h = h0 * kStrideH - kPadH;
    const int start_w = (w0 + lane) * kStrideW - kPadW;
#pragma unroll 1
    for (int k = threadIdx.x / 32; k < kBlockK; k += kThreads / 32) {
        const int channel = k0 + k;
        float sum[kTileH];
        float taps[kTaps];
#pragma unroll
        for (int t = 0; t < kTaps; ++t) taps[t] = Inside || channel < s.channels ? filters[int64_t(channel) * kTaps + t] : 0.0f;
#pragma unroll
        for (int o = 0; o < kTileH; ++o) sum[o] = 0.0f;
        const float* in = image + int64_t(channel) * (s.in_h * s.in_w);
#pragma unroll
        for (int r = 0; r < kSpanH; ++r) {
            const int h = start_h + r;
            const bool exists = Inside || (channel < s.channels && unsigned(h) < unsigned(s.in_h));
            float v[kWindowW];
#pragma unroll
            for (int j = 0; j < kWindowW; ++j) {
                const int w = start_w + j * kDilationW;
                v[j] = Inside || (exists && unsigned(w) < unsigned(s.in_w)) ? in[h * s.in_w + w] : 0.0f;
            }
#pragma unroll
            for (int o = 0; o < kTileH; ++o) {
                const int from = r - o * kStrideH;  // known when compiled
                if (from < 0 || from % kDilationH != 0 || from / kDilationH >= kWindowH) continue;
#pragma unroll
                for (int j = 0; j < kWindowW; ++j) sum[o] += taps[from / kDilationH * kWindowW + j] * v[j];
            }
        }
#pragma unroll
        for (int o = 0; o < kTileH; ++o) tile[k * kRowN + o * kTileW + lane] = sum[o];
    }
}

// The weights of kBlockM channels of the result for kBlockK of the input; a thread stays with one channel of the input.
__device__ __forceinline__ void load_mix(float* tile, const float* __restrict__ mix, const Sizes& s, int m0, int k0) {
    constexpr int kAtOnce = kThreads / kBlockK;
    const int k = threadIdx.x % kBlockK;
    const int first = threadIdx.x / kBlockK;
    const float* from = mix + int64_t(m0 + first) * s.channels + k0 + k;
#pragma unroll 8
    for (int m = 0; m < kBlockM; m += kAtOnce) {
        const bool there = m0 + first + m < s.mixed && k0 + k < s.channels;
        tile[(first + m) * kRowK + k] = there ? from[int64_t(m) * s.channels] : 0.0f;
    }
}

// Both stages for one tile: filtered channels go to shared memory and are mixed from there.
__global__ void __launch_bounds__(kThreads)
separable(const float* __restrict__ x, const float* __restrict__ filters,
          const float* __restrict__ mix, float* __restrict__ y, Sizes s) {
    extern __shared__ __align__(16) float stages[];
    unsigned tile = blockIdx.x;
    const int m0 = int(tile % s.tiles_m) * kBlockM;
    tile /= s.tiles_m;
    const int w0 = int(tile % s.tiles_w) * kTileW;
    tile /= s.tiles_w;
    const int h0 = int(tile % s.tiles_h) * kTileH;
    const int64_t image = tile / s.tiles_h;
    const float* in = x + image * s.channels * (s.in_h * s.in_w);
    const int start_h = h0 * kStrideH - kPadH;
    const int start_w = w0 * kStrideW - kPadW;
    const bool inside = start_h >= 0 && start_h + kSpanH <= s.in_h && start_w >= 0 && start_w + kSpanW <= s.in_w;
    const auto fill = [&](int stage, int k0) {
        float* to = stages + stage * kStage;
        load_mix(to + kBlockK * kRowN, mix, s, m0, k0);
        if (inside && k0 + kBlockK <= s.channels) {
            filter_tile<true>(to, in, filters, s, k0, h0, w0);
        } else {
            filter_tile<false>(to, in, filters, s, k0, h0, w0);
        }
    };
    const int group = threadIdx.x % 32 / 4;
    const int quad = threadIdx.x % 4;
    const int warp_m = threadIdx.x / 32 / (kBlockN / kWarpN) * kWarpM;
    const int warp_n = threadIdx.x / 32 % (kBlockN / kWarpN) * kWarpN;
    constexpr int kTilesM = kWarpM / 16, kTilesN = kWarpN / 8;
    float sums[kTilesM][kTilesN][4] = {};
    const auto multiply = [&](const float* from) {
        const float* weights = from + kBlockK * kRowN + (warp_m + group) * kRowK + quad;
        const float* places = from + quad * kRowN + warp_n + group;
#pragma unroll
        for (int k = 0; k < kBlockK; k += 8) {
            uint32_t a[kTilesM][4], a_small[kTilesM][4];
#pragma unroll
            for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
                for (int p = 0; p < 4; ++p) {
                    const float value = weights[(16 * i + p % 2 * 8) * kRowK + k + p / 2 * 4];
                    split_tf32(value, a[i][p], a_small[i][p]);
                }
            }
#pragma unroll
            for (int j = 0; j < kTilesN; ++j) {
                uint32_t b[2], b_small[2];
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    const float value = places[(k + 4 * p) * kRowN + 8 * j];
                    split_tf32(value, b[p], b_small[p]);
                }
                // tensor cores cut off what they add: a step's products, the small ones first, are summed from zero
                float part[kTilesM][4] = {};
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) mma_tf32(part[i], a_small[i], b);
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) mma_tf32(part[i], a[i], b_small);
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) mma_tf32(part[i], a[i], b);
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
                    for (int p = 0; p < 4; ++p) sums[i][j][p] += part[i][p];
                }
            }
        }
    };
    const auto store = [&] {
        const bool pairs = s.out_w % 2 == 0;  // then every second place of the result is aligned for two
#pragma unroll
        for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
            for (int p = 0; p < 4; p += 2) {
                const int m = m0 + warp_m + 16 * i + p / 2 * 8 + group;
                if (m >= s.mixed) continue;
                float* plane = y + (image * s.mixed + m) * (s.out_h * s.out_w);
#pragma unroll
                for (int j = 0; j < kTilesN; ++j) {
                    const int n = warp_n + 8 * j + 2 * quad;
                    const int h = h0 + n / kTileW;
                    const int w = w0 + n % kTileW;
                    if (h >= s.out_h || w >= s.out_w) continue;
                    float* to = plane + h * s.out_w + w;
                    const float2 two{sums[i][j][p], sums[i][j][p + 1]};
                    if (pairs) {
                        *reinterpret_cast<float2*>(to) = two;
                    } else {
                        to[0] = two.x;
                        if (w + 1 < s.out_w) to[1] = two.y;
                    }
                }
            }
        }
    };

    fill(0, 0);
    __syncthreads();
    int stage = 0;
    for (int k0 = 0; k0 < s.channels; k0 += kBlockK) {
        // warps that are done filtering multiply while others still filter: one barrier per step is enough
        if (k0 + kBlockK < s.channels) fill(1 - stage, k0 + kBlockK);
        multiply(stages + stage * kStage);
        __syncthreads();
        stage = 1 - stage;
    }
    store();
}

}  // namespace

torch::Tensor forward(torch::Tensor x, torch::Tensor filters, torch::Tensor mix) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 4, "x must have four dimensions");
    TORCH_CHECK(filters.is_cuda(), "filters must be on a CUDA device");
    TORCH_CHECK(filters.scalar_type() == torch::kFloat32, "filters must be float32");
    TORCH_CHECK(filters.is_contiguous(), "filters must be contiguous");
    TORCH_CHECK(filters.dim() == 4, "filters must have four dimensions");
    TORCH_CHECK(mix.is_cuda(), "mix must be on a CUDA device");
    TORCH_CHECK(mix.scalar_type() == torch::kFloat32, "mix must be float32");
    TORCH_CHECK(mix.is_contiguous(), "mix must be contiguous");
    TORCH_CHECK(mix.dim() == 4, "mix must have four dimensions");
    const int64_t batch = x.size(0);
    const int64_t channels = x.size(1);
    const int64_t mixed = mix.size(0);
    TORCH_CHECK(filters.size(0) == channels && filters.size(1) == 1, "every channel must have a filter of its own");
    TORCH_CHECK(filters.size(2) == kWindowH && filters.size(3) == kWindowW, "the filters have another size");
    TORCH_CHECK(mix.size(1) == channels && mix.size(2) == 1 && mix.size(3) == 1, "the mix must be of all channels");
    const int64_t room_h = x.size(2) + 2 * kPadH - (kWindowH - 1) * kDilationH - 1;
    const int64_t room_w = x.size(3) + 2 * kPadW - (kWindowW - 1) * kDilationW - 1;
    TORCH_CHECK(room_h >= 0 && room_w >= 0, "the filters are larger than the input");
    const int64_t out_h = room_h / kStrideH + 1;
    const int64_t out_w = room_w / kStrideW + 1;
    TORCH_CHECK(x.size(2) * x.size(3) < INT_MAX / 2 && out_h * out_w < INT_MAX / 2, "one channel is too large");
    auto y = torch::empty({batch, mixed, out_h, out_w}, x.options());
    if (y.numel() == 0) return y;
    Sizes s{};
    s.channels = int(channels);
    s.mixed = int(mixed);
    s.in_h = int(x.size(2));
    s.in_w = int(x.size(3));
    s.out_h = int(out_h);
    s.out_w = int(out_w);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    s.tiles_h = unsigned((out_h + kTileH - 1) / kTileH);
    s.tiles_w = unsigned((out_w + kTileW - 1) / kTileW);
    s.tiles_m = unsigned((mixed + kBlockM - 1) / kBlockM);
    const int64_t blocks = batch * s.tiles_h * s.tiles_w * s.tiles_m;
    TORCH_CHECK(blocks <= INT_MAX, "the result is too large for one launch");
    C10_CUDA_CHECK(cudaFuncSetAttribute(separable, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    separable<<<unsigned(blocks), kThreads, kSharedBytes, stream>>>(
        in, filters.data_ptr<float>(), mix.data_ptr<float>(), out, s);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Filters of 3x3 on each channel, then a mix of the channels");
}
#endif
