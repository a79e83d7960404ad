"""The tools of who writes a kernel: what they answer, what they cost, and that nothing they meet is an exception."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cupilot.contracts import Device, ExecutorOptions
from cupilot.errors import MachineError
from cupilot.evaluation import Evaluator
from cupilot.evolution.budget import Spending
from cupilot.evolution.evaluation_cache import EvaluationCache
from cupilot.executors import open_executor
from cupilot.records import (
    Budget,
    Evaluation,
    EvaluationRequest,
    Failure,
    Individual,
    Kernel,
    Strategy,
    Task,
    TaskSource,
    Timing,
    ToolBudget,
)
from cupilot.records.request import ONLY_BUILT
from cupilot.runs.kernel_tools import NAMES, SPECS, KernelTools
from cupilot.runs.tool_log import ToolLog
from cupilot.runs.tool_texts import ToolTexts
from cupilot.strategies import load_deck
from cupilot.tasks import load_source
from cupilot.testing import ToolsContract
from cupilot.testing.samples import TASK

SCALAR = """\
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.f);
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
HEADER = "#include <torch/extension.h>\n"
PLAIN = HEADER + SCALAR
WRONG = PLAIN.replace("0.f", "1.f")
OUTSIDE = PLAIN.replace("if (i < n) y[i]", "if (i < n) y[i + 1]")
BROKEN = PLAIN.replace("fmaxf", "fmaxq")
ONE_BLOCK = PLAIN.replace("if (i < n) y", "for (; i < n; i += blockDim.x) y").replace("(n + 255) / 256, 256", "1, 256")
SOURCE = """\
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(64, 256)]
def get_init_inputs():
    return []
"""


class Counting:
    """Evaluations from a table by what the source contains."""

    def __init__(self, **times_s: float | None) -> None:
        self.times_s = times_s
        self.calls: list[str] = []
        self.error: Exception | None = None

    def __call__(self, kernel: Kernel, *, only_build: bool = False, wait_s: float | None = None) -> Evaluation:
        self.calls.append("build" if only_build else "evaluate")
        if self.error is not None:
            raise self.error
        verdict = Evaluation(kernel.digest, "relu", "sample", elapsed_s=10.0)
        if only_build:
            return replace(verdict, failure=Failure("build", ONLY_BUILT, "it compiles"))
        time_s = next((time_s for word, time_s in self.times_s.items() if word in kernel.source), 1e-3)
        if time_s is None:
            return replace(verdict, failure=Failure("verify", "wrong-result", "output 0 differs"))
        return replace(verdict, timing=Timing(time_s, "modelled", "sample", "dram"))


def code(word: str) -> dict[str, str]:
    return {"code": f"__global__ void k() {{}} torch::Tensor forward(torch::Tensor x) {{ return x; }} // {word}\n"}


@pytest.fixture
def evaluate() -> Counting:
    return Counting(fast=1e-4, slow=1e-2, wrong=None)


@pytest.fixture
def tools(evaluate: Counting, device: Device) -> KernelTools:
    return KernelTools(evaluate, ToolTexts(TASK, device, load_deck()), ToolBudget())


class TestContract(ToolsContract):
    """`tools` is the fixture above."""


def test_every_tool_has_a_schema_and_a_description() -> None:
    assert NAMES == ("compile", "check", "profile", "compare", "card", "submit", "give_up")
    for spec in SPECS:
        schema = json.loads(spec.parameters)
        assert schema["additionalProperties"] is False
        for name, value in schema["properties"].items():
            assert value["type"] == ("array" if name == "moves" else "string")
            assert value["description"]


def test_code_is_given_once_and_then_is_the_current_kernel(tools: KernelTools, evaluate: Counting) -> None:
    first = tools.call("compile", code("fast"))
    assert tools.call("check", {}).use.kernel == first.use.kernel
    submitted = tools.call("submit", {"notes": "wider"}).submitted
    assert submitted is not None
    assert submitted.source == code("fast")["code"]
    assert evaluate.calls == ["build", "evaluate"], "submitting evaluates nothing: who takes the kernel does"


def test_the_start_is_the_current_kernel_until_another_is_given(tools: KernelTools) -> None:
    assert tools.call("check", {}).text.startswith("There is no kernel yet")
    started = replace(tools, start=Kernel(code("slow")["code"]))
    assert "right, 10.0 ms" in started.call("check", {}).use.outcome
    assert started.best() is None, "the start is nobody's work"


