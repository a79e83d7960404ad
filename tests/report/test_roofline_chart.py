"""The roofline of one call as a picture: every roof and launch is in it, and it needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from math import log
from xml.etree import ElementTree

import pytest

from cupilot.gpu import load_spec, spec_names
from cupilot.gpu.roofline import LEVELS, Roof, roof_of
from cupilot.report.roofline_chart import COLOURS, SIZE, launches_chart, launches_picture
from cupilot.tasks.roofline_position import WHOLE, Level, RooflinePoint

SVG = "{http://www.w3.org/2000/svg}"
ROOF = roof_of(load_spec("a100-80gb"))
ROOFS = [roof_of(load_spec(name), precision) for name in spec_names() for precision in ("fp32", "fp16", "fp64")]
LABEL = 12  # height of a line of text, in pixels


def at(label: str, *moved: float, flop: float = 1e6, time_s: float = 1e-6) -> RooflinePoint:
    passed = moved * 3 if len(moved) == 1 else moved
    levels = tuple(Level(n, b, flop / b if flop else None, 0.1) for n, b in zip(LEVELS, passed, strict=True))
    return RooflinePoint(label, time_s, flop, flop / time_s, "counted", "memory-bound", "dram", levels)


TWO = (at("twice<2>", 4e6, 2e6, 1e6), at("sums & more", 8e6, time_s=3e-6), at(WHOLE, 12e6, flop=2e6, time_s=5e-6))


def drawn(roof: Roof, *points: RooflinePoint, title: str = "title", subtitle: str = "") -> ElementTree.Element:
    return ElementTree.fromstring(launches_picture(roof, points, title, subtitle, ".svg"))


def words(root: ElementTree.Element) -> list[str]:
    """All texts, with plain spaces."""
    return [(text.text or "").replace("\u202f", " ") for text in root.iter(f"{SVG}text")]


def labels(root: ElementTree.Element) -> list[str]:
    return [mark.get("aria-label", "") for mark in root.iter() if mark.get("aria-roledescription") == "point"]


def data(roof: Roof, *points: RooflinePoint) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(launches_chart(roof, points))["datasets"]
    return found


def test_everything_is_in_the_picture():
    root = drawn(ROOF, *TWO, title="softmax & more", subtitle="fp32, modelled")
    assert {"softmax & more", "fp32, modelled"} <= set(words(root))
    assert {"twice<2>, 1.00 µs", "sums & more, 3.00 µs", "the whole call, 5.00 µs"} <= set(words(root))
    assert {"memory-bound", "between", "compute-bound", "ridge 9.56", "ridge 76.5"} <= set(words(root))
    assert {"CUDA cores, fp32: 19.5 Tflop/s", "tensor cores, tf32: 156 Tflop/s"} <= set(words(root))
    assert {"L1 19.5 TB/s", "L2 5.41 TB/s", "DRAM 2.04 TB/s, 1.77 TB/s reached"} <= set(words(root))
    assert {"operations per byte", "operations per second, flop/s"} <= set(words(root))
    assert {"1", "10", "100", "1T", "10T", "100T", *LEVELS} <= set(words(root))
    assert len(labels(root)) == 3 * len(LEVELS)
    assert "twice<2> by bytes of DRAM: 1 operations per byte, 1 Tflop/s" in labels(root)


@pytest.mark.parametrize("roof", ROOFS, ids=lambda roof: f"{roof.gpu} {roof.precision}")
def test_every_line_of_every_roof_has_a_label_and_no_two_meet(roof: Roof):
    found = data(roof, at("kernel", 4e6), at(WHOLE, 4e6))
    named = [str(row["label"]).partition(" ")[0].rstrip(",") for row in found["roof_labels"]]
    assert named == [*LEVELS, "CUDA", *(["tensor"] if roof.has_tensor_cores else [])]
    # labels of one kind are parallel, and as far apart as their lines
    spec = json.loads(launches_chart(roof, (at("kernel", 4e6), at(WHOLE, 4e6))))
    low, high = spec["encoding"]["y"]["scale"]["domain"]
    decades = re.search(r"log\((\S+) / (\S+)\)", spec["layer"][5]["mark"]["angle"]["expr"])
    assert decades is not None
    assert (float(decades[2]), float(decades[1])) == (low, high)
    for axis, (least, most) in {axis: spec["encoding"][axis]["scale"]["domain"] for axis in "xy"}.items():
        assert all(least * 0.999 <= float(str(row[axis])) <= most for row in (*found["roofs"], *found["reached"]))
    speeds = [roof.bytes_per_s(level) for level in LEVELS]
    heights = [roof.core_flop_per_s, roof.tensor_flop_per_s] if roof.has_tensor_cores else []
    for group in (speeds, heights):
        for one, other in combinations(group, 2):
            assert SIZE[1] * abs(log(one / other)) / log(high / low) > LABEL


def test_it_needs_nothing_else_and_is_the_same_every_time():
    text = launches_picture(ROOF, TWO, "t", "s", ".svg").decode()
    assert not re.search(r"<script|href|@import|@font-face|<image|url\([^#]", text)
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert launches_picture(ROOF, TWO, "t", "s", ".svg").decode() == text


def test_a_png_is_one():
    assert launches_picture(ROOF, TWO, "t", "s", ".png").startswith(b"\x89PNG")


def test_one_ceiling_has_one_ridge_and_two_zones():
    root = drawn(replace(ROOF, tensor_flop_per_s=ROOF.core_flop_per_s), *TWO)
    assert "between" not in words(root)
    assert [word for word in words(root) if word.startswith("ridge")] == ["ridge 9.56"]
    assert not any("tensor" in word for word in words(root))


def test_points_lie_where_they_were_counted_and_within_the_axes():
    far = at("far", 1e12, flop=1.0, time_s=1.0)
    spec = json.loads(launches_chart(ROOF, (far, at("k", 4e6, 2e6, 1e6), at(WHOLE, 1e12, flop=1e6))))
    marks = {(row["name"], row["level"]): row for row in spec["datasets"]["points"]}
    assert [marks["k, 1.00 µs", level]["x"] for level in LEVELS] == [0.25, 0.5, 1.0]
    assert marks["k, 1.00 µs", "L1"]["y"] == 1e12
    for axis in ("x", "y"):
        low, high = spec["encoding"][axis]["scale"]["domain"]
        assert all(low < row[axis] < high for row in spec["datasets"]["points"])


def test_what_has_no_place_is_left_out():
    idle = at("idle", 4e6, flop=0.0)
    root = drawn(ROOF, idle, idle, idle)
    assert labels(root) == []
    assert "L1 19.5 TB/s" in words(root)
    assert len(data(ROOF, at("k", 8.0), idle, at(WHOLE, 16.0))["points"]) == 2 * len(LEVELS)


def test_of_many_launches_the_longest_have_a_colour_of_their_own():
    count = len(COLOURS) + 3
    points = [at(f"k{n}", 4e6, time_s=(n + 1) * 1e-6) for n in range(count)]
    spec = json.loads(launches_chart(ROOF, (*points, at(WHOLE, 4e7, time_s=1e-3))))
    colour = spec["layer"][-1]["layer"][1]["encoding"]["color"]["scale"]
    longest = [f"k{n}, {n + 1}.00 µs" for n in range(3, 9)] + ["k9, 10.0 µs"]
    assert colour["domain"] == [*longest, "3 shorter launches", "the whole call, 1.00 ms"]
    assert colour["range"][: len(COLOURS)] == list(COLOURS)
    assert len(set(colour["range"])) == len(colour["range"])
    assert len(spec["datasets"]["points"]) == (count + 1) * len(LEVELS)


def test_a_long_name_is_cut():
    root = drawn(ROOF, at("gemm<" + "128, " * 100 + ">", 4e6), at(WHOLE, 4e6))
    assert any(word.startswith("gemm<128") and word.endswith("…") for word in words(root))
    assert float(root.attrib["width"]) < 1000
