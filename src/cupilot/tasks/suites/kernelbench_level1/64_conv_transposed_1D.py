"""1-D transposed convolution."""

import torch

BATCH = 64
IN_CHANNELS = 128
OUT_CHANNELS = 128
LENGTH = 65536


class Model(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv1d_transpose = torch.nn.ConvTranspose1d(in_channels, out_channels, kernel_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv1d_transpose(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, IN_CHANNELS, LENGTH)]


def get_init_inputs() -> list[int]:
    return [IN_CHANNELS, OUT_CHANNELS, 3]
