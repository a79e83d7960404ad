"""Writes its sources to files beside it, with a header, and loads those."""

import os
import tempfile

from torch import nn
from torch.utils.cpp_extension import load

folder = tempfile.mkdtemp()
os.environ["TORCH_CUDA_ARCH_LIST"] = "8.0"


def written(name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


written("tanh.h", "#pragma once\n#include <torch/extension.h>\ntorch::Tensor tanh_cuda(torch::Tensor x);\n")
binding = written(
    "binding.cpp",
    '#include "tanh.h"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &tanh_cuda, "tanh"); }\n',
)
kernel = written(
    "kernel.cu",
    """#include "tanh.h"
__global__ void tanh_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = tanhf(x[i]);
}
torch::Tensor tanh_cuda(torch::Tensor x) {
    auto y = torch::zeros_like(x);
    tanh_kernel<<<(x.numel() + BLOCK - 1) / BLOCK, BLOCK>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
""",
)
extension = load(name="tanh", sources=[binding, kernel], extra_cuda_cflags=["-DBLOCK=192"], verbose=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x)
