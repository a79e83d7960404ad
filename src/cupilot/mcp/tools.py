"""The tools: evaluate, profile and place kernels, run programs, and answer with records of `answers`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cupilot.contracts import REFERENCE, Device, Preparing, Step
from cupilot.devices.program import build_for, run_confined
from cupilot.devices.virtual import VirtualDevice
from cupilot.errors import DeviceError, UserError
from cupilot.evaluation import Evaluator
from cupilot.evaluation.launch_view import (
    LaunchView,
    MemoryRow,
    lane_texts,
    occupancy_text,
    time_parts,
    waiting_text,
)
from cupilot.evaluation.profiling import Profiled, Profiler
from cupilot.gpu import GpuSpec
from cupilot.gpu.roofline import Roof, roof_of
from cupilot.languages import make_kernel
from cupilot.mcp import answers
from cupilot.mcp.request import ToolRequest
from cupilot.records import Evaluation, EvaluationRequest, Failure, Guidance, Kernel, Scope, Task, TaskSource, Timing
from cupilot.records.verdict import bundle_sentence, mean_speedup, verdict_sentence
from cupilot.strategies import load_deck
from cupilot.strategies.choice import card_query, rank_cards
from cupilot.tasks import load_source, shaped_tasks
from cupilot.tasks.roofline_position import RooflinePoint, RooflinePosition, roofline_position
from cupilot.text import first_lines, one_line
from cupilot.toolchain.program import ProgramSource

LAUNCHES, LINES, CARDS, FINDINGS, LOG_LINES = 3, 6, 8, 8, 20
OUTPUT_CHARACTERS, LINE_CHARACTERS = 4000, 120
PROGRAM = "program"
Answer = answers.EvaluateAnswer | answers.ProfileAnswer | answers.RooflineAnswer | answers.RunAnswer
Progress = Callable[[str], None]


@dataclass
class Tools:
    """Keeps devices and references between requests; ``seed`` determines all inputs, and agents do not know it."""

    open_device: Callable[[str], Device]
    cache: Path
    seed: int
    devices: dict[str, Device] = field(default_factory=dict)
    progress: Progress = lambda text: None
    evaluator: Evaluator = field(init=False)

    def __post_init__(self) -> None:
        self.evaluator = Evaluator(self.devices.__getitem__, watch=lambda step: self.progress(_step_text(step)))

    def answer(self, request: ToolRequest, progress: Progress) -> Answer:
        tools: dict[str, Callable[[ToolRequest, Device, Progress], Answer]] = {
            "evaluate": self._evaluate, "profile": self._profile, "roofline": self._roofline, "run": self._run,
        }  # fmt: skip
        if request.tool not in tools:
            raise UserError(f"unknown tool {request.tool!r}")
        if request.device not in self.devices:
            self.devices[request.device] = self.open_device(request.device)
        device = self.devices[request.device]
        if isinstance(device, Preparing) and (needed := device.unprepared()):
            progress(needed)
            device.prepare(lambda done, of: None)
        return tools[request.tool](request, device, progress)

    def _evaluate(self, request: ToolRequest, device: Device, progress: Progress) -> answers.EvaluateAnswer:
        progress("loading the task")
        self.progress = lambda text: progress(text) if text else None
        sources = _sources(request)
        found = [self._evaluated(source, request, device) for source in sources]
        if len(found) == 1:
            return self._answer(load_source(sources[0]), found[0], device)
        failed = next((each.failure for each in found if each.failure is not None), None)
        speedup = mean_speedup(found)
        return answers.EvaluateAnswer(
            request.task_name, device.name, request.precision, failed is None, bundle_sentence(found),
            problem=_problem(failed), speedup=speedup and _number(speedup),
            compared=sum(len(each.checks) for each in found), worst_error=_number(max(map(_worst, found))),
            shapes=tuple(map(_shape, found)),
        )  # fmt: skip

    def _evaluated(self, source: TaskSource, request: ToolRequest, device: Device) -> Evaluation:
        return self.evaluator(
            EvaluationRequest(
                task=source, kernel=_kernel(request), device=device.name, seed=self.seed, timeout_s=request.timeout_s
            )
        )

    def _answer(self, task: Task, found: Evaluation, device: Device) -> answers.EvaluateAnswer:
        passed = found.failure is None and found.timing is not None
        at = roofline_position(task, found, device.spec) if passed else None
        return answers.EvaluateAnswer(
            task.name, device.name, task.precision, found.correct, verdict_sentence(found), _differences(found),
            _problem(found.failure),
            _time(found.timing) if passed else None, _time(found.baseline), found.speedup if passed else None,
            len(found.checks), _number(_worst(found)), _standing(at), _cards(at, task, device.spec, found.timing),
        )  # fmt: skip

    def _profile(self, request: ToolRequest, device: Device, progress: Progress) -> answers.ProfileAnswer:
        task = _task(request, progress)
        progress("compiling and running the kernel")
        kernel = _kernel(request)
        found = Profiler(task, timeout_s=request.timeout_s)(device, kernel)
        if isinstance(found, Failure):
            return answers.ProfileAnswer(task.name, device.name, problem=_problem(found))
        longest = found.view(device.spec, kernel).longest
        return answers.ProfileAnswer(
            task.name, device.name, False, _problem(found.finding), _time(found.timing), _standing(found.standing),
            tuple(_launch(view) for view in longest[:LAUNCHES]),
            len(longest), _cards(found.standing, task, device.spec, found.timing),
        )  # fmt: skip

    def _roofline(self, request: ToolRequest, device: Device, progress: Progress) -> answers.RooflineAnswer:
        task = _task(request, progress)
        if not request.kernel:
            at = roofline_position(task, Evaluation("", task.name, device.name, precision=task.precision), device.spec)
            return _roofline_answer(task, device, at, roof_of(device.spec, task.precision))
        progress("compiling and running the kernel")
        found = Profiler(task, timeout_s=request.timeout_s)(device, _kernel(request))
        if isinstance(found, Failure):
            at = roofline_position(task, Evaluation("", task.name, device.name, precision=task.precision), device.spec)
            return _roofline_answer(task, device, at, roof_of(device.spec, task.precision), problem=found)
        return _roofline_answer(task, device, found.standing, found.roof, found, found.finding)

    def _run(self, request: ToolRequest, device: Device, progress: Progress) -> answers.RunAnswer:
        if not isinstance(device, VirtualDevice):
            raise DeviceError(f"programs run only on virtual GPUs, and {device.name} is not one")
        progress("compiling the program")
        with tempfile.TemporaryDirectory(prefix="cupilot-") as folder:
            file = Path(folder) / f"{PROGRAM}.cu"
            file.write_text(request.kernel, encoding="utf-8")
            built = build_for(device, ProgramSource((file,)), self.cache)
        if isinstance(built, Failure):
            return answers.RunAnswer(device.name, 2, False, problem=_problem(built))
        progress("running the program")
        ended = run_confined(device, built, (PROGRAM, *request.words), request.timeout_s)
        problem = answers.Problem("load", "refused", ended.refusal) if ended.refusal else None
        clean = not (problem or ended.findings or ended.timed_out or ended.status)
        return answers.RunAnswer(
            device.name, ended.status, clean, ended.timed_out, _tail(ended.output), problem,
            ended.findings[:FINDINGS], len(ended.findings),
        )  # fmt: skip


# --- requests ----------------------------------------------------------------------------------


def _differences(found: Evaluation) -> tuple[str, ...]:
    scope = found.scope or Scope()
    return tuple(f"{each.what}: {each.evidence}" for each in (*scope.values, *scope.other_shapes))


def _sources(request: ToolRequest) -> tuple[TaskSource, ...]:
    """One task, or one for each of its shapes."""
    source = TaskSource(name=request.task_name, source=request.task, precision=request.precision)
    return shaped_tasks(source, request.task_name)


def _task(request: ToolRequest, progress: Progress) -> Task:
    """Of a task with several shapes the first."""
    progress("loading the task")
    return load_source(_sources(request)[0])


def _kernel(request: ToolRequest) -> Kernel:
    return make_kernel(request.kernel, request.entry, request.args)


def _step_text(step: Step) -> str:
    """A step as progress text; empty for steps that take no time."""
    if step.stage == REFERENCE:
        return f"making references: {step.what}" if step.what else "checking the kernel"
    return f"{step.stage} the kernel" if step.stage in ("building", "checking", "timing") else ""


# --- answers -----------------------------------------------------------------------------------


def _worst(found: Evaluation) -> float:
    return max((check.error / check.allowed for check in found.checks if check.allowed), default=0.0)


def _shape(found: Evaluation) -> answers.ShapeAnswer:
    times = [None if time is None else _number(time.time_s * 1e3) for time in (found.timing, found.baseline)]
    return answers.ShapeAnswer(found.task, verdict_sentence(found), *times)


def _number(value: float) -> float:
    """The number rounded to four significant digits."""
    return float(f"{value:.4g}")


def _time(timing: Timing | None) -> answers.TimeAnswer | None:
    if timing is None:
        return None
    return answers.TimeAnswer(
        _number(timing.time_s * 1e3), timing.source, timing.device, timing.uncertainty, timing.limit, timing.note
    )


def _problem(failure: Failure | None) -> answers.Problem | None:
    if failure is None:
        return None
    message, log = one_line(failure.message), first_lines(failure.log, LOG_LINES)
    return answers.Problem(failure.stage, failure.kind, message, failure.findings[:FINDINGS], log)


def _standing(at: RooflinePosition | None) -> answers.PositionAnswer | None:
    if at is None:
        return None
    return answers.PositionAnswer(at.zone, at.limit, _number(at.headroom), *_bounds(at))


def _bounds(at: RooflinePosition) -> tuple[float, float]:
    """The least time that is attainable, and that of the datasheet, in milliseconds."""
    return _number(at.least.time_s * 1e3), _number(at.least.datasheet.time_s * 1e3)


def _cards(
    at: RooflinePosition | None, task: Task, spec: GpuSpec, timing: Timing | None
) -> tuple[answers.CardHint, ...]:
    """The most promising cards, chosen as in the prompts of the search."""
    if at is None:
        return ()
    query = card_query(task, spec, Guidance(at.zone, at.limit, at.headroom, ""), timing)
    return tuple(answers.CardHint(card.name, card.title) for card in rank_cards(load_deck(), query)[:CARDS])


def _launch(view: LaunchView) -> answers.LaunchAnswer:
    launch, at = view.launch, view.residence
    return answers.LaunchAnswer(
        view.label, launch.grid, launch.block, _number(view.timing.time_s * 1e3), _number(view.share),
        view.timing.limit, launch.resources.registers,
        launch.resources.static_shared_bytes + launch.dynamic_shared_bytes, launch.resources.spill_bytes,
        _number(at.occupancy.fraction), at.occupancy.limit, _number(at.waves), occupancy_text(view),
        _number(launch.active_lanes),
        tuple(answers.TimeShare(name, _number(share)) for name, share in time_parts(view.timing)),
        tuple(answers.UnitShare(unit.name, _number(unit.share)) for unit in view.units),
        tuple(_memory(row) for row in view.memory), (*lane_texts(launch), *filter(None, (waiting_text(launch),))),
        tuple(
            answers.HotLineAnswer(
                hot.line, text[:LINE_CHARACTERS], _number(hot.cost), _number(hot.instructions), _number(hot.sectors)
            )
            for hot, text in view.lines[:LINES]
        ),
    )  # fmt: skip


def _memory(row: MemoryRow) -> answers.MemoryAnswer:
    per, hit = row.sectors_per_request, row.hit_rate
    return answers.MemoryAnswer(
        row.name, row.bytes, None if per is None else _number(per), None if hit is None else _number(hit)
    )


def _roofline_answer(
    task: Task,
    device: Device,
    at: RooflinePosition,
    roof: Roof,
    found: Profiled | None = None,
    problem: Failure | None = None,
) -> answers.RooflineAnswer:
    ceilings = answers.Ceilings(
        roof.core_flop_per_s, roof.tensor_flop_per_s, roof.l1_bytes_per_s, roof.l2_bytes_per_s, roof.dram_bytes_per_s,
        _number(roof.ridge_low),
    )  # fmt: skip
    bound = at.least.attainable
    return answers.RooflineAnswer(
        task.name, device.name, roof.precision, ceilings, at.task_zone, _number(at.intensity), bound.bytes, bound.flop,
        *_bounds(at), _problem(problem), _time(found.timing) if found else None,
        _standing(at) if found else None, tuple(map(_dot, found.places)) if found else (),
    )  # fmt: skip


def _dot(place: RooflinePoint) -> answers.RooflineDot:
    dram = place.levels[-1]
    intensity = None if dram.intensity is None else _number(dram.intensity)
    return answers.RooflineDot(
        place.label, place.zone, place.limit, _number(place.time_s * 1e3), _number(place.flop_per_s), intensity,
        _number(dram.share),
    )  # fmt: skip


def _tail(text: str) -> str:
    return text if len(text) <= OUTPUT_CHARACTERS else f"...{text[-OUTPUT_CHARACTERS:]}"
