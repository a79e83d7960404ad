"""The proof of an evaluation: digests, seed and tool versions, by which ``cupilot verify`` can repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version

from cupilot.contracts import Built
from cupilot.records import Check, Proof, Task

TOOLS = ("cupilot", "torch", "numpy", "llvmlite", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm")
"""What results depend on."""


def make_proof(task: Task, built: Built, checks: Sequence[Check], seed: int, baseline: str) -> Proof | None:
    """None where nothing was compared."""
    compared = [check for check in checks if check.allowed > 0 or (check.error == 0 and "integers" in check.note)]
    if not compared:
        return None
    return Proof(
        source=digest(built.kernel.source), task=digest(task.source), tools=tool_versions(), seed=seed,
        checks=len(compared), worst=max(map(_share, compared)), image=digest(built.ptx), baseline=baseline,
    )  # fmt: skip


def _share(check: Check) -> float:
    return min(max(check.error / check.allowed, 0.0), 1.0) if check.allowed else 0.0


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def tool_versions() -> tuple[tuple[str, str], ...]:
    found = []
    for name in TOOLS:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            found.append((name, "not installed as a package"))
    return tuple(found)


def differences(before: Proof, now: Proof) -> tuple[str, ...]:
    """What is not as it was: other tools, another image."""
    then = dict(before.tools)
    found = [
        f"{name} is {value}, was {then.get(name, 'absent')}" for name, value in now.tools if then.get(name) != value
    ]
    if before.image != now.image:
        found.append("the compiled image differs")
    return tuple(found)
