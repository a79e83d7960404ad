"""Charts as Vega-Lite: a specification from ``charts/NAME.vl.json`` with ``@names`` filled in, and the code that draws.

Vega, Vega-Lite and Vega-Embed come with the package vl-convert-python, which bundles them into one script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from math import ceil, floor, log10

from cupilot.errors import MachineError

Scalar = bool | int | float | str | None
Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
Row = Mapping[str, Scalar]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA_LITE = "6.4"
FEWEST_TICKS = 3


def chart(name: str, datasets: Mapping[str, Sequence[Row]], **values: Json) -> str:
    """A specification's JSON; a name that it does not have, or that is not given, is an error of ours."""
    spec = json.loads((files("cupilot.report") / "charts" / f"{name}.vl.json").read_text(encoding="utf-8"))
    given: dict[str, Json] = {"datasets": {key: list(rows) for key, rows in datasets.items()}, **values}
    used: set[str] = set()
    filled = _fill(spec, given, used)
    if missing := sorted(set(given) - used):
        raise KeyError(f"the chart {name} has no place for {missing[0]}")
    return json.dumps({"$schema": SCHEMA, **filled}, allow_nan=False)  # type: ignore[dict-item]


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


@cache
def drawing_code() -> str:
    """JavaScript that offers ``vegaEmbed`` and nothing else to the page; takes seconds to make, once per process."""
    try:
        bundler = import_module("vl_convert")
    except ImportError as error:
        raise MachineError("reports need the Python package 'vl-convert-python': install cupilot[report]") from error
    bundle = bundler.javascript_bundle("globalThis.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return f"(() => {{\n{bundle}\n}})();"
