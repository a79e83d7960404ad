"""What PyTorch's operators do with tensors in device memory, and which of them compute.

Views cost nothing.  Allocations, fills, copies and conversions are made and counted on the virtual GPU.  All other
operators compute.  Inside ``forward`` they are counted, and carried out only where that is allowed - on the host,
because the virtual GPU has no kernels of PyTorch.  Otherwise their results have sizes but no values, so that all
operators of a forward pass can be reported.  A constructor may use everything, and nothing of it is counted.

Not covered: operators that change a tensor's sizes in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from cupilot.languages.modelnew.tensors import GPU, DeviceTensor, Memory
from cupilot.records import MemoryOperation

# What a new tensor is filled with: nothing, a number, or the argument of that name.
FRESH: Mapping[str, int | str | None] = {
    "empty": None, "empty_like": None, "empty_strided": None, "empty_permuted": None, "new_empty": None,
    "new_empty_strided": None, "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
    "full": "fill_value", "full_like": "fill_value", "new_full": "fill_value", "scalar_tensor": "s",
}  # fmt: skip
FILLS = frozenset({"fill_", "zero_"})
COPIES = frozenset({"clone", "_to_copy", "copy_", "arange", "_local_scalar_dense"})
# views that do not say so in their schema, and questions about sizes
FREE = frozenset({
    "_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "lift_fresh", "lift", "is_same_size", "sym_size",
    "sym_stride", "sym_numel",
})  # fmt: skip
# the device guard that stands in for CUDA's calls itself meta
ON_DEVICE = ("cuda", "meta")


@cache
def kind_of(func: Any) -> str:
    """``view``, ``fresh``, ``fill``, ``copy`` or ``compute``."""
    space, _, name = func._schema.name.partition("::")
    if space != "aten":
        return "compute"
    if name in FREE or any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
        return "view"
    return "fresh" if name in FRESH else "fill" if name in FILLS else "copy" if name in COPIES else "compute"


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Handles every operator; as a mode, also those that take no tensor.

    ``counts`` are the computing operators of the last forward pass, ``operations`` what they would cost on the device.
    """

    def __init__(self, memory: Memory, *, allowed: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()
        self.operations: list[MemoryOperation] = []
        self._memory = memory
        self._allowed = allowed
        self._counting = False
        memory.operators = self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and asking dynamo would import it, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def begin(self, *, counting: bool) -> None:
        """A forward pass begins, or it is over."""
        self._counting = counting
        if counting:
            self.counts.clear()
            self.operations.clear()

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        kind = kind_of(func)
        if not _is_on_device(args, kwargs):
            if kind == "compute" and self._counting:
                self.counts[_title(func)] += 1
            return func(*args, **kwargs)
        if torch.Tag.inplace_view in func.tags:
            raise RuntimeError(f"{_title(func)} on the virtual GPU: it changes a tensor's sizes in place")
        actions: dict[str, Callable[..., Any]] = {
            "view": self._view, "fresh": self._fresh, "fill": self._fill, "copy": self._copy, "compute": self._compute,
        }  # fmt: skip
        return actions[kind](func, args, kwargs)

    # --- what does not compute -----------------------------------------------------------------

    def _view(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        buffer = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DeviceTensor)).buffer
        return _mapped(lambda meta: DeviceTensor(meta, buffer), _imagined(func, args, kwargs))

    def _fresh(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        meta = _imagined(func, args, kwargs)
        if kwargs.get("device", GPU).type not in ON_DEVICE:
            return func(*_without_device(args), **kwargs)  # zeros_like(x, device="cpu")
        made = self._memory.empty(meta)
        filling = FRESH[_name(func)]
        if filling is not None:
            value = _arguments(func, args, kwargs)[filling] if isinstance(filling, str) else filling
            self._memory.fill(made, value)
        return made

    def _fill(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        value = _arguments(func, args, kwargs).get("value", 0)
        self._memory.fill(args[0], self._number(value) if isinstance(value, torch.Tensor) else value)
        return args[0]

    def _copy(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = _name(func)
        if name == "_local_scalar_dense":
            return self._number(args[0])
        if name == "copy_":
            return self._copy_into(args[0], args[1])
        if name == "arange":
            made = self._memory.empty(_imagined(func, args, kwargs))
            self._memory.fill(made, 0)  # costs what it costs to write the numbers
            self._memory.write(made, func(*args, **kwargs | {"device": torch.device("cpu")}))
            return made
        source = args[0]
        if kwargs.get("device") is not None and kwargs["device"].type not in ON_DEVICE:
            return func(self._to_host(source), **kwargs)
        if not isinstance(source, DeviceTensor):
            return self._memory.upload(func(source, **kwargs | {"device": torch.device("cpu")}))
        made = self._memory.empty(_imagined(func, args, kwargs))
        self._memory.copy(made, source)
        return made

    def _copy_into(self, to: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if not isinstance(to, DeviceTensor):
            return to.copy_(self._to_host(source))
        if not isinstance(source, DeviceTensor):
            source = self._memory.upload(source)
        self._memory.copy(to, source)
        return to

    def _to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._memory.read(tensor) if isinstance(tensor, DeviceTensor) else tensor

    def _number(self, tensor: torch.Tensor) -> Any:
        return self._to_host(tensor).item()

    # --- what computes -------------------------------------------------------------------------

    def _compute(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._counting:
            self.counts[_title(func)] += 1
            if not self._allowed:
                return self._supposed(func, args, kwargs)
        return self._on_host(func, args, kwargs)

    def _supposed(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Results without values."""
        known = {id(leaf.meta): leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DeviceTensor)}
        results = _imagined(func, args, kwargs)
        return _mapped(lambda meta: known[id(meta)] if id(meta) in known else self._memory.empty(meta), results)

    def _on_host(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        given = {id(leaf): leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DeviceTensor)}
        copies = {key: self._memory.read(tensor, computing=True) for key, tensor in given.items()}
        known = {id(copy): given[key] for key, copy in copies.items()}

        def brought(leaf: Any) -> Any:
            return torch.device("cpu") if _is_device(leaf) else copies.get(id(leaf), leaf)

        results = func(*tree_map(brought, args), **tree_map(brought, kwargs))
        written = [
            value
            for name, value in _arguments(func, args, kwargs).items()
            if isinstance(value, DeviceTensor) and name in _written_names(func)
        ]
        for tensor in written:
            self._memory.write(tensor, copies[id(tensor)], computing=True)

        def found_or_made(values: torch.Tensor) -> DeviceTensor:
            return known[id(values)] if id(values) in known else self._memory.upload(values, computing=True)

        found = _mapped(found_or_made, results)
        if self._counting:
            fresh = [leaf for leaf in tree_leaves(found) if isinstance(leaf, DeviceTensor)]
            # half of what is moved, because an operation reads and writes its bytes
            moved = sum(tensor.nbytes for tensor in (*given.values(), *fresh)) // 2
            self.operations.append(MemoryOperation(_title(func), moved, _flop(func, args, kwargs, found)))
        return found


def _is_device(leaf: Any) -> bool:
    return isinstance(leaf, torch.device) and leaf.type in ON_DEVICE


def _is_on_device(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(leaf, DeviceTensor) or _is_device(leaf) for leaf in tree_leaves((args, kwargs)))


def _imagined(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The operator on tensors that have sizes only."""

    def as_meta(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.meta if isinstance(leaf, DeviceTensor) else leaf.to("meta")
        return torch.device("meta") if _is_device(leaf) else leaf

    return func(*tree_map(as_meta, args), **tree_map(as_meta, kwargs))


def _without_device(args: Sequence[Any]) -> Any:
    """Tensors on the host with the same layout."""

    def host(leaf: Any) -> Any:
        if not isinstance(leaf, DeviceTensor):
            return leaf
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)

    return tree_map(host, args)


def _mapped(make: Callable[[torch.Tensor], Any], results: Any) -> Any:
    return tree_map(lambda leaf: make(leaf) if isinstance(leaf, torch.Tensor) else leaf, results)


def _name(func: Any) -> str:
    name: str = func._schema.name
    return name.partition("::")[2]


def _title(func: Any) -> str:
    name: str = func._schema.name
    return name.replace("::", ".")


def _arguments(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    return dict(zip(names, args, strict=False)) | kwargs


def _written_names(func: Any) -> set[str]:
    return {a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write}


def _flop(func: Any, args: Sequence[Any], kwargs: dict[str, Any], results: Any) -> float:
    """Operations of matrix products, convolutions and attention; of all others the bytes say enough."""
    count = flop_registry.get(func._overloadpacket)
    return float(count(*args, **kwargs, out_val=results)) if count is not None else 0.0
