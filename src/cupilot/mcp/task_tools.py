"""The tools for writing a kernel for one task, without a run: for agents that their user talks to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cupilot.contracts import ToolSpec
from cupilot.evolution.budget import Spending
from cupilot.evolution.evaluation_cache import EvaluationCache
from cupilot.evolution.result import replace_file
from cupilot.records import Budget, EvaluationRequest, Individual, Kernel, Strategy, TaskSource, ToolBudget
from cupilot.runs.kernel_tools import KernelTools
from cupilot.runs.options import Settings
from cupilot.runs.session import Observer, open_session
from cupilot.runs.tool_texts import ToolTexts
from cupilot.strategies import load_deck
from cupilot.tasks import load_task


@dataclass
class TaskTools:
    """The tools for one task; a submission is judged and written to a file, and the next one may follow."""

    tools: KernelTools
    judge: Callable[[Kernel], str]

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in self.tools.specs if spec.name != "give_up")

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        answer = self.tools.call(name, arguments)
        return answer.text if answer.submitted is None else self.judge(answer.submitted)

    @classmethod
    @contextmanager
    def opened(
        cls, task_file: Path, device_name: str, parent: Kernel | None, out: Path, cache: Path, sandbox: str
    ) -> Iterator[TaskTools]:
        """Open the device and an executor; ``parent`` is evaluated first, to compare with."""
        task = load_task(task_file)
        with open_session(device_name, Settings(cache=cache, sandbox=sandbox), Observer(), (task,)) as session:
            device = session.device

            def request(kernel: Kernel) -> EvaluationRequest:
                return EvaluationRequest(task=TaskSource.of(task), kernel=kernel, device=device.name)

            evaluate = EvaluationCache(session.executor, request, Spending(Budget(), lambda: 0.0))
            first = None if parent is None else Individual(0, 0, "plain", Strategy(), parent, evaluate(parent))
            unlimited = ToolBudget(turns=1 << 30, tokens=1 << 60, device_s=float("inf"))
            tools = KernelTools(evaluate, ToolTexts(task, device, load_deck()), unlimited, parent, first)

            def judge(kernel: Kernel) -> str:
                verdict = tools.call("check", {"code": kernel.source}).text
                replace_file(out, kernel.source)
                return f"{verdict}\nwritten to {out}"

            yield cls(tools, judge)
