"""The error that a plain float32 evaluation of the textbook formula has.

A module is evaluated in float64 while every operator's result is disturbed at random by as much as computing it in
float32 would round it away: operators that PyTorch fuses (normalizations, softmax, losses, activations) are taken apart
into their textbook formulas first.  How far the results are off shows the conditioning of the formula and the length of
its sums, for these very inputs; a kernel of lower precision is off by thousands of times as much.

Sums and products are those of one accumulator per result, up to `CHAIN` terms of it.  A sum of random order rounds
partial sums of about ``k/n`` of its total S, and of ``k (n - k) / n**2`` of its sum of squares Q (times n), so that the
variance of its error is u**2 / 3 times ``n S**2 / 3 + n Q / 6``.  Exponentials have a rounded argument, as powers of
two of a scaled one do; ``expm1``, ``log1p`` and ``tanh`` are those that are written with ``exp`` and ``log``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cupilot.tasks.operators import base_name, operator

ROUNDING = 2.0**-24
ONE = ROUNDING / sqrt(3)
"""Root mean square of one rounding to nearest, where numbers are sparsest."""
CHAIN = 16384
"""Terms that one accumulator adds up; longer sums have several."""

ALIKE = 1e-9
"""How far from equal the terms of a sum may be, as a share of their square, for their roundings to be alike."""

EXACT = frozenset({
    "neg", "abs", "sign", "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "relu6", "threshold",
    "max", "min", "amax", "amin", "maximum", "minimum", "fmax", "fmin", "aminmax", "where", "masked_fill", "gather",
    "index", "index_select", "embedding", "cat", "stack", "clone", "copy", "contiguous", "roll", "flip", "tril", "triu",
    "sort", "topk", "kthvalue", "median", "mode", "max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d", "constant_pad_nd", "reflection_pad1d",
    "reflection_pad2d", "replication_pad2d", "floor", "ceil", "round", "trunc", "zeros", "ones", "full", "empty",
    "arange", "fill", "zero", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_empty",
    "scalar_tensor", "repeat", "repeat_interleave", "scatter", "masked_select", "nonzero", "one_hot", "eye", "diag",
    "to_copy", "lift_fresh", "lift_fresh_copy", "constant", "cummax", "cummin",
})  # fmt: skip
"""Operators that move, choose or make numbers and round none."""

Tensor = torch.Tensor
Rule = Callable[["Float32Roundings", Any, Sequence[Any], dict[str, Any]], Any]


class Float32Roundings(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this mode is active, results of operators on floating-point numbers are off as in float32."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and importing the compiler would take seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = base_name(str(func))
        if name in EXACT or operator(name).is_view or _is_view(func):
            return func(*args, **kwargs)
        if name in RULES:
            return RULES[name](self, func, args, kwargs)
        if (parts := _textbook(func)) is not None:
            try:
                with self:
                    return parts(*args, **kwargs)
            except (NotImplementedError, RuntimeError, TypeError):  # no formula for these operands
                pass
        return self._rounded(func(*args, **kwargs))

    def _rounded(self, result: Any, scale: float = ONE) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(self._rounded(item, scale) for item in result)
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        return result.addcmul_(result, self.noise(result), value=scale)

    def noise(self, like: Tensor) -> Tensor:
        """Independent numbers of variance one."""
        return torch.empty_like(like).uniform_(-sqrt(3), sqrt(3), generator=self._generator)

    def off(self, result: Tensor, size: Tensor) -> Tensor:
        """Disturbed by errors of a size."""
        return result.add_(size.mul_(self.noise(result)))


def _is_view(func: Any) -> bool:
    returned = func._schema.returns
    return any(each.alias_info is not None and not each.alias_info.is_write for each in returned)


def _textbook(func: Any) -> Callable[..., Any] | None:
    """The formula of an operator that consists of others."""
    from torch._decomp import decomposition_table

    if func._schema.is_mutable or base_name(str(func)) in ELEMENTARY:
        return None
    return decomposition_table.get(func)


ELEMENTARY = frozenset({
    "add", "sub", "mul", "div", "rsub", "exp", "exp2", "log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "sin",
    "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "pow",
    "square", "lgamma", "digamma", "fmod", "remainder", "atan2", "hypot", "eq", "ne", "lt", "le", "gt", "ge", "isnan",
    "isinf",
})  # fmt: skip


# --- elementary functions ----------------------------------------------------------------------------


def _exponential(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x = args[0].clone() if func._schema.is_mutable else args[0]
    result = func(*args, **kwargs)
    return mode.off(result, _argument(x).mul_(result.abs()))


def _argument(x: Tensor) -> Tensor:
    """The relative error of an exponential: its own, and that of a rounded argument."""
    return torch.square(x).mul_(ONE**2).add_(ROUNDING**2).sqrt_().nan_to_num_(0.0, 0.0, 0.0)


def _sigmoid(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x = args[0].clone() if func._schema.is_mutable else args[0]
    result = func(*args, **kwargs)
    return mode.off(result, _argument(x * (1 - result)).mul_(result))


def _expm1(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x = args[0].clone() if func._schema.is_mutable else args[0]
    result = func(*args, **kwargs)
    return mode.off(result, _argument(x).mul_(result + 1).add_(result.abs(), alpha=ONE))


def _log1p(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    result = func(*args, **kwargs)
    return mode.off(result, result.abs().mul_(ROUNDING).add_(ONE))


def _tanh(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x = args[0].clone() if func._schema.is_mutable else args[0]
    result = func(*args, **kwargs)
    return mode.off(result, _argument(x).mul_(1 - torch.square(result)).add_(result.abs(), alpha=ONE))


def _function(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """CUDA's own functions are off by one or two units in the last place."""
    return mode._rounded(func(*args, **kwargs), 2 * ROUNDING)


