#include <torch/extension.h>

__global__ void endless(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    // volatile: a loop without an effect may be removed by the compiler
    volatile float* out = y;
    out[i] = x[i];
    for (;;) out[i] = out[i] + 1.0f;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    endless<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
