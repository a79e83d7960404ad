"""Instance normalisation: every channel of every image by its own mean and variance."""

import torch

BATCH = 112
CHANNELS = 64
HEIGHT = 512
WIDTH = 512


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.inorm = torch.nn.InstanceNorm2d(channels)

    def forward(self, x):
        return self.inorm(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
