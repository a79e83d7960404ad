"""Tasks of the problems that PyTorch's times were recorded for, at the recorded sizes.

Level 1's graphs are those of the suite, level 2's are written out in a table (docs/baseline.md names both).  The
operators are run again on meta tensors of the row's sizes, so that one graph serves every set of sizes; attributes
that differ between the sets are in `OTHER_ATTRIBUTES`.
"""

from __future__ import annotations

import csv
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from cupilot.records import Argument, Op, Task, TensorSpec
from cupilot.tasks import load_task
from cupilot.tasks.suite import LEVEL1, open_suite

HERE = Path(__file__).with_name("baseline")
LEVEL2 = HERE / "level2_graphs.csv"

OTHER_ATTRIBUTES: Mapping[tuple[str, int, str], Mapping[str, object]] = {
    # KernelBench's first version: what its problems hand to the operators, where the second version hands over more
    ("1", 41, "v0"): {"kernel_size": (4,), "stride": (2,), "padding": (2,), "dilation": (3,)},
    ("1", 42, "v0"): {"kernel_size": (2, 2), "stride": (2, 2), "padding": (1, 1), "dilation": (3, 3)},
    ("1", 44, "v0"): {"kernel_size": (4,), "stride": (2,), "padding": (1,)},
    ("1", 45, "v0"): {"kernel_size": (3, 3), "stride": ()},
    ("1", 80, "v0"): {"padding": (1, 2), "dilation": (2, 1)},
    ("1", 86, "v0"): {"padding": (0, 0)},
    ("1", 58, "v0"): {"stride": (1, 1, 1), "padding": (0, 0, 0), "output_padding": (0, 0, 0)},
    ("1", 72, "v0"): {"stride": (2, 2, 2), "padding": (1, 2, 3), "output_padding": (1, 1, 1)},
    ("1", 69, "v0"): {"stride": (1, 1), "padding": (0, 0), "output_padding": (0, 0)},
    ("1", 75, "v0"): {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1)},
    ("2", 13, "v0"): {"stride": (2, 2, 2), "padding": (1, 1, 1)},
    ("2", 65, "v0"): {"avg_pool2d.kernel_size": (2, 2), "avg_pool2d.stride": (2, 2)},
    ("2", 85, "v0"): {"max_pool2d.kernel_size": (2, 2), "max_pool2d.stride": (2, 2)},
    ("2", 19, "v0"): {"stride": (2, 2)},
    ("2", 11, "v0"): {"conv_transpose2d.stride": (2, 2), "num_groups": 4},
}
OTHER_GRAPHS: Mapping[tuple[str, int, str], str] = {
    # problems that the second version replaced
    ("1", 50, "v0"): "v0=prod.dim_int(in0, 1):",
    ("1", 97, "v0"): "v0=cosine_similarity(in0, in1, 1):; v1=rsub.Scalar(v0, 1):; v2=mean(v1):",
    ("2", 41, "v0"): (  # group norm and mean follow the GELU
        "v0=linear(in0, gemm.weight, gemm.bias):; v1=add_(batch_norm.num_batches_tracked, 1):; "
        "v2=batch_norm(v0, batch_norm.weight, batch_norm.bias, batch_norm.running_mean, batch_norm.running_var, True, "
        "0.1, 1e-05, False):; v3=gelu(v2):; v4=group_norm(v3, 8, batch_norm.weight, batch_norm.bias, 1e-05, False):; "
        "v5=mean.dim(v4, [1], True):; v6=relu(v5):"
    ),
}


@dataclass(frozen=True)
class Row:
    """One recorded pair of times."""

    level: str
    problem: int
    name: str
    sizes: str
    gpu: str
    eager_s: float
    compile_s: float | None
    inputs: str
    parameters: str


def load_rows(path: Path) -> tuple[Row, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            Row(
                r["level"], int(r["problem"]), r["name"], r["sizes"], r["gpu"], float(r["eager_ms"]) / 1e3,
                float(r["compile_ms"]) / 1e3 if r["compile_ms"] else None, r["inputs"], r["parameters"],
            )
            for r in csv.DictReader(file)
        )  # fmt: skip


def tensor_spec(text: str) -> TensorSpec:
    shape, _, dtype = text.partition(":")
    return TensorSpec(tuple(int(size) for size in shape.split("x") if size), dtype or "float32")


def meta(spec: TensorSpec) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")


