// Mean over dimension 1
//
// Recipe: reduction
// Strategy: the plain kernel
// Written for 128x4096x4095:float32; correct for every shape of the same rank.

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
constexpr int kChunk = 512;  // accesses that are summed on their own, or a long sum would lose its last bits
using Result = float;

using Part = float;

// One thread per result.
__global__ void __launch_bounds__(kThreads)
reduce(const float* __restrict__ x, Result* __restrict__ y, int64_t results, int length, int64_t inner) {
    const int64_t result = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (result >= results) return;
    const int64_t origin = result / inner * length * inner + result % inner;
    Part part = 0.0f;
    for (int start = 0; start < length; start += kChunk) {
        float sum = 0.0f;
        const int end = min(start + kChunk, length);
        for (int k = start; k < end; ++k) sum += x[origin + k * inner];
        part += sum;
    }
    y[result] = part / float(length);
}

}  // namespace

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.dim() == 3, "x must have 3 dimensions");
    const int64_t outer = x.size(0);
    const int64_t length = x.size(1);
    const int64_t inner = x.size(2);
    TORCH_CHECK(length >= 0 && length <= (1 << 30), "x is too long where it is reduced");
    auto y = torch::empty({x.size(0), x.size(2)}, x.options());
    const int64_t results = outer * inner;
    if (results == 0) return y;
    constexpr int64_t per_block = kThreads;
    const int64_t blocks = (results + per_block - 1) / per_block;
    TORCH_CHECK(blocks <= INT_MAX, "x is too large for one launch");
    const auto stream = at::cuda::getCurrentCUDAStream();
    reduce<<<unsigned(blocks), kThreads, 0, stream>>>(
        x.data_ptr<float>(), y.data_ptr<Result>(), results, int(length), inner);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward, "Mean over dimension 1");
}
#endif
