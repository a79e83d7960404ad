"""One KernelBench answer: the task's module, and a class ``ModelNew`` that inherits everything but ``forward``."""

from __future__ import annotations

from collections.abc import Mapping

from cupilot.export.subject import Subject
from cupilot.export.writing import rendered

HELP = "one KernelBench file with ModelNew"


def files(subject: Subject) -> Mapping[str, str]:
    return {f"{subject.name}_new.py": rendered("modelnew/answer.py", subject)}
