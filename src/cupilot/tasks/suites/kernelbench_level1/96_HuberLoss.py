"""Mean of differences, squared where they are small and linear where they are not."""

import torch

ROWS = 32768
COLUMNS = 32768


class Model(torch.nn.Module):
    def forward(self, predictions, targets):
        return torch.nn.functional.smooth_l1_loss(predictions, targets)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