def test_the_best_is_the_fastest_that_was_right_and_then_the_last_that_may_be(tools: KernelTools) -> None:
    tools.call("compile", code("unknown"))
    assert "unknown" in tools.best().source  # type: ignore[union-attr]
    tools.call("check", code("wrong"))
    assert "unknown" in tools.best().source  # type: ignore[union-attr]
    tools.call("check", code("fast"))
    tools.call("check", code("slow"))
    tools.call("compile", {})
    assert "fast" in tools.best().source  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("delete", {}, "There is no tool 'delete'; there are compile, check"),
        ("card", {}, "`card` needs the argument `name`"),
        ("check", {"moves": []}, "`check` has no argument `moves`"),
        ("submit", {**code("fast"), "moves": ["unroll"]}, "Entry 1 of `moves` has to be an object"),
        ("check", {"code": 3}, "The argument `code` has to be a string"),
        ("check", {"kernel": "x"}, "`check` has no argument `kernel`; it has code"),
        ("check", {"code": "hello"}, "The code cannot be used"),
        ("check", {"code": "x" * 250_000}, "100000 are allowed"),
        ("card", {"name": "vector-lod"}, "did you mean vector-load"),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_wrong(
    tools: KernelTools, evaluate: Counting, name: str, arguments: dict[str, Any], says: str
) -> None:
    answer = tools.call(name, arguments)
    assert says in answer.text
    assert answer.submitted is None
    assert evaluate.calls == []


def test_a_card_comes_in_full(tools: KernelTools) -> None:
    text = tools.call("card", {"name": "vector-load"}).text
    assert load_deck().card("vector-load").text.strip() in text
    assert "parameter " in text


def test_a_fenced_file_is_unpacked(tools: KernelTools) -> None:
    given = tools.call("submit", {"code": f"```cuda\n{code('fast')['code']}```"}).submitted
    assert given is not None
    assert given.source == code("fast")["code"]


def test_a_submission_has_what_its_writer_reports(tools: KernelTools) -> None:
    moves = [{"move": "unroll(factor=4)", "quote": "return x;"}, {"move": "no-such-move"}]
    answer = tools.call("submit", {**code("fast"), "moves": moves, "notes": "unrolled"})
    assert answer.moves == (("unroll(factor=4)", "return x;"), ("no-such-move", ""))
    assert answer.notes == "unrolled"
    assert answer.submitted is not None


def test_device_seconds_are_counted_once_for_each_evaluation_and_end_at_the_budget(
    evaluate: Counting, tools: KernelTools
) -> None:
    tools.budget = ToolBudget(device_s=25.0)
    seconds = [
        tools.call(name, given).use.device_s
        for name, given in (("compile", code("fast")), ("check", {}), ("profile", {}), ("check", code("slow")))
    ]
    assert seconds == [10.0, 10.0, 0.0, 10.0]
    answer = tools.call("check", code("other"))
    assert "device time for this kernel is spent" in answer.text
    assert evaluate.calls == ["build", "evaluate", "evaluate", "evaluate"]
    assert tools.call("submit", {}).submitted is not None, "handing in costs nothing"


@pytest.mark.parametrize("error", [TimeoutError(), MachineError("the disk is full")], ids=["time-out", "machine"])
def test_a_tool_that_fails_or_times_out_is_an_answer(tools: KernelTools, evaluate: Counting, error: Exception) -> None:
    evaluate.error = error
    answer = tools.call("check", code("fast"))
    assert "given up" in answer.text or "not the kernel's fault: the disk is full" in answer.text
    evaluate.error = None
    assert tools.call("submit", {}).submitted is not None


def test_answers_are_kept_and_given_again_without_the_device(
    tools: KernelTools, evaluate: Counting, tmp_path: Path
) -> None:
    path = tmp_path / "run.sqlite"
    log = ToolLog(path)
    first = replace(tools, log=log)
    answers = [first.call("check", code("fast")), first.call("check", code("wrong"))]
    log.close()
    before, evaluate.error = len(evaluate.calls), MachineError("nothing may be evaluated")
    for again in (ToolLog(path), ToolLog(tmp_path / "other.sqlite", earlier=path)):
        second = replace(tools, log=again)
        assert [second.call("check", code("fast")), second.call("check", code("wrong"))] == answers
        assert second.best() == first.best()
        other_task = replace(tools, log=again, about=("another task",))
        assert "not the kernel's fault" in other_task.call("check", code("fast")).text
        again.close()
    assert len(evaluate.calls) == before + 1, (
        "what failed once is kept too, so that a run that is repeated goes the same way"
    )


# --- on the virtual GPU ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def task() -> Task:
    return load_source(TaskSource(name="relu", source=SOURCE))


@pytest.fixture(scope="module")
def real(task: Task, device: Device, cache: Path) -> Callable[..., KernelTools]:
    evaluator = Evaluator(lambda name: device, slots=1, tasks=(task,))
    done: dict[tuple[str, bool], Evaluation] = {}

    def evaluate(kernel: Kernel, *, only_build: bool = False, wait_s: float | None = None) -> Evaluation:
        key = kernel.digest, only_build
        if key not in done:
            done[key] = evaluator(
                EvaluationRequest(
                    task=TaskSource.of(task), kernel=kernel, device=device.name, only_build=only_build
                )
            )  # fmt: skip
        return done[key]

    def opened(**more: object) -> KernelTools:
        return KernelTools(evaluate, ToolTexts(task, device, load_deck()), ToolBudget(), **more)  # type: ignore[arg-type]

    return opened


