"""Claims of the cards about windows."""

from __future__ import annotations

from card_case import CardCase
from window_tasks import window_source

SIGNAL = window_source("AvgPool1d(8, 1, 4)", (4, 8, 1024))
IMAGE = window_source("MaxPool2d(4, 1, 1)", (2, 8, 64, 256))
MEANS = window_source("AvgPool2d(5, 1)", (2, 8, 64, 256))
SHAPE = "block-shape(columns=64, rows=4)"

CASES = [
    CardCase("window-registers", SIGNAL, "", "window-registers(outputs=4)", "global_load_requests", at_most=0.5),
    CardCase("row-marching", IMAGE, SHAPE, f"{SHAPE}\nrow-marching(rows=8)", "global_load_requests", at_most=0.5),
    CardCase("shared-halo", IMAGE, SHAPE, f"{SHAPE}\nshared-halo", "global_load_requests", at_most=0.3),
    CardCase(
        "separable-window", MEANS, f"{SHAPE}\nrow-marching(rows=8)", f"{SHAPE}\nrow-marching(rows=8)\nseparable-window",
        "flop_fp32", at_most=0.6,
    ),
    CardCase(
        "block-shape", IMAGE, "row-marching(rows=2)", "block-shape(columns=128, rows=8)\nrow-marching(rows=2)",
        "l2_read_sectors", at_most=0.75,
    ),
]  # fmt: skip
