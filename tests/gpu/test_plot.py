"""The picture: well-formed, self-contained, everything in it, and no label over another or outside."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from math import radians
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cupilot.gpu import load_spec, spec_names
from cupilot.gpu.plot import COLOURS, MOST_NAMED, Dot, dots_of, roofline_svg
from cupilot.gpu.plot_labels import Box, Labels, slanted_boxes, text_box
from cupilot.gpu.roofline import LEVELS, roof_of
from cupilot.gpu.standing import WHOLE, Level, Position

SVG = "{http://www.w3.org/2000/svg}"
ROOF = roof_of(load_spec("a100-80gb"))
ROOFS = [roof_of(load_spec(name), precision) for name in spec_names() for precision in ("fp32", "fp16", "fp64")]


def three(label: str, intensity: float, flop_per_s: float) -> list[Dot]:
    return [Dot(label, intensity / (3 - n), flop_per_s, level, label) for n, level in enumerate(LEVELS)]


def drawn(*arguments: object) -> ElementTree.Element:
    return ElementTree.fromstring(roofline_svg(*arguments))  # type: ignore[arg-type]


def words(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def tips(root: ElementTree.Element) -> list[str]:
    return [title.text or "" for title in root.iter(f"{SVG}title")]


def boxes(root: ElementTree.Element) -> list[tuple[str, tuple[Box, ...]]]:
    """Where each text lies; a turned one is several small boxes."""
    found = []
    for text in root.iter(f"{SVG}text"):
        x, y, size = (float(text.attrib[name]) for name in ("x", "y", "font-size"))
        turn = re.match(r"rotate\((\S+)", text.get("transform", ""))
        words, anchor = text.text or "", text.get("text-anchor", "start")
        if turn is None:
            found.append((words, (text_box(words, size, x, y, anchor),)))
        elif float(turn[1]) != -90:
            found.append((words, slanted_boxes(words, size, x, y, radians(-float(turn[1])))))
    return found


def check_layout(root: ElementTree.Element) -> None:
    page = Box(0, 0, float(root.attrib["width"]), float(root.attrib["height"]))
    for words, parts in boxes(root):
        assert all(page.holds(part) for part in parts), words
    for (one, ours), (other, theirs) in combinations(boxes(root), 2):
        assert not any(a.overlaps(b) for a in ours for b in theirs), (one, other)


def test_everything_is_in_the_picture():
    root = drawn(ROOF, three("softmax<8>", 0.6, 1e12), "softmax & more", "fp32, modelled")
    assert {"softmax & more", "fp32, modelled", "softmax<8>"} <= set(words(root))
    assert {"memory-bound", "between", "compute-bound"} <= set(words(root))
    assert {"CUDA cores, fp32: 19.5 Tflop/s", "tensor cores, tf32: 156 Tflop/s"} <= set(words(root))
    assert {"L1 19.5 TB/s", "L2 5.41 TB/s", "DRAM 2.04 TB/s, 1.77 TB/s reached"} <= set(words(root))
    assert {"ridge 9.56", "ridge 76.5", "operations per byte", "operations per second"} <= set(words(root))
    assert {"0.1", "1", "10", "100", "1000", "1 T", "10 T", "100 T"} <= set(words(root))
    assert {f"by bytes of {level}" for level in LEVELS} <= set(words(root))
    assert "softmax<8> by bytes of DRAM: 0.6 operations per byte, 1 Tflop/s" in tips(root)
    check_layout(root)


@pytest.mark.parametrize("roof", ROOFS, ids=lambda roof: f"{roof.gpu} {roof.precision}")
def test_every_line_of_every_roof_has_its_label(roof):
    root = drawn(roof, three("kernel", roof.ridge_low / 4, roof.core_flop_per_s / 8))
    named = {word.partition(" ")[0] for word in words(root)}
    assert {"L1", "L2", "DRAM", "CUDA", "ridge", "kernel"} <= named
    assert ("tensor" in named) == roof.has_tensor_cores
    check_layout(root)


def test_it_needs_nothing_else():
    text = roofline_svg(ROOF, three("k", 1.0, 1e12))
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|href|url\(|@import|@font-face|<image", text)
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]


def test_one_ceiling_has_one_ridge_and_two_zones():
    root = drawn(replace(ROOF, tensor_flop_per_s=ROOF.core_flop_per_s), three("k", 1.0, 1e12))
    assert "between" not in words(root) + tips(root)
    assert [word for word in words(root) if word.startswith("ridge")] == ["ridge 9.56"]
    assert not any("tensor" in word for word in words(root))


def test_a_dot_lies_where_the_axes_say():
    """Twice as far from 1 to 100 as from 1 to 10, and upwards alike."""
    root = drawn(ROOF, [Dot(str(n), 10.0**n, 10.0 ** (11 + n), "DRAM", "g") for n in range(3)])
    spots = {}
    for path in root.iter(f"{SVG}path"):
        if path.get("class") == "dot":
            label = (path[0].text or "").partition(" ")[0]
            spots[label] = [float(v) for v in re.findall(r"[-\d.]+", path.attrib["transform"])]
    (x0, y0), (x1, y1), (x2, y2) = spots["0"], spots["1"], spots["2"]
    assert x2 - x0 == pytest.approx(2 * (x1 - x0), abs=0.3)
    assert y0 - y2 == pytest.approx(2 * (y0 - y1), abs=0.3)
    assert x1 > x0
    assert y1 < y0


def test_dots_without_a_place_are_left_out():
    root = drawn(ROOF, [Dot("none", 0.0, 1e9), Dot("idle", 1.0, 0.0)])
    assert not any(shape.get("class") == "dot" for shape in root.iter())
    check_layout(root)


def test_many_dots_are_coloured_by_group_and_named_under_the_pointer():
    dots = [Dot(f"k{n}", 1.0 + n, 1e12, "DRAM", f"generation {n // 2}") for n in range(2 * MOST_NAMED)]
    root = drawn(ROOF, dots)
    assert not {dot.label for dot in dots} & set(words(root))
    assert all(any(tip.startswith(f"{dot.label} ({dot.group})") for tip in tips(root)) for dot in dots)
    colours = {shape.attrib["fill"] for shape in root.iter() if shape.get("class") == "dot"}
    assert len(colours) == MOST_NAMED > len(COLOURS)
    assert {"generation 0", f"generation {MOST_NAMED - 1}"} <= set(words(root))
    check_layout(root)


def test_long_names_are_cut():
    root = drawn(ROOF, three("gemm<" + "128, " * 100 + ">", 1.0, 1e12), "t" * 1000, "s" * 1000)
    check_layout(root)
    assert any(word.startswith("gemm<128") and word.endswith("…") for word in words(root))


@settings(max_examples=60, deadline=None, derandomize=True)
@example(  # labels that only rounding to a tenth of a pixel pushed into each other
    roof=next(roof for roof in ROOFS if (roof.gpu, roof.precision) == ("rtx-3090", "fp16")),
    kernels=[(0.0, 8.25, 1), (0.0, 8.309729774399282, 13), (0.0, 8.290176213176037, 13)],
)
@given(
    roof=st.sampled_from(ROOFS),
    kernels=st.lists(st.tuples(st.floats(-3, 4), st.floats(6, 15), st.integers(1, 40)), max_size=6),
)
def test_no_label_covers_another_or_leaves_the_page(roof, kernels):
    dots = [
        dot
        for n, (intensity, speed, length) in enumerate(kernels)
        for dot in three(f"{n}{'k' * length}", 10**intensity, 10**speed)
    ]
    root = drawn(roof, dots, "a title", "a line below")
    check_layout(root)
    assert sum(" operations per byte, " in tip for tip in tips(root)) == len(dots)


def test_the_only_launch_is_the_whole_call():
    def at(label: str, moved: float, flop: float) -> Position:
        levels = tuple(Level(level, moved, flop / moved if flop else None, 0.1) for level in LEVELS)
        return Position(label, 1e-6, flop, flop / 1e-6, "counted", "memory-bound", "dram", levels)

    assert {dot.label for dot in dots_of((at("k", 8.0, 4.0), at(WHOLE, 8.0, 4.0)))} == {"k"}
    # nothing counts as an operation in the launch, so the task's stand for them
    assert [dot.intensity for dot in dots_of((at("k", 8.0, 0.0), at(WHOLE, 8.0, 2.0)))] == [0.25] * 3
    assert {dot.label for dot in dots_of((at("k", 8.0, 4.0), at(WHOLE, 9.0, 4.0)))} == {"k", WHOLE}
    assert len(dots_of((at("k", 8.0, 4.0), at("m", 8.0, 0.0), at(WHOLE, 16.0, 4.0)))) == 6


def test_labels_take_the_first_free_place():
    labels = Labels(Box(0, 0, 100, 100))
    spots = [(Box(90, 0, 110, 10),), (Box(0, 0, 10, 10),), (Box(20, 0, 30, 10),)]
    assert labels.first_free(spots) == 1
    assert labels.first_free(spots) == 2
    assert labels.first_free(spots) is None
