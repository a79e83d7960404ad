"""Kullback-Leibler divergence of two sets of distributions, the mean of their rows."""

import torch

ROWS = 16384
COLUMNS = 16384


class Model(torch.nn.Module):
    def forward(self, predictions, targets):
        return torch.nn.functional.kl_div(torch.log(predictions), targets, reduction="batchmean")


def get_inputs():
    return [torch.rand(ROWS, COLUMNS).softmax(dim=-1), torch.rand(ROWS, COLUMNS).softmax(dim=-1)]


def get_init_inputs():
    return []
