"""Loading task files: the record, its cost, and every way to get it wrong."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cupilot.errors import TaskError
from cupilot.records import Argument, TensorSpec, from_plain, to_plain
from cupilot.records.task import Task
from cupilot.tasks import load_task
from cupilot.tasks.load import task_from_source

EXAMPLES = Path(__file__).parents[2] / "examples"
ELEMENTWISE = "def forward(self, x):\n    return x + 1"


@pytest.mark.parametrize(
    ("name", "operators", "output"),
    [
        ("relu", ("aten.relu.default",), (4096, 16384)),
        ("gelu", ("aten.gelu.default",), (4096, 16384)),
        ("softmax", ("aten.softmax.int",), (1024, 65536)),
        ("matmul", ("aten.matmul.default",), (4096, 4096)),
    ],
)
def test_examples_load(name: str, operators: tuple[str, ...], output: tuple[int, ...]) -> None:
    task = load_task(EXAMPLES / f"{name}.py")
    assert task.name == name
    assert task.operators == operators
    assert task.outputs == (TensorSpec(output),)
    assert all(argument.origin == "input" for argument in task.arguments)
    assert from_plain(Task, to_plain(task)) == task


def test_gigabytes_cost_no_memory(task_file) -> None:
    path = task_file(ELEMENTWISE, "torch.rand(1 << 20, 1 << 20)")
    task = load_task(path, precision="tf32")
    assert task.arguments[0].tensor == TensorSpec((1 << 20, 1 << 20))
    assert task.precision == "tf32"


def test_arguments_are_inputs_then_parameters_then_buffers(task_file) -> None:
    body = """
    def __init__(self, features):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(features, 8))
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("offset", torch.ones(8, dtype=torch.float64))

    def forward(self, weight, slope):
        return self.inner(weight) * slope * self.weight + self.offset
    """
    task = load_task(task_file(body, "torch.rand(4, 16), 0.5", init="16"))
    assert task.arguments == (
        Argument("weight", "input", TensorSpec((4, 16))),
        Argument("slope", "input", value=0.5),
        Argument("weight_", "parameter", TensorSpec((8,))),
        Argument("inner_0_weight", "parameter", TensorSpec((8, 16))),
        Argument("inner_0_bias", "parameter", TensorSpec((8,))),
        Argument("offset", "buffer", TensorSpec((8,), "float64")),
    )
    assert task.graph[0].operands == ("weight", "inner_0_weight", "inner_0_bias")
    assert task.graph[1].attribute("other") == 0.5
    assert task.graph[2].operands == (task.graph[1].name, "weight_")
    assert task.graph[3].operands == (task.graph[2].name, "offset")


def test_attributes_have_the_schemas_names_and_defaults(task_file) -> None:
    body = """
    def forward(self, x, y):
        z = torch.cat([nn.functional.gelu(x), torch.softmax(y, -1)], dim=1)
        values, indices = z.reshape(2, -1).max(dim=1)
        return values, indices
    """
    task = load_task(task_file(body, "torch.rand(4, 4), torch.rand(4, 4)"))
    gelu, softmax, cat, reshape, maximum, *items = task.graph
    assert gelu.attributes == (("approximate", "none"),)
    assert softmax.attributes == (("dim", -1), ("dtype", None))
    assert cat.operands == (gelu.name, softmax.name)
    assert cat.attributes == (("dim", 1),)
    assert reshape.attribute("shape") == (2, -1)
    assert maximum.attributes == (("dim", 1), ("keepdim", False))
    assert [item.attribute("index") for item in items] == [0, 1]
    assert task.outputs == (TensorSpec((2,)), TensorSpec((2,), "int64"))


def test_tied_parameters_are_one_argument(task_file) -> None:
    body = """
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))
    """
    task = load_task(task_file(body, "torch.rand(4, 4)"))
    assert [argument.name for argument in task.arguments] == ["x", "first_weight"]
    assert [op.operands[1] for op in task.graph] == ["first_weight", "first_weight"]


def test_what_cannot_be_exported_still_loads(task_file) -> None:
    body = """
    def forward(self, x):
        if torch.compiler.is_exporting():
            raise RuntimeError("not today")
        return x * 2
    """
    task = load_task(task_file(body, "torch.rand(4)"))
    assert task.graph == ()
    assert task.outputs == (TensorSpec((4,)),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def (", "not a Python file"),
        ("import no_such_module_here", "No module named 'no_such_module_here'"),
        ("raise SystemExit(3)", "calls exit"),
        ("1 / 0", "ZeroDivisionError"),
        ("x = 1", "no class Model"),
        ("class Model: pass", "no function get_inputs"),
        ("class Model: pass\ndef get_inputs(): return []", "not a torch.nn.Module"),
    ],
)
def test_broken_files_are_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    _assert_refused(path, reason)


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        (ELEMENTWISE, "1 / 0", "get_inputs fails"),
        (ELEMENTWISE, "[torch.rand(3)]", "input 0 is a list"),
        (ELEMENTWISE, "torch.rand(3), 1", "does not run"),
        (ELEMENTWISE, "torch.rand(3, dtype=torch.complex64)", "complex64"),
        ("def forward(self, x):\n    return x @ x", "torch.rand(3, 4)", "does not run"),
        ("def forward(self, x):\n    return 'text'", "torch.rand(3)", "returns a str"),
        ("def forward(self, x):\n    return None", "torch.rand(3)", "returns a NoneType"),
        ("def forward(self, x):\n    return x, {}", "torch.rand(3)", "returns a dict"),
        ("def __init__(self):\n    self.x = nn.Linear(2, 2)", "torch.rand(3)", "cannot be constructed"),
    ],
)
def test_broken_models_are_one_sentence(task_file, body: str, inputs: str, reason: str) -> None:
    _assert_refused(task_file(body, inputs), reason)


def test_missing_and_unreadable_files_are_one_sentence(tmp_path: Path) -> None:
    _assert_refused(tmp_path / "absent.py", "no such task file")
    _assert_refused(tmp_path, "cannot be read")
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    _assert_refused(binary, "not UTF-8")
    zeros = tmp_path / "zeros.py"
    zeros.write_bytes(b"x = 1\x00")
    _assert_refused(zeros, "not a Python file")


def _assert_refused(path: Path, reason: str) -> None:
    with pytest.raises(TaskError) as caught:
        load_task(path)
    message = str(caught.value)
    assert str(path) in message
    assert reason in message
    assert "\n" not in message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_unknown_precision_is_refused() -> None:
    with pytest.raises(TaskError, match="fp8"):
        load_task(EXAMPLES / "relu.py", precision="fp8")


def test_loading_leaves_no_trace(task_file, capsys) -> None:
    top = """
    import random
    import numpy
    torch.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)
    torch.set_default_dtype(torch.float64)
    print("hello")
    """
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    load_task(task_file(ELEMENTWISE, "torch.rand(3)", top=top))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]
    assert torch.get_default_dtype() is torch.float32
    assert capsys.readouterr().out == ""


def test_importing_tasks_does_not_import_torch() -> None:
    program = "import sys, cupilot.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# --- types and devices -----------------------------------------------------------------------------

CONVERTED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}
    def forward(self, x):
        return {result}
def get_inputs():
    return [torch.randn(64, 128, {options})]
"""


