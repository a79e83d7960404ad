"""3-D transposed convolution of a box with stride and padding."""

import torch

BATCH = 4
IN_CHANNELS = 32
OUT_CHANNELS = 32
DEPTH = 32
HEIGHT = 64
WIDTH = 128


class Model(torch.nn.Module):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int,
        padding: int,
        output_padding: int,
    ) -> None:
        super().__init__()  # the problem hands over a padding of the output but does not use it
        self.conv_transpose3d = torch.nn.ConvTranspose3d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            bias=False,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_transpose3d(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, IN_CHANNELS, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [IN_CHANNELS, OUT_CHANNELS, 3, 2, 1, 4]
