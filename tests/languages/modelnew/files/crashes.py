"""Its host code writes to nowhere."""

from torch import nn
from torch.utils.cpp_extension import load_inline

crash = load_inline(
    name="crash",
    cpp_sources="torch::Tensor crash(torch::Tensor x);",
    cuda_sources="torch::Tensor crash(torch::Tensor x) { *(volatile int*)8 = 1; return x; }",
    functions=["crash"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return crash.crash(x)
