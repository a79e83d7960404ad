"""One kernel of its own and two operators of PyTorch's."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

square = load_inline(
    name="square",
    cpp_sources="torch::Tensor square(torch::Tensor x);",
    cuda_sources="""
__global__ void square_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
torch::Tensor square(torch::Tensor x) {
    auto y = torch::empty_like(x);
    square_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
""",
    functions=["square"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        products = torch.mm(a, b)
        products += 1.0
        return square.square(products)
