"""How far the name of a wrapper's parameter resembles the name of something in a module.

Names are compared as words: ``convWeight``, ``conv_weight`` and ``conv.weight`` are the same two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Words = tuple[str, ...]

# the 2d of conv2d is one word and no number: numbers tell one of several parts from the others
_WORD = re.compile(r"[123][dD](?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Said of a tensor's type and not of its meaning.
_NOISE = frozenset(("tensor", "opt", "optional", "maybe", "param", "ptr", "data", "arg", "running", "moving", "cuda"))
_TENSOR_WORDS = {
    "w": "weight", "wt": "weight", "weights": "weight", "gamma": "weight", "kernel": "weight", "kernels": "weight",
    "filter": "weight", "filters": "weight", "scale": "weight", "table": "weight",
    "b": "bias", "biases": "bias", "beta": "bias", "shift": "bias",
    "mu": "mean", "avg": "mean", "variance": "var",
}  # fmt: skip
_OF_NORMS = frozenset(("gamma", "beta"))
KINDS = frozenset(("weight", "bias", "mean", "var"))
"""What a tensor of a module can be that no other tensor stands in for."""

_SCALAR_WORDS = tuple(
    tuple(tuple(name.split("_")) for name in group.split())
    for group in (
        "eps epsilon",
        "dim axis reduce_dim reduction_dim softmax_dim",
        "negative_slope slope alpha leaky_slope leak",
        "kernel_size kernel k ksize k_size filter_size pool_size window_size window kernel_sz",
        "stride strides s",
        "padding pad pads p",
        "dilation dilations dil",
        "output_padding out_pad out_padding output_pad",
        "groups num_groups n_groups group ngroups g",
        "scale scale_factor scaling_factor scaling multiplier",
        "min_val min min_value clamp_min lower",
        "max_val max max_value clamp_max upper",
        "keepdim keep_dim keepdims keep_dims",
        "num_heads n_heads heads n_head num_head nhead",
        "causal is_causal",
        "training is_training train",
        "momentum exponential_average_factor",
        "in_channels c_in in_c ic input_channels cin",
        "out_channels c_out out_c oc output_channels cout",
        "in_features input_size input_features",
        "out_features output_features",
        "num_features features channels num_channels",
        "normalized_shape normalized_size norm_size",
        "bias use_bias has_bias with_bias",
        "ceil_mode ceil",
        "delta beta threshold",
        "divisor divide_by divisor_override",
        "constant constant_value value",
        "hidden_size hidden hidden_dim",
    )
)

AXES = {"d": 0, "depth": 0, "z": 0, "h": 1, "height": 1, "y": 1, "w": 2, "width": 2, "x": 2}
"""Places among depth, height, width; shorter tuples lack the first ones."""
_JOINED_AXIS = re.compile(r"(k|s|p|pad|padding|stride|kernel|dil|dilation)([dhw])")


def words(name: str) -> Words:
    """The words of a name, in small letters."""
    return tuple(word.lower() for word in _WORD.findall(name))


def tensor_words(name: str) -> Words:
    """The same with one word for one meaning (``gamma`` is a weight)."""
    return tuple(_TENSOR_WORDS.get(word, word) for word in words(name) if word not in _NOISE)


def numbered_first(name: Words) -> Words | None:
    """``eps2`` read as what part 2 has: the number in front, where words that say which part stand."""
    return (name[-1], *name[:-1]) if len(name) > 1 and name[-1].isdigit() else None


def without_axis(name: Words) -> tuple[Words, str] | None:
    """``stride_h``, ``kW`` and ``kernel_size_0`` are one element of something: of what, and which."""
    joined = _JOINED_AXIS.fullmatch(name[-1]) if name else None
    if joined is not None:
        return (*name[:-1], joined.group(1)), joined.group(2)
    if len(name) > 1 and (name[-1] in AXES or name[-1] in ("0", "1", "2")):
        return name[:-1], name[-1]
    return None


@dataclass(frozen=True)
class Place:
    """Words that say which part of a model is meant: from its path, and from its module's class."""

    path: frozenset[str] = frozenset()
    kind: frozenset[str] = frozenset()

    def likeness(self, context: Words) -> int:
        """How well words such as ``conv`` and ``1`` fit here; zero when they do not."""
        numbers = {word for word in context if word.isdigit()}
        own = {word for word in self.path if word.isdigit()}
        if numbers and own and not numbers & own:
            return 0
        return sum(2 if word in self.path else 1 for word in set(context) if word in self.path or word in self.kind)


def place_of(path: str, module: torch.nn.Module) -> Place:
    """Numbers that only count the members of a container say nothing."""
    parts = [part for part in path.split(".") if not part.isdigit()]
    said = frozenset(word for part in parts for word in (*words(part), part.lower()))
    named = [word for word in words(type(module).__name__) if not word[0].isdigit()]
    kind = {*named, "".join(named)} | ({"".join(word[0] for word in named)} if len(named) > 1 else set())
    for known, others in (
        ("linear", ("fc", "lin", "gemm", "proj")),
        ("transpose", ("deconv",)),
        ("embedding", ("emb",)),
    ):
        kind |= set(others) if known in kind else set()
    return Place(said, frozenset(kind))


@dataclass(frozen=True)
class TensorName:
    """A tensor of a module: its path, the last part of it, and where it is."""

    path: str
    place: Place

    @property
    def last(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def kind(self) -> str | None:
        """Weight, bias, mean or var; None for everything else."""
        return kind_of(self.last)

    def likeness(self, name: str) -> int:
        """How well a parameter's name fits, from 0 (not at all) to 1000 (it is the path)."""
        if words(name) == words(self.path):
            return 1000
        meant, own = tensor_words(name), tensor_words(self.last)
        if words(name) == words(self.last):
            return 900
        if not own or not set(own) <= set(meant):
            return 0
        context = tuple(word for word in meant if word not in own)
        if not context:
            of_norm = bool(_OF_NORMS & set(words(name))) and "norm" in self.place.kind
            return 950 if of_norm else 700
        fitting = self.place.likeness(context)
        if all(word.isdigit() for word in context):
            has_numbers = any(word.isdigit() for word in self.place.path)
            return 600 if fitting else 0 if has_numbers else 400
        return (
            620 + 10 * fitting if any(self.place.likeness((w,)) for w in context if not w.isdigit()) and fitting else 0
        )


def kind_of(name: str) -> str | None:
    """What kind of tensor a name speaks of, if it does."""
    found = [word for word in tensor_words(name) if word in KINDS]
    return found[-1] if found else None


def scalar_likeness(name: Words, own: Words, place: Place) -> tuple[int, int] | None:
    """Rank (0: the same word, 1: another word for it) and fit of the words before it; None when it is another thing."""
    for rank, endings in enumerate(((own,), _other_words(own))):
        for ending in endings:
            if name[-len(ending) :] != ending:
                continue
            context = name[: -len(ending)]
            if not context:
                return rank, 1000
            if place.likeness(context):
                return rank, place.likeness(context)
    return None


def _other_words(own: Words) -> tuple[Words, ...]:
    return tuple(other for group in _SCALAR_WORDS if own in group for other in group if other != own)
