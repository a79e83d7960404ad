"""Mean hinge loss of scores, with one sign for each column."""

import torch

ROWS = 32768
COLUMNS = 32768


class Model(torch.nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), torch.randint(0, 2, (COLUMNS,)).float() * 2 - 1]


def get_init_inputs():
    return []
