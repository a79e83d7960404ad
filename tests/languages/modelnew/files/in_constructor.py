"""Loads in the constructor, sources made for the sizes at hand; a module of its own, named arguments."""

from torch import nn
from torch.utils.cpp_extension import load_inline


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        cuda = f"""
constexpr int WIDTH = {width};

__global__ void scale_rows(const float* x, float* y, int rows, float factor, float shift) {{
    for (int i = threadIdx.x; i < WIDTH; i += blockDim.x)
        y[blockIdx.x * WIDTH + i] = x[blockIdx.x * WIDTH + i] * factor + shift;
}}

void launch(const float* x, float* y, int rows, float factor, float shift) {{
    scale_rows<<<rows, 64>>>(x, y, rows, factor, shift);
}}
"""
        cpp = """
#include <torch/extension.h>
#include <vector>

void launch(const float* x, float* y, int rows, float factor, float shift);

std::vector<torch::Tensor> run(torch::Tensor x, double factor, double shift) {
    auto y = torch::empty_like(x), z = torch::empty_like(x);
    launch(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), factor, shift);
    launch(x.data_ptr<float>(), z.data_ptr<float>(), x.size(0), factor, -shift);
    return {y, z};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("run", &run, "x times a factor, plus and minus a shift", py::arg("x"), py::arg("factor") = 2.0,
          py::arg("shift") = 1.0);
}
"""
        self.module = load_inline(name=f"scale_{width}", cpp_sources=cpp, cuda_sources=cuda)

    def forward(self, x):
        first, _ = self.module.run(x, factor=3.0)
        _, second = self.module.run(x, factor=3.0)
        return first, second
