"""The tools of who writes a kernel: compile, check, profile, card, compare, submit and give_up.

One implementation for models that call tools, for dialogues in text, and for coding agents over MCP.  Evaluations are
those of the run: the same confined processes, and a kernel that was checked is not evaluated again when it is
submitted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from cupilot.agents.replies import REPORT, ObservedMove
from cupilot.agents.reply_parsing import parse_kernel, parse_report
from cupilot.contracts import ToolAnswer, ToolSpec
from cupilot.errors import CupilotError
from cupilot.llm.extract import unfenced
from cupilot.llm.schema import schema_of
from cupilot.records import Evaluation, Failure, Individual, Kernel, ToolBudget, ToolUse, Turn
from cupilot.records.kernel import CUDA
from cupilot.runs.tool_log import ToolRecord, tool_key
from cupilot.runs.tool_texts import ToolTexts
from cupilot.text import one_line

OUTCOME_CHARACTERS = 160
CODE = {"type": "string", "description": "the complete file; leave it out to use the one you gave last"}
MOVES = {"type": "array", "description": REPORT, "items": json.loads(schema_of(ObservedMove))}
KEPT = "The kernel was received: call `submit` again without `code`."
NO_KERNEL = "There is no kernel yet: give the complete file as `code`."


def _spec(tool: str, description: str, /, **properties: Mapping[str, Any]) -> ToolSpec:
    required = [key for key in properties if key not in ("code", "notes", "moves")]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(tool, description, json.dumps(schema))


SPECS = (
    _spec(
        "compile", "Compile: errors with their lines, or registers, spills, shared memory and occupancy. Cheap.",
        code=CODE,
    ),
    _spec(
        "check",
        "Compile, run on many inputs and shapes against a float64 reference with every memory access checked, and time"
        " it: findings with line, block and thread, the first wrong elements, or the time and the speedup.",
        code=CODE,
    ),
    _spec(
        "profile",
        "Where the time goes: each launch with its limit, occupancy, share of each unit's peak, memory traffic and"
        " hottest lines.",
        code=CODE,
    ),
    _spec("compare", "Your kernel beside its parent: times, parts of the time and counters.", code=CODE),
    _spec(
        "card", "The full text of a card: what the move does, its parameters, what it needs and excludes.",
        name={"type": "string", "description": "the card's name"},
    ),
    _spec(
        "submit", "Hand in the kernel and end the work.",
        code=CODE, notes={"type": "string", "description": "what was done, in a sentence or two"}, moves=MOVES,
    ),
    _spec(
        "give_up", "End the work without a kernel, when the strategy cannot work here.",
        reason={"type": "string", "description": "why, in a sentence"},
    ),
)  # fmt: skip
NAMES = tuple(spec.name for spec in SPECS)


class Evaluate(Protocol):
    """The run's evaluations; ``wait_s`` bounds the wait, after which it raises `TimeoutError`."""

    def __call__(self, kernel: Kernel, *, only_build: bool = False, wait_s: float | None = None) -> Evaluation: ...


class Log(Protocol):
    def get(self, key: str) -> ToolRecord | None: ...

    def put(self, key: str, record: ToolRecord) -> ToolRecord: ...


