"""The operator catalogue: what cupilot knows about ATen operators, read from ``operators.toml``.

The flop count, the roofline, the baseline model, the NaN rules, the pool's tags and the recipes ask it.  Not here:
which operators a recipe can render and their CUDA code (`cupilot.expert`), and how operators that a solution calls run
on the virtual GPU (`cupilot.devices.solution_operators`, which reads their schemas).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cupilot.errors import DataError
from cupilot.records import from_plain

DATA = Path(__file__).with_name("operators.toml")
FLOP_RULES = ("product", "einsum", "convolution", "transposed convolution", "attention")
STATISTICS = ("", "dim", "normalized_shape", "group", "instance", "batch")


@dataclass(frozen=True)
class Operator:
    """One operator; the head of the data file explains the fields."""

    name: str
    kind: str = "other"
    flop: int | str = 1
    compares: bool = False
    dense: bool = False
    bias_first: bool = False
    normalizes_over: str = ""
    tag: str = ""
    family: str = ""

    @property
    def is_view(self) -> bool:
        """It moves no data."""
        return self.kind == "view"

    @property
    def is_convolution(self) -> bool:
        return self.kind == "convolution"

    @property
    def is_elementwise(self) -> bool:
        """Each element of the result comes from one element of each operand."""
        return self.kind in ("pointwise", "copy", "view", "broadcast")

    @property
    def is_statistic(self) -> bool:
        """Its result summarises many elements."""
        return self.kind in ("reduction", "norm")

    @property
    def sums_products(self) -> bool:
        return self.kind in ("product", "convolution", "attention")


@dataclass(frozen=True)
class Catalogue:
    """Operators by name, synonyms included, and the weights of the pool's families."""

    operators: Mapping[str, Operator]
    families: Mapping[str, float]

    def operator(self, target: str) -> Operator:
        name = base_name(target)
        return self.operators.get(name) or Operator(name, tag=name)


def base_name(target: str) -> str:
    """Without namespace, overload and underscores: ``aten._softmax.int`` is ``softmax``; ``relu_`` is ``relu``."""
    parts = target.split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).strip("_")


def operator(target: str) -> Operator:
    """The facts about an operator, by its target or name."""
    return load_catalogue().operator(target)


@cache
def load_catalogue() -> Catalogue:
    """The catalogue that comes with the program."""
    return parse_catalogue(DATA.read_text(encoding="utf-8"))


def parse_catalogue(text: str) -> Catalogue:
    """Read a catalogue; an unknown key, kind, family or rule is a `DataError`."""
    data = tomllib.loads(text)
    if unknown := sorted(data.keys() - {"families", "kinds", "synonyms", "operators"}):
        raise DataError(f"{DATA.name}: unknown table {unknown[0]!r}")
    found = {name: _operator(name, entry, data) for name, entry in data["operators"].items()}
    for name, other in data["synonyms"].items():
        if name in found or other not in found:
            raise DataError(f"{DATA.name}: synonyms.{name} must be a new name for a listed operator")
        found[name] = found[other]
    return Catalogue(found, {name: float(weight) for name, weight in data["families"].items()})


def _operator(
    name: str, entry: Mapping[str, object], data: Mapping[str, Mapping[str, Mapping[str, object]]]
) -> Operator:
    where = f"{DATA.name}: operators.{name}"
    kind = entry.get("kind")
    if kind not in data["kinds"]:
        raise DataError(f"{where}: there is no kind {kind!r}; known kinds are {', '.join(data['kinds'])}")
    found = from_plain(Operator, {"name": name, "tag": name, **data["kinds"][str(kind)], **entry}, where)
    for key, value, known in (
        ("flop", found.flop, FLOP_RULES),
        ("normalizes_over", found.normalizes_over, STATISTICS),
        ("family", found.family, ("", *data["families"])),
    ):
        if isinstance(value, str) and value not in known:
            raise DataError(f"{where}.{key}: {value!r} is none of {', '.join(filter(None, known))}")
    if name != base_name(name):
        raise DataError(f"{where}: operators are listed by their base name, {base_name(name)!r}")
    return found
