"""A square filter for every channel of square images."""

import torch

BATCH = 16
CHANNELS = 64
HEIGHT = 512
WIDTH = 512
KERNEL = 3
STRIDE = 1
PADDING = 0


class Model(torch.nn.Module):
    def __init__(self, channels, kernel_size, stride, padding):
        super().__init__()
        self.conv2d = torch.nn.Conv2d(
            channels, channels, kernel_size, stride=stride, padding=padding, groups=channels, bias=False
        )

    def forward(self, x):
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, KERNEL, STRIDE, PADDING]
