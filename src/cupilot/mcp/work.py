"""The tools' work: kernels on devices, and what came of it as answers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cupilot.contracts import REFERENCE, Device, Preparing, Step
from cupilot.devices.program import build_for, run_confined
from cupilot.devices.virtual import VirtualDevice
from cupilot.errors import DeviceError, UserError
from cupilot.evaluation import Evaluator
from cupilot.evaluation.profiling import Profiled, Profiler
from cupilot.gpu import GpuSpec, occupancy
from cupilot.gpu.roofline import Roof, roof_of
from cupilot.gpu.standing import Position, stand
from cupilot.gpu.standing import Standing as Place
from cupilot.gpu.timing import launch_parts, line_seconds
from cupilot.mcp import answers as say
from cupilot.mcp.question import Question
from cupilot.records import Evaluation, Failure, Kernel, Task, Timing, form_of
from cupilot.records import Launch as Counted
from cupilot.strategies import load_deck
from cupilot.tasks.load import task_from_source
from cupilot.toolchain.names import short_name
from cupilot.toolchain.program import ProgramSource

LAUNCHES, LINES, CARDS, FINDINGS, LOG_LINES = 3, 6, 8, 8, 20
OUTPUT_CHARACTERS = 4000
SMALLEST = 0.01
"""A smaller part of a time is not told."""
PROGRAM = "program"


Answer = say.EvaluateAnswer | say.ProfileAnswer | say.RooflineAnswer | say.RunAnswer
Tell = Callable[[str], None]


@dataclass
class Workplace:
    """Keeps devices and references between questions; ``seed`` is of all inputs, and nobody's to know."""

    open_device: Callable[[str], Device]
    cache: Path
    seed: int
    devices: dict[str, Device] = field(default_factory=dict)
    evaluators: dict[tuple[str, float], Evaluator] = field(default_factory=dict)
    tell: Tell = lambda text: None

    def answer(self, question: Question, tell: Tell) -> Answer:
        tools: dict[str, Callable[[Question, Device, Tell], Answer]] = {
            "evaluate": self._evaluate, "profile": self._profile, "roofline": self._roofline, "run": self._run,
        }  # fmt: skip
        if question.tool not in tools:
            raise UserError(f"unknown tool {question.tool!r}")
        if question.device not in self.devices:
            self.devices[question.device] = self.open_device(question.device)
        device = self.devices[question.device]
        if isinstance(device, Preparing) and (what := device.unprepared()):
            tell(what)
            device.prepare(lambda done, of: None)
        return tools[question.tool](question, device, tell)

    def _evaluate(self, asked: Question, device: Device, tell: Tell) -> say.EvaluateAnswer:
        task = _task(asked, tell)
        kernel, key = _kernel(asked), (device.name, asked.timeout_s)
        evaluator = self.evaluators.setdefault(
            key, Evaluator(device, self.seed, asked.timeout_s, watch=lambda step: self.tell(_words(step)))
        )
        self.tell = lambda text: tell(text) if text else None
        found = evaluator(task, kernel)
        passed = found.failure is None and found.timing is not None
        at = stand(task, found, device.spec) if passed else None
        worst = max((check.error / check.allowed for check in found.checks if check.allowed), default=0.0)
        return say.EvaluateAnswer(
            task.name, device.name, task.precision, found.correct, _problem(found.failure),
            _time(found.timing) if passed else None, _time(found.baseline), found.speedup if passed else None,
            len(found.checks), _number(worst), _standing(at), _cards(at, task.precision, device.spec),
        )  # fmt: skip

    def _profile(self, asked: Question, device: Device, tell: Tell) -> say.ProfileAnswer:
        task = _task(asked, tell)
        tell("compiling and running the kernel")
        kernel = _kernel(asked)
        found = Profiler(task, timeout_s=asked.timeout_s)(device, kernel)
        if isinstance(found, Failure):
            return say.ProfileAnswer(task.name, device.name, problem=_problem(found))
        longest = sorted(zip(found.profile.launches, found.times, strict=True), key=lambda pair: -pair[1].time_s)
        return say.ProfileAnswer(
            task.name, device.name, False, _problem(found.finding), _time(found.timing), _standing(found.standing),
            tuple(_launch(launch, timing, device.spec, kernel) for launch, timing in longest[:LAUNCHES]),
            len(longest), _cards(found.standing, task.precision, device.spec),
        )  # fmt: skip

    def _roofline(self, asked: Question, device: Device, tell: Tell) -> say.RooflineAnswer:
        task = _task(asked, tell)
        if not asked.kernel:
            at = stand(task, Evaluation("", task.name, device.name, precision=task.precision), device.spec)
            return _roofline_answer(task, device, at, roof_of(device.spec, task.precision))
        tell("compiling and running the kernel")
        found = Profiler(task, timeout_s=asked.timeout_s)(device, _kernel(asked))
        if isinstance(found, Failure):
            at = stand(task, Evaluation("", task.name, device.name, precision=task.precision), device.spec)
            return _roofline_answer(task, device, at, roof_of(device.spec, task.precision), problem=found)
        return _roofline_answer(task, device, found.standing, found.roof, found, found.finding)

    def _run(self, asked: Question, device: Device, tell: Tell) -> say.RunAnswer:
        if not isinstance(device, VirtualDevice):
            raise DeviceError(f"programs run on virtual GPUs, and {device.name} is none")
        tell("compiling the program")
        with tempfile.TemporaryDirectory(prefix="cupilot-") as folder:
            file = Path(folder) / f"{PROGRAM}.cu"
            file.write_text(asked.kernel, encoding="utf-8")
            built = build_for(device, ProgramSource((file,)), self.cache)
        if isinstance(built, Failure):
            return say.RunAnswer(device.name, 2, False, problem=_problem(built))
        tell("running the program")
        ended = run_confined(device, built, (PROGRAM, *asked.words), asked.timeout_s)
        problem = say.Problem("load", "refused", ended.refusal) if ended.refusal else None
        clean = not (problem or ended.findings or ended.timed_out or ended.status)
        return say.RunAnswer(
            device.name, ended.status, clean, ended.timed_out, _tail(ended.output), problem,
            ended.findings[:FINDINGS], len(ended.findings),
        )  # fmt: skip


