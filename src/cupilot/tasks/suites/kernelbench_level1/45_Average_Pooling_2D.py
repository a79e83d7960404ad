"""Mean over square windows of images that do not overlap."""

import torch

BATCH = 16
CHANNELS = 64
HEIGHT = 2048
WIDTH = 2048
KERNEL = 11


class Model(torch.nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.pool = torch.nn.AvgPool2d(kernel_size=kernel_size)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [KERNEL]
