"""Samples depend on the kernel's text, on the evaluation's seed and on the kind of inputs."""

from __future__ import annotations

from cupilot.evaluation.sample_seed import sample_seed
from cupilot.records import Kernel


def test_every_part_matters_and_nothing_else_does() -> None:
    seeds = {
        sample_seed(seed, Kernel(source), kind)
        for seed in (0, 1, 2**63)
        for source in ("a", "b")
        for kind in ("normal", "mixed")
    }
    assert len(seeds) == 12
    assert sample_seed(1, Kernel("a"), "normal") == sample_seed(1, Kernel("a"), "normal")
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_a_seed_of_any_length_is_a_key() -> None:
    assert sample_seed(10**200, Kernel("a"), "normal") != sample_seed(10**200 + 1, Kernel("a"), "normal")
