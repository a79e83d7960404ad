import torch
from torch import nn

BATCH, CHANNELS, SIZE = 8, 64, 56


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        return self.convolution(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []
