"""Tensors that are combined element by element: how each finds its element for an element of the result.

Dimensions along which the same tensors change are seen as one (a *group*), so a bias along the rows of a matrix or
along the channels of a batch of images needs one division.  Views that only add or drop dimensions of size one are
looked through.  Not covered: results that no argument has the size of, along some dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """A tensor argument as C sees it.

    ``index`` is where it has its element for element ``@`` of the result; ``full``: it has one for each, in the same
    order; ``inner``: neighbours of the result have neighbours here.  ``elements`` is how many it must have.
    """

    name: str
    index: str
    full: bool
    inner: bool
    elements: str
    rank: int


@dataclass(frozen=True)
class Layout:
    """Operands of one result; ``sizes`` are C for the sizes of its groups, ``dims`` for those of its dimensions."""

    operands: tuple[Operand, ...]
    sizes: tuple[str, ...]
    dims: tuple[str, ...]
    inner: int

    @property
    def broadcast(self) -> bool:
        return not all(operand.full for operand in self.operands)

    @property
    def like(self) -> str:
        """An operand that has the result's shape, if there is one."""
        return next((o.name for o in self.operands if o.full and o.rank == len(self.dims)), "")

    @property
    def divisors(self) -> tuple[int, ...]:
        """Groups whose sizes the indices need."""
        return tuple(g for g in range(1, len(self.sizes)) if any(f"d{g}" in o.index for o in self.operands))


def arrange(tensors: Mapping[str, tuple[Shape, Shape]], result: Shape) -> Layout | None:
    """The layout of tensors, by C name with their own shape and the one they are seen in; None if there is none."""
    seen: dict[str, tuple[int | None, ...]] = {}
    for name, (own, shape) in tensors.items():
        known = _own_dims(own, shape)
        if known is None or len(shape) > len(result):
            return None
        padded = (None,) * (len(result) - len(shape)) + known
        wide = (1,) * (len(result) - len(shape)) + shape
        # where the result itself has size one nobody changes
        seen[name] = tuple(d if w == r != 1 else None for d, w, r in zip(padded, wide, result, strict=True))
        if any(w not in (1, r) for w, r in zip(wide, result, strict=True)):
            return None
    groups = _groups(seen, result)
    dims = [_size_of(seen, place) if result[place] != 1 else "1" for place in range(len(result))]
    if any(not dim for dim in dims):
        return None
    sizes = tuple(" * ".join(dims[place] for place in group if result[place] != 1) or "1" for group in groups)
    operands = tuple(_operand(name, seen[name], groups, tensors[name][0]) for name in tensors)
    inner = prod(result[place] for place in groups[-1]) if groups else 1
    return Layout(operands, sizes, tuple(dims), inner)


def _own_dims(own: Shape, shape: Shape) -> tuple[int | None, ...] | None:
    """For each dimension of a view the dimension of the tensor that it is; None for those of size one."""
    whole = [place for place, size in enumerate(own) if size != 1]
    if [own[place] for place in whole] != [size for size in shape if size != 1]:
        return None
    left = iter(whole)
    return tuple(next(left) if size != 1 else None for size in shape)


def _groups(seen: Mapping[str, Sequence[int | None]], result: Shape) -> list[list[int]]:
    groups: list[list[int]] = []
    last: tuple[bool, ...] | None = None
    for place, size in enumerate(result):
        changing = tuple(dims[place] is not None for dims in seen.values())
        if size != 1 and changing != last:
            groups.append([])
            last = changing
        if size != 1:
            groups[-1].append(place)
    return groups


def _size_of(seen: Mapping[str, Sequence[int | None]], place: int) -> str:
    return next((f"{name}.size({dims[place]})" for name, dims in seen.items() if dims[place] is not None), "")


def _operand(name: str, dims: Sequence[int | None], groups: Sequence[Sequence[int]], own: Shape) -> Operand:
    changing = [group for group, places in enumerate(groups) if dims[places[0]] is not None]
    runs: list[list[int]] = []
    for group in changing:
        if runs and runs[-1][-1] == group - 1:
            runs[-1].append(group)
        else:
            runs.append([group])
    terms = []
    for run in runs:
        after = _product(range(run[-1] + 1, len(groups)))
        term = f"@ / {after}" if after else "@"
        term += f" % {_product(run)}" if run[0] else ""
        stride = _product([group for group in changing if group > run[-1]])
        terms.append(f"{term} * {stride}" if stride else term)
    full = len(changing) == len(groups)
    elements = _product(changing).strip("()") or "1"
    return Operand(name, " + ".join(terms) or "0", full, full or len(groups) - 1 in changing, elements, len(own))


def _product(groups: Sequence[int] | range) -> str:
    text = " * ".join(f"d{group}" for group in groups)
    return f"({text})" if len(groups) > 1 else text
