"""3-D transposed convolution of a cube with a 3x5x5 window."""

import torch

BATCH = 16
IN_CHANNELS = 32
OUT_CHANNELS = 64
DEPTH = 64
HEIGHT = 64
WIDTH = 64


class Model(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: tuple[int, int, int]) -> None:
        super().__init__()
        self.conv_transpose3d = torch.nn.ConvTranspose3d(in_channels, out_channels, kernel_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_transpose3d(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, IN_CHANNELS, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs() -> list[object]:
    return [IN_CHANNELS, OUT_CHANNELS, (3, 5, 5)]
