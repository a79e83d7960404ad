"""A filter wider than high for every channel of wide images."""

import torch

BATCH = 32
CHANNELS = 128
HEIGHT = 128
WIDTH = 256
KERNEL_HEIGHT = 3
KERNEL_WIDTH = 7


class Model(torch.nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_h,
        kernel_w,
        stride_h,
        stride_w,
        pad_h,
        pad_w,
        dilation_h,
        dilation_w,
        groups,
    ):
        super().__init__()
        self.conv2d = torch.nn.Conv2d(
            in_channels,
            out_channels,
            (kernel_h, kernel_w),
            stride=(stride_h, stride_w),
            padding=(pad_h, pad_w),
            dilation=(dilation_h, dilation_w),
            groups=groups,
            bias=False,
        )

    def forward(self, x):
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, CHANNELS, KERNEL_HEIGHT, KERNEL_WIDTH, 1, 1, 0, 0, 1, 1, CHANNELS]
