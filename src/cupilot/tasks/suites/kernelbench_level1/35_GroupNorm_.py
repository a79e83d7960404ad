"""Group normalisation: groups of eight channels of an image by their common mean and variance."""

import torch

BATCH = 112
CHANNELS = 64
GROUPS = 8
HEIGHT = 512
WIDTH = 512


class Model(torch.nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.gn = torch.nn.GroupNorm(num_groups=groups, num_channels=channels)

    def forward(self, x):
        return self.gn(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