@dataclass
class KernelTools:
    """The tools of one dialogue; see `cupilot.contracts.Tools`.

    ``start`` is the kernel that tools work on until the model gives one.  ``about`` is what answers depend on besides
    the kernel: the task, the device, and how it is judged.  A call may take ``wait_s``, and when the evaluations of
    the dialogue have taken the budget's ``device_s``, only what needs none is left.
    """

    evaluate: Evaluate
    texts: ToolTexts
    budget: ToolBudget
    start: Kernel | None = None
    parent: Individual | None = None
    language: str = CUDA
    log: Log | None = None
    about: tuple[str, ...] = ()
    wait_s: float = 900.0
    specs: tuple[ToolSpec, ...] = SPECS
    notice: Callable[[str], None] = lambda sentence: None

    _turns: list[Turn] = field(init=False, default_factory=list)
    _given: list[Kernel] = field(init=False, default_factory=list)
    _known: dict[str, ToolRecord] = field(init=False, default_factory=dict)  # the last verdict on a kernel
    _spent_s: float = field(init=False, default=0.0)
    _paid: set[str] = field(init=False, default_factory=set)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(self._turns)

    def record(self, turn: Turn) -> None:
        self._turns.append(turn)

    @property
    def current(self) -> Kernel | None:
        return self._given[-1] if self._given else self.start

    def best(self) -> Kernel | None:
        """The fastest that was checked and right; or else the last that is not known to fail; or else the last."""
        timed = [(record.time_s, n) for n, kernel in enumerate(self._given)
                 if (record := self._known.get(kernel.digest)) is not None and record.time_s is not None]  # fmt: skip
        if timed:
            return self._given[min(timed)[1]]
        candidates = [kernel for kernel in self._given if not self._fails(kernel)] or self._given
        return candidates[-1] if candidates else None

    def _fails(self, kernel: Kernel) -> bool:
        record = self._known.get(kernel.digest)
        return record is not None and record.failed

    # --- calls -----------------------------------------------------------------------------

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        strange = self._wrong(name, arguments)
        if strange:
            return self._refused(name, strange)
        if name == "card":
            return self._card(str(arguments["name"]))
        if name == "give_up":
            reason = one_line(str(arguments["reason"])) or "the model gave no reason"
            return ToolAnswer("", ToolUse(name, reason[:OUTCOME_CHARACTERS]), given_up=reason)
        kernel = self._kernel(arguments)
        if not isinstance(kernel, Kernel):
            return self._refused(name, kernel)
        if name == "submit":
            return self._submit(kernel, str(arguments.get("notes") or ""), arguments.get("moves"))
        return self._about(name, kernel)

    def _wrong(self, name: str, arguments: Mapping[str, Any]) -> str:
        spec = next((spec for spec in self.specs if spec.name == name), None)
        if spec is None:
            return f"There is no tool {name!r}; there are {', '.join(spec.name for spec in self.specs)}."
        schema = json.loads(spec.parameters)
        for key in schema["required"]:
            if key not in arguments:
                return f"`{name}` needs the argument `{key}`."
        for key, value in arguments.items():
            if key not in schema["properties"]:
                return f"`{name}` has no argument `{key}`; it has {', '.join(schema['properties']) or 'none'}."
            text = schema["properties"][key].get("type") != "array"
            if text and not isinstance(value, str) and value is not None:
                return f"The argument `{key}` has to be a string."
        return ""

    def _refused(self, name: str, why: str) -> ToolAnswer:
        return ToolAnswer(why, ToolUse(name, f"not called: {one_line(why)}"[:OUTCOME_CHARACTERS]))

    def _kernel(self, arguments: Mapping[str, Any]) -> Kernel | str:
        """The kernel given with a call, which then is the current one; or what is wrong with it."""
        code = arguments.get("code") or ""
        if not code.strip():
            return self.current or NO_KERNEL
        kernel = parse_kernel(unfenced(code), "translate", self.language)
        if isinstance(kernel, Failure):
            return f"The code cannot be used: {kernel.message}"
        if self.current is None or kernel.digest != self.current.digest:
            self._given.append(kernel)
        return kernel

    def _submit(self, kernel: Kernel, notes: str, given: Any) -> ToolAnswer:
        moves = parse_report(given)
        if isinstance(moves, str):
            return self._refused("submit", f"{moves} {KEPT}")
        known = self._known.get(kernel.digest)
        verdict = "not checked before" if known is None else known.use.outcome
        outcome = f"{verdict}; {one_line(notes)}" if notes.strip() else verdict
        use = ToolUse("submit", outcome[:OUTCOME_CHARACTERS], kernel.digest)
        seen = tuple((one.move, one.quote) for one in moves)
        return ToolAnswer("", use, submitted=kernel, moves=seen, notes=notes)

    def _card(self, name: str) -> ToolAnswer:
        text = self.texts.card(name)
        return ToolAnswer(text, ToolUse("card", one_line(name)[:OUTCOME_CHARACTERS]))

    # --- tools that need the device --------------------------------------------------------

    def _about(self, name: str, kernel: Kernel) -> ToolAnswer:
        key = tool_key(name, kernel, self.about, "" if self.parent is None else self.parent.kernel.digest)
        record = self.log.get(key) if self.log is not None else None
        if record is None:
            if self._spent_s >= self.budget.device_s:
                return self._refused(name, "The device time for this kernel is spent: submit your best version.")
            record = self._carry_out(name, kernel)
            if self.log is not None:
                record = self.log.put(key, record)
        if name != "compile" or kernel.digest not in self._known or record.failed:
            self._known[kernel.digest] = record
        return ToolAnswer(record.text, self._charged(name, record.use))

    def _charged(self, name: str, use: ToolUse) -> ToolUse:
        """The use with its seconds, once for each evaluation: check, profile and compare share one."""
        paid = f"{use.kernel} {'build' if name == 'compile' else 'evaluation'}"
        if paid in self._paid:
            return replace(use, device_s=0.0)
        self._paid.add(paid)
        self._spent_s += use.device_s
        return use

    def _carry_out(self, name: str, kernel: Kernel) -> ToolRecord:
        try:
            found = self.evaluate(kernel, only_build=name == "compile", wait_s=self.wait_s)
            text, outcome = self.texts.answer(name, kernel, found, self.parent)
        except TimeoutError:
            return self._failed(name, kernel, f"`{name}` took longer than {self.wait_s:g} s and was given up")
        except CupilotError as error:
            return self._failed(name, kernel, f"`{name}` failed, which is not the kernel's fault: {error}")
        timing = found.timing if found.correct else None
        use = ToolUse(name, outcome[:OUTCOME_CHARACTERS], kernel.digest, found.elapsed_s)
        bad = found.failure is not None and not self.texts.only_built(found)
        return ToolRecord(text, use, None if timing is None else timing.time_s, bad)

    def _failed(self, name: str, kernel: Kernel, why: str) -> ToolRecord:
        self.notice(why)
        return ToolRecord(why, ToolUse(name, one_line(why)[:OUTCOME_CHARACTERS], kernel.digest))
