"""Print every prompt of the LLM roles for a task, with its tokens, as a search would send them.

    python benchmarks/show_prompts.py TASK.py [--kernel A.cu --kernel B.cu --kernel C.cu] [--prompt NAME] [--out FOLDER]

Kernels are profiled first, not verified: the first is the one that children start from, the second the other parent of
a crossing, further ones are relatives that were tried before.  Without ``--kernel`` they are the expert's.  A kernel's
strategy is in its comments, ``// move: block-size(threads=256)  # reason``, one to a line.  No model is asked.

The table has the tokens of each prompt, estimated as in a run.  ``--prompt`` prints the text of one prompt, ``--out``
writes all of them into a folder; ``--evaluations FILE`` keeps the evaluations for the next time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from cupilot import Settings
from cupilot.agents import LlmAgents
from cupilot.contracts import Brief, Device, Reply, Request
from cupilot.errors import ModelError
from cupilot.evaluation.profiling import Profiler
from cupilot.expert import Expert
from cupilot.gpu.spec import GpuSpec
from cupilot.languages import read_kernel
from cupilot.llm import estimate_tokens
from cupilot.records import Evaluation, Failure, Individual, Kernel, Strategy, Task, from_plain, to_plain
from cupilot.runs import Observer, open_device
from cupilot.runs.pool import shipped_records
from cupilot.strategies import load_deck, parse
from cupilot.tasks import load_task

MARK = "// move: "
TIMEOUT_S = 300.0
POPULATION, GENERATIONS, ELITE, REPAIRED = 4, 3, 2, 3
"""The run that tokens are counted for."""
STARTS = 2  # of the expert's strategies, beside its plain kernel


@dataclass(frozen=True)
class Written:
    """A kernel and the strategy that it was written for."""

    kernel: Kernel
    strategy: Strategy


class Listening:
    """A model that keeps what it was asked and answers nothing."""

    name = "listening"

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        raise ModelError("no model is asked here")


def from_files(paths: Sequence[str]) -> list[Written]:
    """Kernels of files, with the moves in their comments."""
    found = []
    for path in paths:
        kernel = read_kernel(Path(path))
        lines = [line.removeprefix(MARK) for line in kernel.source.splitlines() if line.startswith(MARK)]
        found.append(Written(kernel, parse("\n".join(lines), load_deck(), invent=True)))
    return found


def from_expert(task: Task, spec: GpuSpec) -> list[Written]:
    """The expert's first strategies, and its plain kernel as what was tried."""
    expert, brief = Expert(), Brief(task, spec)
    written = []
    for strategy in (*expert.initialize(brief, STARTS, Random(1)), Strategy()):
        kernel = expert.translate(brief, strategy)
        if isinstance(kernel, Kernel):
            written.append(Written(kernel, strategy))
    return written


def profiled(profiler: Profiler, task: Task, device: Device, kernel: Kernel) -> Evaluation:
    """The kernel's evaluation as far as a profile tells: what it did wrong in the blocks that ran is its failure."""
    found = profiler(device, kernel)
    if isinstance(found, Failure):
        return Evaluation(kernel.digest, task.name, device.name, found)
    timing = found.timing if found.finding is None else None
    return Evaluation(kernel.digest, task.name, device.name, found.finding, timing, profile=found.profile)


def individuals(task: Task, device: Device, written: Sequence[Written], kept: Path | None) -> list[Individual]:
    """Each kernel with what is known of it, from ``kept`` where it is there."""
    if kept is not None and kept.is_file():
        return [from_plain(Individual, one, "kept") for one in json.loads(kept.read_text())]
    profiler = Profiler(task, timeout_s=TIMEOUT_S)
    found = [
        Individual(number, 0, "initial", one.strategy, one.kernel, profiled(profiler, task, device, one.kernel))
        for number, one in enumerate(written, start=1)
    ]
    if kept is not None:
        kept.write_text(json.dumps([to_plain(one) for one in found]))
    return found


def asked(task: Task, spec: GpuSpec, known: Sequence[Individual]) -> list[tuple[str, Request]]:
    """Every prompt with its name, for a run that knows these individuals."""
    model = Listening()
    agents, rng = LlmAgents(model), Random(1)
    parents, tried = tuple(known[:2]), tuple(known[2:])
    first = parents[0]
    similar = shipped_records(task, first.evaluation)
    guidance = agents.foresee(task, first.evaluation, spec, first.kernel)
    whole = Brief(task, spec, guidance, parents, tried, similar)
    alone = replace(whole, parents=parents[:1])
    failed = next((one for one in known if one.evaluation.failure is not None), None)
    slower = max(parents, key=lambda one: one.time_s or 0.0)
    child = parents[-1].strategy
    prompts = ["prophet_place"]

    def took(name: str) -> None:
        prompts.extend([name] * (len(model.requests) - len(prompts)))

    agents.initialize(alone, 4, rng)
    took("manager_initialize")
    agents.cross(replace(whole, similar=()), rng)
    took("manager_cross")
    agents.cross(replace(alone, similar=()), rng)
    took("manager_mutate")
    agents.translate(replace(alone, similar=()), child)
    took("translator_write")
    agents.translate(replace(whole, similar=()), child)
    took("translator_write, crossing")
    agents.revise(alone, slower.kernel, slower.strategy, slower.evaluation)
    took("revisor_repair, slower")
    if failed is not None:
        agents.revise(alone, failed.kernel, failed.strategy, failed.evaluation)
        took("revisor_repair, failed")
    return list(zip(prompts, model.requests, strict=True))


def tokens_per_candidate(sizes: dict[str, int]) -> float:
    """Input tokens per evaluated candidate in a run without tools, by these sizes.

    The run has a plain kernel that was given, a first population, and children of which half are crossings; the Prophet
    is asked for each generation, and one of ``REPAIRED`` kernels is repaired, which is one more candidate.
    """
    children = GENERATIONS * (POPULATION - ELITE)
    written = POPULATION + children
    repairs = written / REPAIRED
    breeding = (sizes["manager_cross"] + sizes["manager_mutate"]) / 2
    writing = (sizes["translator_write, crossing"] + sizes["translator_write"]) / 2
    total = (
        (GENERATIONS + 1) * sizes["prophet_place"] + sizes["manager_initialize"]
        + POPULATION * sizes["translator_write"] + children * (breeding + writing)
        + repairs * sizes["revisor_repair, slower"]
    )  # fmt: skip
    return total / (1 + written + repairs)


def text_of(request: Request) -> str:
    return "\n".join(f"=== {message.role}\n{message.text}" for message in request.messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", metavar="TASK.py")
    parser.add_argument("--kernel", action="append", default=[], metavar="FILE")
    parser.add_argument("--device", default="virtual:a100-80gb")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--evaluations", type=Path, metavar="FILE")
    parser.add_argument("--prompt", metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    task = load_task(Path(options.task), options.precision)
    device = open_device(options.device, Settings(), Observer())
    written = from_files(options.kernel) if options.kernel else from_expert(task, device.spec)
    known = individuals(task, device, written, options.evaluations)
    sizes: dict[str, int] = {}
    for name, request in asked(task, device.spec, known):
        text = text_of(request)
        sizes[name] = sum(estimate_tokens(message.text) for message in request.messages)
        print(f"{name:28} {sizes[name]:6} tokens")
        if options.prompt is not None and name == options.prompt:
            print(text)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{name.replace(', ', '-')}.md").write_text(text, encoding="utf-8")
    print(f"{'per evaluated candidate':28} {tokens_per_candidate(sizes):6.0f} tokens")


if __name__ == "__main__":
    main()
