// Softmax over the last dimension
//
// Recipe: softmax
// Strategy: the plain kernel
// Written for 512x4096:float32; correct for every shape of the same rank.

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

constexpr int kChunk = 256;  // summed on its own, or a long row's sum would lose its last bits

// One thread per row: its maximum, its sum, its results.
__global__ void __launch_bounds__(kThreads)
softmax(const float* __restrict__ x, float* __restrict__ y, int64_t rows, int cols) {
    const int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= rows) return;
    const float* in = x + row * cols;
    float* out = y + row * cols;
    float peak = -FLT_MAX;
    for (int p = 0; p < cols; ++p) peak = fmaxf(peak, in[p]);
    float sum = 0.0f;
    for (int start = 0; start < cols; start += kChunk) {
        float part = 0.0f;
        const int end = min(start + kChunk, cols);
        for (int p = start; p < end; ++p) part += expf(in[p] - peak);
        sum += part;
    }
    for (int p = 0; p < cols; ++p) out[p] = expf(in[p] - peak) / sum;
}

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() >= 1, "x must have at least one dimension");

    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    const int64_t cols = x.size(x.dim() - 1);
    const int64_t rows = x.numel() / cols;
    constexpr int64_t rows_per_block = kThreads;
    const int64_t blocks = (rows + rows_per_block - 1) / rows_per_block;
    TORCH_CHECK(cols <= INT_MAX && blocks <= INT_MAX, "x is too large for one launch");
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    softmax<<<unsigned(blocks), kThreads, 0, stream>>>(in, out, rows, int(cols));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Softmax over the last dimension");
}
#endif
