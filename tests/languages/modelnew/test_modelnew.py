"""KernelBench answers, as people write them, on the virtual GPU; PyTorch itself is the reference."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.devices.virtual import VirtualDevice
from cupilot.languages.contract import Target
from cupilot.languages.modelnew.build import build_file, extended, wanted_by
from cupilot.records import Failure, Kernel, MemoryOperation, TensorSpec
from cupilot.tasks.load import task_from_source
from evaluating import evaluator_on

HERE = Path(__file__).parent
FILES = {path.stem: path.read_text() for path in sorted((HERE / "files").glob("*.py"))}
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR)


X, Y = normal(37, 53), normal(37, 53)
A, B = normal(33, 47), normal(47, 29)
IMAGE, FILTERS, OFFSETS = normal(2, 3, 9, 8), normal(4, 3, 3, 3), normal(4)
WEIGHT, BIAS = normal(53), normal(53)
LINEAR, SHIFT = normal(19, 53), normal(19)
SCALE = torch.tensor(1.5)
TABLE = torch.tensor([3.0] + [2.0] * 52)

# for each file its calls: the constructor's arguments, inputs, parameters, and what should come out
Case = tuple[str, list[torch.Tensor], dict[str, torch.Tensor], list[torch.Tensor]]
RIGHT: dict[str, list[Case]] = {
    "relu": [("()", [X], {}, [X.relu()]), ("()", [Y], {}, [Y.relu()])],
    "softmax": [("()", [X], {}, [X.softmax(1)])],
    "matmul": [("()", [A, B], {}, [A @ B])],
    "layer_norm": [
        ("((53,), 0.1)", [X], {"weight": WEIGHT, "bias": BIAS}, [F.layer_norm(X, (53,), WEIGHT, BIAS, 0.1)]),
        ("((53,), 0.1)", [Y], {"weight": BIAS, "bias": WEIGHT}, [F.layer_norm(Y, (53,), BIAS, WEIGHT, 0.1)]),
    ],
    "convolution": [
        ("(3, 4, 3, 2, 1)", [IMAGE], {"conv.weight": FILTERS, "conv.bias": OFFSETS},
         [F.conv2d(IMAGE, FILTERS, OFFSETS, stride=2, padding=1)]),
    ],
    "two_extensions": [
        ("(53, 19)", [X], {"linear.weight": LINEAR, "linear.bias": SHIFT}, [F.gelu(F.linear(X, LINEAR, SHIFT))]),
    ],
    "in_constructor": [
        ("(53,)", [X], {}, [3 * X + 1, 3 * X - 1]),
        ("(47,)", [A], {}, [3 * A + 1, 3 * A - 1]),
    ],
    "from_files": [("()", [X], {}, [X.tanh()])],
    "half_weights": [
        ("(53,)", [X], {"weight": WEIGHT}, [X * WEIGHT.half() * TABLE]),
        ("(53,)", [Y], {"weight": BIAS}, [Y * BIAS.half() * TABLE]),
    ],
    "habits": [
        ("(53,)", [X], {"scale": SCALE, "row": WEIGHT},
         [torch.cat([torch.full((37, 2), 7.0), (1.5 * X.half().float() + WEIGHT)[:, 2:]], 1)]),
    ],
}  # fmt: skip
MORE: dict[str, list[Case]] = {
    "cheats": [("()", [A, B], {}, [])],
    "mixes": [("()", [A, B], {}, [(A @ B + 1) ** 2])],
    "mixes+torch": [("()", [A, B], {}, [(A @ B + 1) ** 2])],
    "on_the_host": [("()", [A, B], {}, [])],
    "half_written": [("()", [X], {}, [])],
    "layer_norm, odd parameters": [
        ("((53,), 0.1)", [X], {"weight": LINEAR}, []),
        ("((53,), 0.1)", [X], {"gain": WEIGHT}, []),
        ("((53,), 'small')", [X], {"weight": WEIGHT, "bias": BIAS}, []),
        ("((53,), 0.1, 2)", [X], {}, []),
    ],
}


def modelnew(source: str, *options: str) -> Kernel:
    return Kernel(source, language="modelnew", options=options)


def kernel_of(name: str) -> Kernel:
    stem = name.partition("+")[0].partition(",")[0]
    return modelnew(FILES[stem], *(["torch-ops"] if name.endswith("+torch") else []))


@pytest.fixture(scope="module")
def results(device: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything at once: loaded in one process, built here, run in two more."""
    assert isinstance(device, VirtualDevice)
    cases = RIGHT | MORE
    target = Target("sm_80", device._cache)
    folder = tmp_path_factory.mktemp("modelnew")
    built = {name: build_file(kernel_of(name), target, _nothing) for name in cases}
    found: dict[str, Any] = {}
    for number in range(3):
        jobs = {
            name: (one.library, [_values(case) for case in cases[name]])
            for name, one in built.items()
            if isinstance(one, Built) and (name not in found or wanted_by(found[name]))
        }
        if not jobs:
            break
        files = folder / f"jobs{number}", folder / f"results{number}"
        files[0].write_bytes(pickle.dumps({"runtime": device.runtime(), "host": device.host_program(), "files": jobs}))
        command = (sys.executable, HERE / "modelnew_driver.py", *files)
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        found |= pickle.loads(files[1].read_bytes())
        for name in jobs:
            wanted = wanted_by(found[name])
            assert isinstance(wanted, tuple)
            if wanted:
                built[name] = extended(built[name], wanted, target)
    return found


