"""The GPUs that are known: one data file each under ``specs/``.

A file has ``name``, ``title`` and ``architecture`` as text; every other field of `GpuSpec` is a table
``{ value = ..., origin = ... }`` in SI units, where the origin says how the number is known.
``docs/add-a-device.md`` has the fields.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from cupilot.errors import DataError, DeviceError
from cupilot.gpu.spec import GpuSpec
from cupilot.records import from_plain

ORIGINS = ("datasheet", "microbenchmark", "derived", "fitted")
_TEXTS = ("name", "title", "architecture")


@dataclass(frozen=True)
class _Number:
    """One entry of a spec file; only carve-outs are several numbers."""

    value: int | float | tuple[int, ...]
    origin: str


def spec_names() -> tuple[str, ...]:
    """Names of all GPUs with a spec file, sorted."""
    folder = files("cupilot.gpu") / "specs"
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def load_spec(name: str) -> GpuSpec:
    """The GPU of that name, or a `DeviceError` that lists the names there are.

    Its title does as well (``RTX A6000``, ``A100-SXM4-80GB``), in any case.  ``NAME@765mhz`` is the GPU with its SMs at
    that clock, as profilers lock them.
    """
    name, at, clock = name.partition("@")
    if at:
        return load_spec(name).at_clock(_clock_hz(clock))
    known = spec_names()
    if name in known:
        return _read_spec(name)
    for other in known:
        spec = _read_spec(other)
        if _plain(name) in (_plain(other), _plain(spec.title)):
            return spec
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DeviceError(f"unknown GPU {name!r}{hint} (known: {', '.join(known)})")


def _read_spec(name: str) -> GpuSpec:
    return parse_spec((files("cupilot.gpu") / "specs" / f"{name}.toml").read_text(encoding="utf-8"), name)


def _plain(name: str) -> str:
    """A name as people may write it: letters and numbers, without who made it."""
    return re.sub(r"^(nvidia|tesla|geforce)+|[^a-z0-9]", "", re.sub(r"[^a-z0-9]", "", name.lower()))


def _clock_hz(text: str) -> float:
    match = re.fullmatch(r"([1-9]\d{1,4})mhz", text.lower())
    if match is None:
        raise DeviceError(f"the clock {text!r} of a GPU is not of the form 765mhz")
    return int(match.group(1)) * 1e6


def parse_spec(text: str, name: str) -> GpuSpec:
    """A spec file's text as a record; an unknown, missing or ill-typed key is a `DataError`."""
    where = f"GPU spec {name}"
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{where}: {error}") from None
    if data.get("name", name) != name:
        raise DataError(f"{where}: the file's name and its key 'name' ({data['name']!r}) differ")
    plain: dict[str, Any] = {key: data[key] for key in _TEXTS if key in data}
    origins = []
    for key, entry in data.items():
        if key in _TEXTS:
            continue
        number = from_plain(_Number, entry, f"{where}.{key}")
        if number.origin not in ORIGINS:
            raise DataError(f"{where}.{key}: origin {number.origin!r} is none of {', '.join(ORIGINS)}")
        plain[key] = number.value
        origins.append([key, number.origin])
    if "origins" in plain:
        raise DataError(f"{where}: unknown key 'origins'; each number carries its own")
    return from_plain(GpuSpec, plain | {"origins": origins}, where)
