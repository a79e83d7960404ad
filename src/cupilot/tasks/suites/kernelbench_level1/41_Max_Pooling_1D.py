"""Maximum over windows of a one-dimensional signal, with stride, padding and dilation."""

import torch

BATCH = 64
CHANNELS = 192
LENGTH = 65536
KERNEL = 8
STRIDE = 1
PADDING = 4
DILATION = 3


class Model(torch.nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation, return_indices):
        super().__init__()
        self.pool = torch.nn.MaxPool1d(
            kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation, return_indices=return_indices
        )

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [KERNEL, STRIDE, PADDING, DILATION, False]
