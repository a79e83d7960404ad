"""What the cards of reductions to one number do."""

from __future__ import annotations

from card_case import CardCase, launches

MSE = """
import torch
ROWS = 512
COLUMNS = 1024
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.mse_loss(x, y)
def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]
def get_init_inputs():
    return []
"""

CASES = [
    CardCase("two-stage-reduction", MSE, "", "two-stage-reduction", "global_store_bytes", at_most=0.01),
    CardCase(
        "last-block-finish", MSE, "two-stage-reduction", "two-stage-reduction\nlast-block-finish", launches, at_most=0.5
    ),
]