class Problems:
    """Tasks of rows; exports of the suite are kept in a file, because they take a second each."""

    def __init__(self, graphs: Path = LEVEL2, cache_file: Path | None = None) -> None:
        with graphs.open(encoding="utf-8", newline="") as file:
            self.graphs = {int(r["problem"]): r for r in csv.DictReader(file)}
        self.cache_file = cache_file
        self.kept: dict[int, Task] = {}
        if cache_file is not None and cache_file.exists():
            self.kept = pickle.loads(cache_file.read_bytes())
        self.made: dict[tuple[object, ...], Task | None] = {}

    def task(self, row: Row) -> Task | None:
        """The row's task, or None where its graph is not known."""
        key = (row.level, row.problem, row.sizes, row.inputs, row.parameters)
        if key not in self.made:
            self.made[key] = self._task(row)
        return self.made[key]

    def _task(self, row: Row) -> Task | None:
        given = (row.level, row.problem, row.sizes)
        parameters = dict(_parameters(row.parameters))
        inputs = [tensor_spec(each) for each in row.inputs.split(";") if re.match(r"\d+(x\d+)*:", each)]
        others = OTHER_ATTRIBUTES.get(given, {})
        if given in OTHER_GRAPHS and row.level == "1":
            return written_task(row.name, inputs, parameters, OTHER_GRAPHS[given], others)
        if row.level == "2":
            if row.problem not in self.graphs:
                return None
            known = self.graphs[row.problem]
            listed = dict(part.split(":") for part in known["parameters"].split())
            named = {name: parameters.get(name, tensor_spec(shape)) for name, shape in listed.items()}
            other_sizes = row.inputs.replace(";", " ") != known["inputs"] or row.problem in FIRST_VERSION
            if row.sizes == "v0" and not parameters and other_sizes:
                named = first_version(row.problem, inputs[0], named, known["graph"])
            return written_task(row.name, inputs, named, OTHER_GRAPHS.get(given, known["graph"]), others)
        task = self.exported(row.problem)
        return replayed_task(task, inputs, parameters, others) if task.graph else None

    def exported(self, problem: int) -> Task:
        if problem not in self.kept:
            path = next(each.path for each in open_suite(LEVEL1) if each.number == problem)
            self.kept[problem] = load_task(path)
            if self.cache_file is not None:
                self.cache_file.write_bytes(pickle.dumps(self.kept))
        return self.kept[problem]


def _parameters(text: str) -> Iterator[tuple[str, TensorSpec]]:
    for part in filter(None, re.split(r"[;\s]", text)):
        name, _, shape = part.partition("=")
        yield name, tensor_spec(shape)


FIRST_VERSION: Mapping[int, str] = {
    # weights of level 2's first version, whose rows do not name them
    5: "32x16x4x4", 11: "32x64x4x4", 13: "8x16x3x3x3", 19: "32x64x4x4", 29: "5x10", 37: "1024x512", 41: "1024x512",
    55: "5x10", 61: "64x128x3x3x3", 77: "64x32x3x3x3", 91: "32x64x4x4",
}  # fmt: skip


def first_version(
    problem: int, given: TensorSpec, parameters: Mapping[str, TensorSpec], graph: str
) -> dict[str, TensorSpec]:
    """Parameters at the first version's sizes: sixteen channels from three, half the features of a product."""
    named = dict(parameters)
    weight = next(name for name, spec in parameters.items() if name.endswith("weight") and len(spec.shape) > 1)
    old = parameters[weight].shape
    transposed = "conv_transpose" in graph
    many = old[1] if transposed else old[0]
    if problem in FIRST_VERSION:
        new = tensor_spec(FIRST_VERSION[problem]).shape
    elif len(old) == 2:
        new = (given.shape[-1] // 2, given.shape[-1])
    elif transposed:
        new = (given.shape[1], 2 * given.shape[1], *old[2:])
    else:
        new = (16, given.shape[1], *old[2:])
    few = new[1] if transposed else new[0]
    for name, spec in parameters.items():
        named[name] = TensorSpec(tuple(few if size == many else size for size in spec.shape), spec.dtype)
    return named | {weight: TensorSpec(new)}


# Running graphs on meta tensors


def written_task(
    name: str, inputs: list[TensorSpec], parameters: Mapping[str, TensorSpec], text: str, others: Mapping[str, object]
) -> Task:
    """A task from lines such as ``v0=conv2d(in0, conv.weight, conv.bias, [1 1]):1x2x3``."""
    values: dict[str, Any] = {f"in{place}": meta(spec) for place, spec in enumerate(inputs)}
    values |= {key: _parameter(key, spec) for key, spec in parameters.items()}
    arguments = [
        Argument(key, "input" if key.startswith("in") and key[2:].isdigit() else "parameter", spec_of(value))
        for key, value in values.items()
    ]
    values["c_lifted_tensor_0"] = torch.empty((), device="meta")
    ops = []
    for line in text.split("; "):
        left, _, rest = line.partition("=")
        called = re.match(r"(.*?)\((.*)\):[\dx]*$", rest)
        if called is None:
            raise ValueError(f"cannot read {line!r}")
        target, words = called[1], _words(called[2])
        if "getitem" in target:
            values[left] = values[words[0]][int(words[1])]
            ops.append(Op(left, "getitem", (words[0],), (("index", int(words[1])),), spec_of(values[left])))
            continue
        if target in {"lift_fresh_copy", "detach_"}:
            values[left] = torch.empty((), device="meta")
            continue
        packet, _, overload = target.partition(".")
        function = chosen_overload(packet, overload)
        literals = [values[word] if word in values else _literal(word) for word in words]
        ops.append(run(left, function, literals, words, values, others))
    return finished(name, arguments, ops, values)


def chosen_overload(packet: str, overload: str) -> Any:
    """Arithmetic is written without its overload, which is that of tensors."""
    functions = getattr(torch.ops.aten, packet)
    known = [name for name in functions.overloads() if name != "int" and _takes_tensor(getattr(functions, name))]
    return getattr(functions, overload or ("default" if "default" in known else "Tensor"))


def _takes_tensor(function: Any) -> bool:
    return str(function._schema.arguments[0].type) == "Tensor"


def _parameter(name: str, spec: TensorSpec) -> torch.Tensor:
    if name.endswith("num_batches_tracked"):
        return torch.empty((), dtype=torch.int64, device="meta")
    return meta(spec)


def _words(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",\s*(?![^\[]*\])", text)] if text.strip() else []


