"""3-D convolution of three channels with a window that is flat in the last dimension."""

import torch

BATCH = 16
IN_CHANNELS = 3
OUT_CHANNELS = 64
DEPTH = 256
HEIGHT = 256
WIDTH = 10


class Model(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv3d = torch.nn.Conv3d(in_channels, out_channels, (kernel_size, kernel_size, 1), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv3d(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, IN_CHANNELS, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [IN_CHANNELS, OUT_CHANNELS, 3]
