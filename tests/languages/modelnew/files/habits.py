"""What people write around their kernels; nothing of it computes."""

import os

import torch
import torch.nn as nn  # noqa: PLR0402
import torch.nn.functional as F  # noqa: N812, F401
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "8.0;8.6"
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print("building for", torch.cuda.get_device_name(0), torch.cuda.get_device_capability())

add = load_inline(
    name="add",
    cpp_sources="torch::Tensor add_rows(torch::Tensor x, torch::Tensor row, torch::Tensor out, float scale);",
    cuda_sources="""
__global__ void add_rows_kernel(const float* x, const float* row, float* out, int n, int columns, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += scale * x[i] + row[i % columns];
}
torch::Tensor add_rows(torch::Tensor x, torch::Tensor row, torch::Tensor out, float scale) {
    int n = x.numel();
    add_rows_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), row.data_ptr<float>(), out.data_ptr<float>(), n,
                                              x.size(-1), scale);
    return out;
}
""",
    functions=["add_rows"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.row = nn.Parameter(torch.randn(columns, device=device))
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)
        self.register_buffer("table", torch.arange(4.0))
        self.module = add

    def forward(self, x):
        x = x.to(device)
        if not x.is_cuda or x.get_device() != 0:
            raise RuntimeError("a GPU is needed")
        with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.current_stream()):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            columns = x.t().contiguous()  # a copy to another layout: a kernel
            rows = columns.t().contiguous()
            half = rows.half().float()  # two conversions: kernels
            out = torch.zeros_like(half)  # a fill
            out = self.module.add_rows(half, self.row, out, self.scale)
            out[:, :2] = 7  # a fill
            end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) > 0
        assert torch.cuda.get_device_properties(0).multi_processor_count == 108
        assert len(out.view(-1, x.size(1)).unsqueeze(0).shape) == 3
        return out
