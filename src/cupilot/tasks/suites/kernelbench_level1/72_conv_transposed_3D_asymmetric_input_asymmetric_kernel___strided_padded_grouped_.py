"""3-D transposed convolution in four groups with stride, padding, padding of the output and a 3x5x7 window."""

import torch

BATCH = 8
CHANNELS = 32
WIDTH = 48


class Model(torch.nn.Module):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int, int],
        stride: tuple[int, int, int],
        padding: tuple[int, int, int],
        output_padding: tuple[int, int, int],
        groups: int,
    ) -> None:
        super().__init__()
        self.conv_transpose3d = torch.nn.ConvTranspose3d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            groups=groups,
            bias=False,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_transpose3d(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, CHANNELS, WIDTH // 4, WIDTH // 2, WIDTH)]


def get_init_inputs() -> list[object]:
    return [CHANNELS, CHANNELS, (3, 5, 7), (2, 2, 2), (1, 2, 3), (1, 1, 1), 4]