def _converted(constructor: str, result: str, options: str) -> Task:
    text = CONVERTED.format(constructor=constructor, result=result, options=options)
    return task_from_source(text, "converted", "fp32", where="converted")


@pytest.mark.parametrize(
    ("constructor", "dtype"),
    [
        ("self.layer = nn.Linear(128, 64).half()", "float16"),
        ("self.layer = nn.Linear(128, 64); self.to(torch.bfloat16)", "bfloat16"),
        ("self.layer = nn.Linear(128, 64, dtype=torch.float16)", "float16"),
    ],
)
def test_modules_that_convert_themselves_load(constructor: str, dtype: str) -> None:
    task = _converted(constructor, "self.layer(x)", f"dtype=torch.{dtype}")
    assert [argument.tensor.dtype for argument in task.arguments if argument.tensor] == [dtype] * 3
    assert [(op.target, op.output.dtype) for op in task.graph] == [("aten.linear.default", dtype)]


def test_converted_parameters_stay_shared() -> None:
    tied = (
        "self.a = nn.Linear(128, 128, bias=False); self.b = nn.Linear(128, 128, bias=False)"
        "; self.b.weight = self.a.weight; self.half()"
    )
    task = _converted(tied, "self.b(self.a(x))", "dtype=torch.float16")
    assert [argument.name for argument in task.arguments] == ["x", "a_weight"]
    assert [op.operands for op in task.graph] == [("x", "a_weight"), ("linear", "a_weight")]


@pytest.mark.parametrize("result", ["x.float() + 1", "x.to(torch.float32) + 1", "x.type(torch.float32) + 1"])
def test_conversions_in_forward_leave_no_assertions_in_the_graph(result: str) -> None:
    task = _converted("pass", result, "dtype=torch.bfloat16")
    assert [op.target for op in task.graph] == ["aten.to.dtype", "aten.add.Tensor"]


@pytest.mark.parametrize(
    ("constructor", "result", "options"),
    [
        ("self.cuda()", "x.cuda() + 1", "device='cuda'"),
        ("self.to('cuda:0')", "x.to('cuda') + 1", "device=torch.device('cuda')"),
        ("self.one = torch.ones(128, device='cuda')", "x + self.one", "device='cuda:0'"),
    ],
)
def test_a_gpu_that_is_asked_for_is_not_needed(constructor: str, result: str, options: str) -> None:
    assert _converted(constructor, result, options).outputs == (TensorSpec((64, 128)),)


def test_numbers_of_tensors_in_constructors_are_known() -> None:
    task = _converted("self.slope = torch.tensor(0.5).item()", "x * self.slope", "dtype=torch.float32")
    assert task.graph[0].attribute("other") == 0.5
