"""Layer normalisation of whole images, all channels and pixels together."""

import torch

BATCH = 16
FEATURES = 64
HEIGHT = 256
WIDTH = 256


class Model(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln = torch.nn.LayerNorm(normalized_shape=shape)

    def forward(self, x):
        return self.ln(x)


def get_inputs():
    return [torch.rand(BATCH, FEATURES, HEIGHT, WIDTH)]


def get_init_inputs():
    return [(FEATURES, HEIGHT, WIDTH)]
