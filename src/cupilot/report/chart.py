"""Charts as Vega-Lite: a specification from ``charts/NAME.vl.json`` with ``@names`` filled in, and what draws it.

The package vl-convert-python (the extra ``report``) bundles Vega, Vega-Lite and Vega-Embed into one script for pages,
and renders charts to SVG and PNG without a browser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from math import ceil, floor, log10
from typing import Any

from cupilot.errors import MissingExtra

Scalar = bool | int | float | str | None
Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
Row = Mapping[str, Scalar]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA_LITE = "6.4"
FEWEST_TICKS = 3
PNG_SCALE = 2


def chart(name: str, datasets: Mapping[str, Sequence[Row]], **values: Json) -> str:
    """A specification's JSON; a name that it does not have, or that is not given, is an error of ours."""
    filled = part(name, datasets={key: list(rows) for key, rows in datasets.items()}, **values)
    return json.dumps({"$schema": SCHEMA, **filled}, allow_nan=False)


def part(name: str, **values: Json) -> dict[str, Json]:
    """A specification, or layers of one, from its file."""
    used: set[str] = set()
    filled = _fill(json.loads(_text("charts", f"{name}.vl.json")), values, used)
    if missing := sorted(set(values) - used):
        raise KeyError(f"the chart {name} has no place for {missing[0]}")
    assert isinstance(filled, dict), "a file holds an object"
    return filled


def picture(spec: str, title: str, subtitle: str, size: tuple[int, int], suffix: str) -> bytes:
    """The chart as a file of its own, ``.svg`` or ``.png``, in the light colours of the report; asks no server."""
    width, height = size
    fixed = {"width": width, "height": height, "autosize": "pad", "padding": 16}
    heading = {"text": title, "subtitle": subtitle}
    drawn = json.dumps({**json.loads(spec), **fixed, "title": heading})
    look = {"vl_version": VEGA_LITE, "config": _light_theme(), "allowed_base_urls": []}
    if suffix == ".png":
        png: bytes = renderer().vegalite_to_png(drawn, scale=PNG_SCALE, **look)
        return png
    svg: str = renderer().vegalite_to_svg(drawn, **look)
    return svg.encode()


def theme() -> str:
    """Vega's configuration as JSON, with the names of the page's colours in place of the colours."""
    return _text("charts", "theme.json")


def _light_theme() -> Json:
    css = _text("assets", "report.css")
    colours = dict(re.findall(r"(--\w+): (#\w+);", css[: css.index("}")]))
    text = re.sub(r'"(--\w+)"', lambda found: f'"{colours[found[1]]}"', theme())
    look: dict[str, Json] = json.loads(text)
    return {**look, "background": colours["--paper"], "font": "sans-serif"}


def _text(folder: str, name: str) -> str:
    return (files("cupilot.report") / folder / name).read_text(encoding="utf-8")


def _fill(part: Json, given: Mapping[str, Json], used: set[str]) -> Json:
    if isinstance(part, str):
        if not part.startswith("@"):
            return part
        used.add(part[1:])
        return given[part[1:]]
    if isinstance(part, Mapping):
        return {key: _fill(value, given, used) for key, value in part.items()}
    return [_fill(value, given, used) for value in part] if isinstance(part, Sequence) else part


def decades(low: float, high: float) -> list[float]:
    """Powers of ten within two numbers, for the ticks of a logarithmic axis."""
    return [10.0**power for power in range(ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9) + 1)]


def fine_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with more numbers between them where there would be few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 2, 5), range(1, 10)):
        found = [value for power in powers for step in steps if low <= (value := step * 10.0**power) <= high]
        if len(found) >= FEWEST_TICKS:
            break
    return found


def renderer() -> Any:
    """The package vl-convert-python, which has no types."""
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise MissingExtra(
            "charts need the Python package 'vl-convert-python': pip install 'cupilot[report]'"
        ) from error


@cache
def drawing_code() -> str:
    """JavaScript that offers ``vegaEmbed`` and nothing else to the page; takes seconds to make, once per process."""
    bundle = renderer().javascript_bundle("globalThis.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return f"(() => {{\n{bundle}\n}})();"
