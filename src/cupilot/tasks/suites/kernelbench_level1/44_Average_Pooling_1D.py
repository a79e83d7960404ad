"""Mean over windows of a one-dimensional signal; padding counts as zeros."""

import torch

BATCH = 64
CHANNELS = 128
LENGTH = 65536
KERNEL = 8
STRIDE = 1
PADDING = 4


class Model(torch.nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = torch.nn.AvgPool1d(kernel_size=kernel_size, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [KERNEL, STRIDE, PADDING]