def _nothing(built: Built) -> tuple[Failure]:
    """In place of a worker: the first run shows what the file wants."""
    return (Failure("build", "unbuilt", "", "[]"),)


def _values(case: Case) -> tuple[Any, ...]:
    init, inputs, state, _ = case
    return init, [x.numpy() for x in inputs], list(state), [x.numpy() for x in state.values()], ""


@pytest.mark.parametrize("name", RIGHT)
def test_an_answer_computes_what_it_should(results: dict[str, Any], name: str) -> None:
    for (_, _, _, expected), result in zip(RIGHT[name], results[name], strict=True):
        assert isinstance(result, tuple) and len(result) == 4, result  # noqa: PT018
        arrays, written, _, _ = result
        assert len(arrays) == len(expected)
        for array, count, wanted in zip(arrays, written, expected, strict=True):
            np.testing.assert_allclose(array, wanted.numpy(), rtol=2e-5, atol=2e-5)
            assert count == array.size


def test_what_pytorch_does_between_kernels_is_counted(results: dict[str, Any]) -> None:
    _, _, launches, operations = results["habits"][0]
    assert [name for name in launches if "copy_elements" in name] == launches[:2]
    assert sum("convert_elements" in name for name in launches) == 3  # two conversions, and a fill with seven
    assert sum("add_rows_kernel" in name for name in launches) == 1
    fill, scale = operations
    assert (fill.kind, fill.bytes) == ("fill", X.nbytes)
    assert (scale.kind, scale.bytes) == ("device-to-host", 4)


def test_a_plain_call_has_nothing_added(results: dict[str, Any]) -> None:
    _, _, launches, operations = results["relu"][0]
    assert launches == ["_Z11relu_kernelPKfPfi"]
    assert operations == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cheats", "the solution computes with PyTorch: aten.mm (1 call)"),
        ("mixes", "the solution computes with PyTorch: aten.mm (1 call), aten.add_ (1 call)"),
    ],
)
def test_operators_of_pytorch_are_reported(results: dict[str, Any], name: str, words: str) -> None:
    (failure,) = results[name]
    assert isinstance(failure, Failure), failure
    assert (failure.stage, failure.kind, failure.message) == ("guard", "torch-operators", words)


def test_what_is_taken_to_the_host_is_counted(results: dict[str, Any]) -> None:
    _, _, launches, operations = results["on_the_host"][0]
    assert launches == []
    assert [(operation.kind, operation.bytes) for operation in operations] == [
        ("device-to-host", A.nbytes),
        ("device-to-host", B.nbytes),
        ("host-to-device", 33 * 29 * 4),
    ]


