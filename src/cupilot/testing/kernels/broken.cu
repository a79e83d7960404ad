#include <torch/extension.h>

__global__ void broken(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * no_such_name[i];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    broken<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