def _literal(word: str) -> object:
    if word.startswith("["):
        return [int(part) for part in word[1:-1].split()]
    if word in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[word]
    try:
        return int(word)
    except ValueError:
        return float(word)


def run(
    name: str,
    function: Any,
    literals: list[Any],
    words: list[str],
    values: dict[str, Any],
    others: Mapping[str, object],
) -> Op:
    """Call one operator on meta tensors and note it as the export does."""
    operands: list[str] = []
    attributes: list[tuple[str, Any]] = []
    call: list[Any] = []
    for place, argument in enumerate(function._schema.arguments):
        if place < len(literals):
            value = literals[place]
        elif argument.kwarg_only and not argument.has_default_value():
            break
        else:
            value = argument.default_value
        if isinstance(value, torch.Tensor):
            operands.append(words[place])
        else:
            own = f"{function._schema.name.removeprefix('aten::')}.{argument.name}"
            value = others.get(own, others.get(argument.name, value))
            value = tuple(value) if isinstance(value, list) else value
            attributes.append((argument.name, value))
        if not argument.kwarg_only:
            call.append(list(value) if isinstance(value, tuple) else value)
    values[name] = function(*call)
    return Op(name, str(function), tuple(operands), tuple(attributes), spec_of(values[name]))


def replayed_task(
    task: Task, inputs: list[TensorSpec], parameters: Mapping[str, TensorSpec], others: Mapping[str, object]
) -> Task:
    """The same graph at other sizes."""
    sizes = iter(inputs)
    arguments = []
    for argument in task.arguments:
        if argument.tensor is None:
            arguments.append(argument)
        elif argument.origin == "input":
            arguments.append(replace(argument, tensor=next(sizes)))
        else:
            found = [
                spec for key, spec in parameters.items() if key.replace(".", "_") == argument.name.replace(".", "_")
            ]
            arguments.append(replace(argument, tensor=found[0] if found else argument.tensor))
    values: dict[str, Any] = {a.name: meta(a.tensor) if a.tensor else a.value for a in arguments}
    ops = []
    for op in task.graph:
        if op.target == "getitem":
            values[op.name] = values[op.operands[0]][int(dict(op.attributes)["index"])]  # type: ignore[arg-type]
            ops.append(replace(op, output=spec_of(values[op.name])))
            continue
        operands = [values[each] for each in op.operands]
        if "conv" in op.target and "groups" in dict(op.attributes) and "transpose" not in op.target:
            others = {**others, "groups": operands[0].shape[1] // operands[1].shape[1]}
        values[op.name] = replay(op, operands, others)
        changed = tuple((key, others.get(key, value)) for key, value in op.attributes)
        ops.append(replace(op, output=spec_of(values[op.name]), attributes=changed))  # type: ignore[arg-type]
    return finished(task.name, arguments, ops, values)


def replay(op: Op, operands: list[Any], others: Mapping[str, object]) -> Any:
    namespace, packet, overload = op.target.split(".")
    function = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    given, rest = dict(op.attributes), list(operands)
    call: list[Any] = []
    options: dict[str, Any] = {}
    for argument in function._schema.arguments:
        if argument.name in given:
            value: Any = others.get(argument.name, given[argument.name])
            value = list(value) if isinstance(value, tuple) else value
            value = getattr(torch, value) if argument.name == "dtype" and isinstance(value, str) else value
            value = torch.device("meta") if argument.name == "device" else value
        elif "List" in str(argument.type):
            value, rest = rest, []
        else:
            value = rest.pop(0) if rest else None
        if argument.kwarg_only:
            options[argument.name] = value
        else:
            call.append(value)
    return function(*call, **options)


def spec_of(value: Any) -> TensorSpec:
    if isinstance(value, (tuple, list)):
        value = next(each for each in value if isinstance(each, torch.Tensor))
    return TensorSpec(tuple(value.shape), str(value.dtype).removeprefix("torch."))


def finished(name: str, arguments: list[Argument], ops: list[Op], values: Mapping[str, Any]) -> Task:
    used = {operand for op in ops for operand in op.operands}
    last = [op for op in ops if op.name not in used][-1:]
    return Task(name, "", tuple(arguments), tuple(op.output for op in last), tuple(ops))


@cache
def problems() -> Problems:
    return Problems()
