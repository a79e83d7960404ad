"""What the cards of streaming kernels do."""

from __future__ import annotations

from card_case import CardCase, time_s

from cupilot.records import Evaluation

HEAD = """
import torch
ROWS = 512
COLUMNS = 1024
class Model(torch.nn.Module):
    def forward(self, {arguments}):
        return {result}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
RELU = HEAD.format(arguments="x", result="torch.relu(x)", inputs="torch.randn(ROWS, COLUMNS)")
TANH = HEAD.format(arguments="x", result="torch.tanh(x)", inputs="torch.randn(ROWS, COLUMNS)")
SCALED = HEAD.format(
    arguments="x, scale", result="x * scale", inputs="torch.randn(ROWS, COLUMNS), torch.randn(ROWS, 1)"
)
VECTORS = "vector-load(bytes=16)"


def blocks(evaluation: Evaluation) -> float:
    assert evaluation.profile is not None
    return float(evaluation.profile.launches[0].blocks)


CASES = [
    CardCase("vector-load", RELU, "", "vector-load(bytes=16)", "global_load_requests", at_most=0.26),
    CardCase("unroll", RELU, "", "unroll(factor=4)", "independent_loads", at_least=3.0),
    CardCase("grid-stride", RELU, "", "grid-stride(blocks_per_sm=4)", blocks, at_most=0.25),
    CardCase("block-size", RELU, "", "block-size(threads=512)", blocks, at_most=0.5),
    # what the caches are told changes no counter of the virtual GPU; here it must cost nothing
    CardCase("streaming-store", RELU, VECTORS, f"{VECTORS}\nstreaming-store", time_s, at_most=1.01),
    CardCase("cache-hint", SCALED, VECTORS, f'{VECTORS}\ncache-hint(hint="no-allocate")', time_s, at_most=1.01),
    CardCase("constant-memory", SCALED, "", "constant-memory", "global_load_requests", at_most=0.51),
    CardCase("fast-math-tanh", TANH, "", "fast-math-tanh", "lane_instructions", at_most=0.7, precision="tf32"),
]