# --- sums --------------------------------------------------------------------------------------------


def _sum_error(total: Tensor, squares: Tensor, terms: int) -> Tensor:
    """Root mean square error of a sum with this result and this sum of the terms' squares."""
    chain = min(terms, CHAIN)
    sums = max(1.0, terms / chain)
    square = torch.square(total)
    # equal terms round the same way each time: half of the additions are off by the same part of a rounding
    equal = squares * terms - square <= ALIKE * square
    alike = square * (chain * chain / 4) * equal
    return square.mul_(chain / (3 * sums)).add_(squares, alpha=chain / 6).add_(alike).sqrt_().mul_(ONE)


def _sum(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """sum and mean, over all elements or some axes."""
    x, result = args[0], func(*args, **kwargs)
    if not result.is_floating_point() or not result.numel():
        return result
    terms = max(1, x.numel() // result.numel())
    squares = func(torch.square(x.to(result.dtype)), *args[1:], **kwargs)
    if base_name(str(func)) == "mean":
        return mode.off(result, _sum_error(result * terms, squares * terms, terms).div_(terms))
    return mode.off(result, _sum_error(result, squares, terms))


def _scan(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """cumsum: every partial sum is rounded, and all later ones have its error."""
    result = func(*args, **kwargs)
    if not result.is_floating_point() or not result.dim():
        return result
    rounded = torch.square(result)
    with torch._C._DisableTorchDispatch():
        rounded = torch.cumsum(rounded, args[1])
    return mode.off(result, rounded.sqrt_().mul_(ONE))


def _running_product(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """prod and cumprod: each of the factors rounds once."""
    result = func(*args, **kwargs)
    if isinstance(result, Tensor) and result.is_floating_point() and result.numel():
        terms = args[0].shape[args[1]] if len(args) > 1 and args[0].dim() else args[0].numel() // result.numel()
        return mode._rounded(result, ONE * sqrt(max(1, terms)))
    return result


def _product(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """mm, bmm and their kin: sums of products."""
    a, b = args[0], args[1]
    result = func(*args, **kwargs)
    if not result.is_floating_point():
        return result
    squares = func(torch.square(a), torch.square(b), *args[2:], **kwargs)
    return mode.off(result, _sum_error(result, squares, a.shape[-1]))


def _convolution(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, weight, bias, *rest = args
    result = func(x, weight, None, *rest, **kwargs)
    squares = func(torch.square(x), torch.square(weight), None, *rest, **kwargs)
    transposed = bool(rest[3])
    terms = prod(weight.shape[2:]) * (weight.shape[0] // int(rest[5]) if transposed else weight.shape[1])
    result = mode.off(result, _sum_error(result, squares, terms))
    if bias is not None:
        result += bias.reshape(-1, *(1 for _ in weight.shape[2:]))
    return mode._rounded(result)


def _pooled(mode: Float32Roundings, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Means over windows."""
    x, result = args[0], func(*args, **kwargs)
    squares = func(torch.square(x), *args[1:], **kwargs)
    axes = result.dim() - 2
    if "adaptive" in str(func):
        terms = max(1, prod(x.shape[-axes:]) // max(1, prod(result.shape[-axes:])))
    else:
        window = args[1] if isinstance(args[1], Sequence) else [args[1]]
        terms = prod(window) if len(window) > 1 else window[0] ** max(1, axes)
    return mode.off(result, _sum_error(result * terms, squares * terms, terms).div_(terms))


RULES: dict[str, Rule] = {
    "exp": _exponential, "exp2": _exponential, "sigmoid": _sigmoid, "expm1": _expm1, "log1p": _log1p, "tanh": _tanh,
    "sum": _sum, "mean": _sum, "cumsum": _scan, "prod": _running_product, "cumprod": _running_product,
    "mm": _product, "bmm": _product, "mv": _product, "dot": _product, "convolution": _convolution,
    "avg_pool1d": _pooled, "avg_pool2d": _pooled, "avg_pool3d": _pooled,
    "adaptive_avg_pool1d": _pooled, "adaptive_avg_pool2d": _pooled, "adaptive_avg_pool3d": _pooled,
    **dict.fromkeys(
        ("log", "log2", "log10", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
         "atanh", "erf", "erfc", "pow", "lgamma"), _function,
    ),
}  # fmt: skip
