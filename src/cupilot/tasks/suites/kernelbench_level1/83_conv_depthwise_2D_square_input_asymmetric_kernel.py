"""A filter of one column for every channel of square images."""

import torch

BATCH = 64
CHANNELS = 8
HEIGHT = 512
WIDTH = 512
KERNEL = 3
STRIDE = 1
PADDING = 0
DILATION = 1


class Model(torch.nn.Module):
    def __init__(self, channels, kernel_size, stride, padding, dilation):
        super().__init__()
        self.conv2d = torch.nn.Conv2d(
            channels,
            channels,
            (kernel_size, 1),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=channels,
            bias=False,
        )

    def forward(self, x):
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, KERNEL, STRIDE, PADDING, DILATION]