def test_compile_says_registers_and_occupancy_or_the_compilers_error(real: Callable[..., KernelTools]) -> None:
    tools = real()
    found = tools.call("compile", {"code": PLAIN})
    assert found.text.startswith("It compiles (not run yet).\nrelu: ")
    assert "100 % at 256 threads" in found.text
    assert "no spills" in found.text
    assert found.use.outcome.startswith("compiles; ")
    failed = tools.call("compile", {"code": BROKEN})
    assert "FAILED at build" in failed.text
    assert 'identifier "fmaxq" is undefined' in failed.text


def test_a_build_alone_is_never_a_correct_evaluation(real: Callable[..., KernelTools]) -> None:
    found = real().evaluate(Kernel(PLAIN), only_build=True)
    assert not found.correct
    assert found.timing is None
    assert [name for name, _ in found.resources]


def test_check_says_right_and_how_fast_or_what_is_wrong_where(real: Callable[..., KernelTools]) -> None:
    tools = real()
    right = tools.call("check", {"code": PLAIN})
    assert right.text.startswith("RIGHT: ")
    assert "(modelled), limit " in right.text
    wrong = tools.call("check", {"code": WRONG})
    assert "FAILED at verify (wrong-result): output 0 differs at " in wrong.text
    assert "first wrong elements: (0, " in wrong.text
    outside = tools.call("check", {"code": OUTSIDE})
    assert "out-of-bounds" in outside.text
    assert "line 4" in outside.text


def test_profile_has_the_launch_its_limit_and_hot_lines(real: Callable[..., KernelTools]) -> None:
    found = real().call("profile", {"code": PLAIN})
    for part in ("whole call: ", "relu: ", "grid 64", "block 256", "registers", "occupancy", "waves",
                 "where the time goes: ", "share of the peak rate: ", "global loads: ",
                 "y[i] = fmaxf(x[i], 0.f)"):  # fmt: skip
        assert part in found.text
    assert len(found.text) < 3_000


def test_compare_puts_parent_and_child_side_by_side(real: Callable[..., KernelTools]) -> None:
    evaluation = real().evaluate(Kernel(PLAIN))
    parent = Individual(0, 0, "plain", Strategy(), Kernel(PLAIN), evaluation)
    tools = real(parent=parent, start=Kernel(PLAIN))
    assert "as fast as its parent" in tools.call("compare", {}).text
    slower = tools.call("compare", {"code": ONE_BLOCK}).text
    assert "slower than its parent" in slower
    assert "blocks × threads, longest launch: 64 × 256 | 1 × 256" in slower
    assert "There is no parent" in real().call("compare", {"code": PLAIN}).text


def test_a_checked_kernel_is_not_evaluated_again_and_its_time_is_counted_once(
    task: Task, device: Device, cache: Path
) -> None:
    """The tools' evaluations are the run's own."""
    spending = Spending(Budget(), lambda: 0.0)
    executor = open_executor("local", ExecutorOptions(slots=1, cache=cache, tasks=(task,)))
    try:
        run = EvaluationCache(
            executor, lambda kernel: EvaluationRequest(task=TaskSource.of(task), kernel=kernel, device=device.name),
            spending,
        )  # fmt: skip
        tools = KernelTools(run, ToolTexts(task, device, load_deck()), ToolBudget())
        tools.call("check", {"code": PLAIN})
        kernel = tools.call("submit", {}).submitted
        assert kernel is not None
        before = spending.spent()["device_s"]
        assert run(kernel).correct
        assert spending.spent()["device_s"] == before > 0
    finally:
        executor.close()


def test_a_wait_that_is_too_long_ends_and_the_evaluation_goes_on(task: Task) -> None:
    release = threading.Event()

    class Slow:
        slots = 1
        busy = False

        def submit(self, request: EvaluationRequest):  # type: ignore[no-untyped-def]
            from cupilot.threads import DaemonThreads

            def work() -> Evaluation:
                release.wait()
                return Evaluation(request.kernel.digest, task.name, "sample", elapsed_s=3.0)

            return DaemonThreads(1).submit(work)

    spending = Spending(Budget(), lambda: 0.0)
    run = EvaluationCache(
        Slow(), lambda kernel: EvaluationRequest(task=TaskSource.of(task), kernel=kernel, device="x"), spending,  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(TimeoutError):
        run(Kernel("k"), wait_s=0.0)
    release.set()
    assert run(Kernel("k")).elapsed_s == 3.0
    assert spending.spent()["device_s"] == 3.0
