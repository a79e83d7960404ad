"""First layer of a classic image network: an 11x11 convolution of three colours with stride 4."""

import torch

BATCH = 256
COLOURS = 3
OUT_CHANNELS = 96
HEIGHT = 224
WIDTH = 224
CLASSES = 1000


class Model(torch.nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()  # the classes belong to later layers
        self.conv1 = torch.nn.Conv2d(COLOURS, OUT_CHANNELS, kernel_size=11, stride=4, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv1(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, COLOURS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CLASSES]
