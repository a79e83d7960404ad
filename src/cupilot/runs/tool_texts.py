"""What tools answer about a kernel, as text for a model, and the same in a line for the record."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.contracts import Device
from cupilot.errors import DataError
from cupilot.evaluation.launch_text import profile_lines
from cupilot.evaluation.profiling import profiled
from cupilot.gpu import GpuSpec, occupancy
from cupilot.numbers import duration, percent, ratio
from cupilot.records import Evaluation, Failure, Individual, Kernel, Resources, Strategy, Task
from cupilot.records.request import ONLY_BUILT
from cupilot.report.costs import facts, part_rows
from cupilot.strategies import Deck
from cupilot.text import first_lines, one_line
from cupilot.toolchain.names import short_name

LOG_LINES, FINDINGS = 40, 6
OF_HEADER = "cupilot::"
BLOCK_SIZES = (128, 256, 512, 1024)


@dataclass(frozen=True)
class ToolTexts:
    """Texts about kernels of one task on one device, which is asked for modelled times only."""

    task: Task
    device: Device
    deck: Deck

    @staticmethod
    def only_built(found: Evaluation) -> bool:
        return found.failure is not None and found.failure.kind == ONLY_BUILT

    def answer(self, name: str, kernel: Kernel, found: Evaluation, parent: Individual | None) -> tuple[str, str]:
        """The text, and its outcome in a line."""
        if name == "compile":
            return self._compiled(found)
        if found.failure is not None and (name == "check" or found.profile is None):
            return failure_text(found.failure), f"{found.failure.kind}: {one_line(found.failure.message, 120)}"
        if name == "check":
            return self._right(found, parent)
        if name == "profile":
            return self._profile(kernel, found)
        return self._compared(kernel, found, parent)

    # --- compile ---------------------------------------------------------------------------

    def _compiled(self, found: Evaluation) -> tuple[str, str]:
        if not self.only_built(found):
            assert found.failure is not None
            return failure_text(found.failure), f"{found.failure.kind}: {one_line(found.failure.message, 120)}"
        spec = self.device.spec
        # not those of the header that the kernel includes
        own = [(short_name(name), resources) for name, resources in found.resources]
        own = [(name, resources) for name, resources in own if not name.startswith(OF_HEADER)]
        lines = [_resources(name, resources, spec) for name, resources in own]
        spilled = max((resources.spill_bytes for _, resources in own), default=0)
        most = max((resources.registers for _, resources in own), default=0)
        outcome = f"compiles; {most} registers" + (f", {spilled} bytes spilled" if spilled else "")
        return "\n".join(("It compiles (not run yet).", *lines)), outcome

    # --- check -----------------------------------------------------------------------------

    def _right(self, found: Evaluation, parent: Individual | None) -> tuple[str, str]:
        timing = found.timing
        if timing is None:
            return f"RIGHT: {_compared_inputs(found)}. It was not timed.", "right, not timed"
        spread = f" ± {percent(timing.uncertainty)}" if timing.uncertainty else ""
        lines = [
            f"RIGHT: {_compared_inputs(found)}.",
            f"time {duration(timing.time_s)}{spread} ({timing.source}), limit {timing.limit or 'not known'}",
        ]
        if found.speedup is not None:
            lines.append(f"{ratio(found.speedup)} PyTorch ({found.standing})")
        if parent is not None and parent.time_s is not None:
            lines.append(_beside_parent(timing.time_s, parent.time_s))
        return "\n".join(lines), f"right, {duration(timing.time_s)} ({timing.source})"

    # --- profile and compare ---------------------------------------------------------------

    def _profile(self, kernel: Kernel, found: Evaluation) -> tuple[str, str]:
        if found.profile is None:
            return "There is no profile of this kernel.", "no profile"
        seen = profiled(self.device, self.task, found.profile)
        at, time = seen.standing, duration(seen.timing.time_s)
        where = (
            f"{ratio(at.headroom)} the attainable limit of {duration(at.bound_s)}"
            if at.headroom >= 1
            else "at the limit"
        )
        lines = [f"whole call: {time} ({seen.timing.source}), held back by {at.limit}; {where}"]
        text = "\n".join((*lines, *profile_lines(seen.view(self.device.spec, kernel), self.task)))
        if found.failure is not None:
            text = f"{failure_text(found.failure)}\n\n{text}"
        return text, f"{duration(seen.timing.time_s)}, limit {seen.standing.limit}"

    def _compared(self, kernel: Kernel, found: Evaluation, parent: Individual | None) -> tuple[str, str]:
        if parent is None or parent.time_s is None or parent.evaluation.profile is None:
            return "There is no parent with a time to compare with.", "no parent"
        if found.failure is not None or found.timing is None:
            why = "it was not timed" if found.failure is None else failure_text(found.failure)
            return f"There is nothing to compare: {why}", "nothing to compare"
        child = Individual(-1, 0, "tool", Strategy(), kernel, found)
        verdict = _beside_parent(found.timing.time_s, parent.time_s)
        lines = [verdict, "part of the time: parent | yours"]
        for row in part_rows(parent, child):
            lines.append(f"  {row.words}: {duration(row.before_s)} | {duration(row.after_s)}")
        lines.append("counter: parent | yours")
        spec = self.device.spec
        lines += [f"  {fact.name}: {fact.before or '-'} | {fact.after or '-'}" for fact in facts(parent, child, spec)]
        # the report's numbers are set for a page
        return "\n".join(lines).replace("\N{NARROW NO-BREAK SPACE}", " "), verdict

    # --- card ------------------------------------------------------------------------------

    def card(self, name: str) -> str:
        """A card in full, or which cards are meant."""
        try:
            card = self.deck.card(name.strip())
        except DataError as error:
            return f"{error}"
        lines = [f"{card.name}: {card.title}", card.text.strip()]
        for parameter in card.parameters:
            choices = " | ".join(map(str, parameter.choices))
            lines.append(f"parameter {parameter.name} = {choices} (default {parameter.default}): {parameter.text}")
        for title, names in (("relieves", card.relieves), ("needs", card.needs), ("not with", card.excludes)):
            if names:
                lines.append(f"{title}: {', '.join(names)}")
        return "\n".join(lines)


def failure_text(failure: Failure) -> str:
    """Why a kernel failed, with what the compiler or the checks said."""
    lines = [f"FAILED at {failure.stage} ({failure.kind}): {one_line(failure.message)}"]
    findings = [str(finding) for finding in failure.findings[:FINDINGS]]
    if len(findings) > 1:
        lines += findings
    if failure.log.strip():
        lines.append(first_lines(failure.log, LOG_LINES))
    return "\n".join(lines)


def _resources(name: str, resources: Resources, spec: GpuSpec) -> str:
    spills = f"{resources.spill_bytes} BYTES SPILLED" if resources.spill_bytes else "no spills"
    held = ((size, occupancy(spec, size, resources, 0)) for size in BLOCK_SIZES)
    sizes = [f"{percent(o.fraction)} at {size} threads ({o.limit})" for size, o in held if o.blocks_per_sm]
    return (
        f"{name}: {resources.registers} registers, {resources.static_shared_bytes} bytes of static shared memory, "
        f"{spills}; occupancy without dynamic shared memory: {', '.join(sizes) or 'no block of 128 threads fits'}"
    )


def _compared_inputs(found: Evaluation) -> str:
    strain = max((check.error / check.allowed for check in found.checks if check.allowed), default=0.0)
    return f"{len(found.checks)} comparisons, the largest error is {strain:.2g} of what is allowed"


def _beside_parent(time_s: float, parent_s: float) -> str:
    factor = parent_s / time_s
    if abs(factor - 1) < 0.005:
        return f"as fast as its parent ({duration(parent_s)})"
    words = f"{ratio(factor)} as fast as its parent" if factor > 1 else f"{ratio(1 / factor)} slower than its parent"
    return f"{words} ({duration(parent_s)} to {duration(time_s)})"
