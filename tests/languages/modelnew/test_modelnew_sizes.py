from __future__ import annotations

from cupilot.languages.modelnew.sizes import sizes_of

MODEL = """
import torch
BATCH = 64
CHANNELS, WIDTH = 48, 56
WIDER: int = 2 * CHANNELS
FACTOR = 0.5
TABLE = torch.rand(BATCH)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()  # a comment
        self.layer = torch.nn.Linear(CHANNELS, WIDER)
        self.factor, self.table = FACTOR, TABLE
"""
ANSWER = """

class ModelNew(Model):
    def forward(self, x): ...
"""


def test_sizes_that_the_module_refers_to_follow_the_version() -> None:
    version = MODEL.replace("48", "37").replace("64", "3")
    assert sizes_of(MODEL + ANSWER, version) == {"CHANNELS": 37, "WIDER": 74}


def test_comments_make_no_other_module() -> None:
    assert sizes_of(MODEL.replace("  # a comment", "") + ANSWER, MODEL) == {"CHANNELS": 48, "WIDER": 96}


def test_an_answer_with_another_module_or_none_is_left_alone() -> None:
    other = MODEL.replace("Linear(CHANNELS, WIDER)", "Linear(WIDER, CHANNELS)")
    assert sizes_of(other + ANSWER, MODEL) == {}
    assert sizes_of("CHANNELS = 48\n" + ANSWER.replace("(Model)", ""), MODEL) == {}
    assert sizes_of(MODEL + ANSWER, "") == {}