# --- questions ---------------------------------------------------------------------------------


def _task(asked: Question, tell: Tell) -> Task:
    tell("loading the task")
    return task_from_source(asked.task, asked.task_name, asked.precision, where=asked.task_name)


def _kernel(asked: Question) -> Kernel:
    return Kernel(asked.kernel, asked.entry, asked.args, form_of(asked.kernel))


def _words(step: Step) -> str:
    """A step for people; nothing for those that take no time."""
    if step.stage == REFERENCE:
        return f"making references: {step.what}" if step.what else "checking the kernel"
    return f"{step.stage} the kernel" if step.stage in ("building", "checking", "timing") else ""


# --- answers -----------------------------------------------------------------------------------


def _number(value: float) -> float:
    """Four digits; more are not known."""
    return float(f"{value:.4g}")


def _time(timing: Timing | None) -> say.Time | None:
    if timing is None:
        return None
    return say.Time(
        _number(timing.time_s * 1e3), timing.source, timing.device, timing.uncertainty, timing.limit, timing.note
    )


def _problem(failure: Failure | None) -> say.Problem | None:
    if failure is None:
        return None
    lines = failure.log.strip().splitlines()
    log = "\n".join(lines[:LOG_LINES] + ["..."] * (len(lines) > LOG_LINES))
    message = " ".join(failure.message.split())
    return say.Problem(failure.stage, failure.kind, message, failure.findings[:FINDINGS], log)


def _standing(at: Place | None) -> say.Standing | None:
    if at is None:
        return None
    return say.Standing(at.zone, at.limit, _number(at.headroom), _number(at.bound_s * 1e3))


def _cards(at: Place | None, precision: str, spec: GpuSpec) -> tuple[say.Hint, ...]:
    """Cards for the limit: those for the zone first, and of those the ones that are for this limit above all."""
    if at is None:
        return ()
    fitting = [
        card
        for card in load_deck().values()
        if at.limit in card.relieves
        and card.min_capability <= spec.capability
        and (not card.precisions or precision in card.precisions)
    ]
    fitting.sort(key=lambda card: (at.zone not in card.zones, card.relieves.index(at.limit)))
    return tuple(say.Hint(card.name, card.title) for card in fitting[:CARDS])


def _launch(launch: Counted, timing: Timing, spec: GpuSpec, kernel: Kernel) -> say.Launch:
    held = occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes)
    shares = sorted(((name, time_s / timing.time_s) for name, time_s in timing.breakdown), key=lambda part: -part[1])
    return say.Launch(
        short_name(launch.kernel), launch.grid, launch.block, _number(timing.time_s * 1e3), timing.limit,
        launch.resources.registers, launch.resources.static_shared_bytes + launch.dynamic_shared_bytes,
        launch.resources.spill_bytes, _number(held.fraction), held.limit, _number(launch.active_lanes),
        tuple(say.Part(name, _number(share)) for name, share in shares if share >= SMALLEST),
        _hottest(launch, spec, kernel.source.split("\n")),
    )  # fmt: skip


def _hottest(launch: Counted, spec: GpuSpec, text: Sequence[str]) -> tuple[say.HotLine, ...]:
    costs = {cost.line: cost for cost in launch.lines}
    instructions = sum(cost.warp_instructions for cost in launch.lines) or 1.0
    sectors = sum(cost.global_sectors for cost in launch.lines) or 1.0
    total_s = sum(launch_parts(launch, spec).values()) or 1.0
    lines = [(line, time_s) for line, time_s in line_seconds(launch, spec) if 1 <= line <= len(text)]
    return tuple(
        say.HotLine(
            line, text[line - 1].strip()[:120], _number(time_s / total_s),
            _number(costs[line].warp_instructions / instructions), _number(costs[line].global_sectors / sectors),
        )
        for line, time_s in lines[:LINES]
    )  # fmt: skip


def _roofline_answer(
    task: Task, device: Device, at: Place, roof: Roof, found: Profiled | None = None, problem: Failure | None = None
) -> say.RooflineAnswer:
    ceilings = say.Ceilings(
        roof.core_flop_per_s, roof.tensor_flop_per_s, roof.l1_bytes_per_s, roof.l2_bytes_per_s, roof.dram_bytes_per_s,
        _number(roof.ridge_low),
    )  # fmt: skip
    return say.RooflineAnswer(
        task.name, device.name, roof.precision, ceilings, at.task_zone, _number(at.intensity), at.bound.bytes,
        at.bound.flop, _number(at.bound_s * 1e3), _problem(problem), _time(found.timing) if found else None,
        _standing(at) if found else None, tuple(map(_dot, found.places)) if found else (),
    )  # fmt: skip


def _dot(place: Position) -> say.Dot:
    dram = place.levels[-1]
    intensity = None if dram.intensity is None else _number(dram.intensity)
    return say.Dot(
        place.label, place.zone, place.limit, _number(place.time_s * 1e3), _number(place.flop_per_s), intensity,
        _number(dram.share),
    )  # fmt: skip


def _tail(text: str) -> str:
    return text if len(text) <= OUTPUT_CHARACTERS else f"...{text[-OUTPUT_CHARACTERS:]}"
