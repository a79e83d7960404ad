"""Tools of a dialogue that find every kernel right and keep what they are called with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cupilot.contracts import ToolAnswer, ToolSpec
from cupilot.records import Kernel, ToolBudget, ToolUse, Turn

USE_S = 2.0


@dataclass
class ToyTools:
    """``start`` is what the dialogue begins with; the best is what was checked last, or else given last."""

    specs: tuple[ToolSpec, ...]
    start: Kernel = field(default_factory=lambda: Kernel(""))
    budget: ToolBudget = field(default_factory=ToolBudget)
    given: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    kept: list[Turn] = field(default_factory=list)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(self.kept)

    def record(self, turn: Turn) -> None:
        self.kept.append(turn)

    def best(self) -> Kernel | None:
        return Kernel((self.checked or self.given)[-1]) if self.given else None

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        self.called.append(name)
        if code := arguments.get("code"):
            self.given.append(code)
        if name == "give_up":
            return ToolAnswer("", ToolUse(name, "no"), given_up=str(arguments.get("reason")))
        kernel = Kernel(self.given[-1]) if self.given else self.start
        if name == "check":
            self.checked.append(kernel.source)
        use = ToolUse(name, "fine", kernel.digest, USE_S)
        return ToolAnswer(f"{name} says fine", use, submitted=kernel if name == "submit" else None)
