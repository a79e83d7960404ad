"""Its host code wants a file."""

from torch import nn
from torch.utils.cpp_extension import load_inline

reader = load_inline(
    name="reader",
    cpp_sources="torch::Tensor read(torch::Tensor x);",
    cuda_sources="""
#include <cstdio>
torch::Tensor read(torch::Tensor x) {
    FILE* file = fopen("/etc/hostname", "r");
    TORCH_CHECK(file, "no such file");
    return x;
}
""",
    functions=["read"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return reader.read(x)