def test_operators_of_pytorch_run_where_they_are_allowed(results: dict[str, Any]) -> None:
    arrays, _, launches, operations = results["mixes+torch"][0]
    np.testing.assert_allclose(arrays[0], MORE["mixes"][0][3][0].numpy(), rtol=1e-5)
    assert len(launches) == 1
    product, addition = operations
    assert product == MemoryOperation("aten.mm", (A.nbytes + B.nbytes + 33 * 29 * 4) // 2, 2 * 33 * 47 * 29)
    assert addition.kind == "aten.add_"


def test_memory_that_python_allocates_is_known_to_be_unwritten(results: dict[str, Any]) -> None:
    _, written, _, _ = results["half_written"][0]
    assert written == [X.numel() // 2]


def test_parameters_that_do_not_fit_are_named(results: dict[str, Any]) -> None:
    shape, absent, numbers, constructor = results["layer_norm, odd parameters"]
    assert (shape.kind, shape.message) == ("parameters", "weight is 19x53 in the task and 53 in ModelNew")
    assert absent.kind == "parameters"
    assert absent.message == "the task has no parameter for bias (53) of ModelNew; not used so far: none"
    assert numbers.kind == "wrapper-error"
    assert "argument 4 (str) does not fit layer_norm_cuda(Tensor, Tensor, Tensor, float) -> Tensor" in numbers.message
    assert numbers.message.startswith("solution.py, line 49: TypeError: ")
    assert constructor.kind == "wrapper-error"
    assert "takes 3 positional arguments but 4 were given" in constructor.message


# --- in workers -----------------------------------------------------------------------------------


def built_and_run(
    device: Device, source: str, inputs: Sequence[torch.Tensor] = (X,), calls: int = 1
) -> tuple[Outcome | Failure, ...]:
    built = device.build(modelnew(source))
    if isinstance(built, Failure):
        return (built,)
    call = Call("call", ("()", tuple(x.numpy() for x in inputs), (), (), ""), (TensorSpec(tuple(X.shape)),))
    return device.run(built, [call] * calls, 60.0)


@pytest.mark.slow
def test_a_worker_runs_an_answer(device: Device) -> None:
    for outcome in built_and_run(device, FILES["relu"], calls=2):
        assert isinstance(outcome, Outcome), outcome
        np.testing.assert_array_equal(outcome.outputs[0].array, X.relu().numpy())
        assert [launch.kernel for launch in outcome.profile.launches] == ["_Z11relu_kernelPKfPfi"]


def test_a_mistake_in_a_source_is_placed_in_the_file(device: Device) -> None:
    (failure,) = built_and_run(device, FILES["does_not_compile"])
    assert isinstance(failure, Failure), failure
    assert (failure.stage, failure.kind) == ("build", "compile-error")
    assert failure.message == 'broken: solution.py:14: identifier "zero" is undefined'


def test_a_confined_answer_writes_its_sources_and_sees_nothing_else(device: Device) -> None:
    (outcome,) = built_and_run(device, FILES["from_files"] + FILES["looks_around"])
    assert isinstance(outcome, Outcome), outcome
    np.testing.assert_allclose(outcome.outputs[0].array, X.tanh().numpy(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "inputs", "kind", "words"),
    [
        ("crashes", (X,), "crash", "the candidate's host code crashed with SIGSEGV"),
        ("opens_a_file", (X,), "forbidden-call", "fopen"),
        ("on_the_host", (A, B), "computed-on-host", f"takes {A.nbytes + B.nbytes} bytes to the host"),
        ("tampers", (A, B), "crash", "asks for what is not possible: values to compute with"),
    ],
)
def test_what_must_not_be_done_is_a_failure(
    device: Device, name: str, inputs: Sequence[torch.Tensor], kind: str, words: str
) -> None:
    (failure,) = built_and_run(device, FILES[name], inputs)
    assert isinstance(failure, Failure), failure
    assert failure.kind == kind
    assert words in failure.message + failure.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("class ModelNew(:\n", "load", "solution.py, line 1: invalid syntax"),
        (
            "import torch\n\nx = torch.zeros(3)\nunknown\n",
            "load",
            "solution.py, line 4: NameError: name 'unknown' is not",
        ),
        ("class Model: ...", "load", "there is no class ModelNew"),
        ("import sys\nsys.exit(0)", "crash", "the solution calls exit"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why(device: Device, source: str, kind: str, words: str) -> None:
    (failure,) = built_and_run(device, source)
    assert isinstance(failure, Failure), failure
    assert (failure.stage, failure.kind) == ("load", kind)
    assert words in failure.message


# --- evaluated ------------------------------------------------------------------------------------

LAYER_NORM_TASK = """
import torch

rows, width = 48, 96


class Model(torch.nn.Module):
    def __init__(self, normalized_shape, eps):
        super().__init__()
        self.norm = torch.nn.LayerNorm(normalized_shape, eps=eps)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(rows, width)]


def get_init_inputs():
    return [(width,), 1e-3]
"""


def test_an_answer_is_evaluated_like_any_kernel(device: Device) -> None:
    task = task_from_source(LAYER_NORM_TASK, "layer_norm", "fp32", "layer_norm.py")
    evaluate = evaluator_on(device)
    evaluation = evaluate(task, modelnew(FILES["layer_norm"]))
    assert evaluation.correct, evaluation.failure
    assert {"own", "normal", "wide"} <= {check.inputs for check in evaluation.checks}
    assert evaluation.timing is not None
    # the task's parameters are drawn anew, so an answer that does without them is found out
    without = FILES["layer_norm"].replace("self.weight, self.bias, self.eps", "self.bias, self.weight, self.eps")
    assert without != FILES["layer_norm"]
    wrong = evaluate(task, modelnew(without))
    assert wrong.failure is not None
    assert (wrong.failure.stage, wrong.failure.kind) == ("verify", "wrong-result")
