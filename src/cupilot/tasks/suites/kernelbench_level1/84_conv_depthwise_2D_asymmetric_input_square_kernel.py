"""A square filter for every channel of wide images."""

import torch

BATCH = 64
CHANNELS = 128
HEIGHT = 256
WIDTH = 512
KERNEL = 3
STRIDE = 1
PADDING = 0


class Model(torch.nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv2d = torch.nn.Conv2d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=False
        )

    def forward(self, x):
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, CHANNELS, KERNEL, STRIDE, PADDING]
