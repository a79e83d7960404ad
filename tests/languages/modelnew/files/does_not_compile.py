"""A mistake in line 14."""

from torch import nn
from torch.utils.cpp_extension import load_inline

broken = load_inline(
    name="broken",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources="""
__global__ void relu_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    // y[i] = x[i] > 0 ? x[i] : 0;
    if (i < n) y[i] = x[i] > 0 ? x[i] : zero;
}
torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    relu_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
""",
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return broken.relu(x)
