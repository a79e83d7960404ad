"""Maximum over square windows of images."""

import torch

BATCH = 32
CHANNELS = 64
HEIGHT = 512
WIDTH = 512
KERNEL = 4
STRIDE = 1
PADDING = 1
DILATION = 1


class Model(torch.nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation):
        super().__init__()
        self.pool = torch.nn.MaxPool2d(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [KERNEL, STRIDE, PADDING, DILATION]
