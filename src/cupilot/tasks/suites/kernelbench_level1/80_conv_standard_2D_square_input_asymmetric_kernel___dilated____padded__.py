"""2-D convolution of square images with padding, dilation and a 5x9 window."""

import torch

BATCH = 8
IN_CHANNELS = 32
OUT_CHANNELS = 64
HEIGHT = 512
WIDTH = 512


class Model(torch.nn.Module):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int],
        stride: int,
        padding: tuple[int, int],
        dilation: tuple[int, int],
    ) -> None:
        super().__init__()
        self.conv2d = torch.nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            bias=False,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2d(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, IN_CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[object]:
    return [IN_CHANNELS, OUT_CHANNELS, (5, 9), 1, (2, 4), (2, 3)]
