"""A package for pip: the kernel as an operator of ``torch.library``, which has a CPU version, the reference."""

from __future__ import annotations

from collections.abc import Mapping

from cupilot.export.subject import Subject
from cupilot.export.writing import rendered

HELP = "a package with the kernel as a torch.library operator"


def files(subject: Subject) -> Mapping[str, str]:
    package = f"{subject.name}_kernel"
    return {
        "README.md": rendered("library/README.md", subject, package=package),
        "pyproject.toml": rendered("library/pyproject.toml", subject, package=package),
        f"{package}/__init__.py": rendered("library/init.py", subject, package=package),
        f"{package}/operator.py": rendered("library/operator.py", subject, package=package),
        f"{package}/module.py": rendered("library/module.py", subject, package=package),
        f"{package}/reference.py": subject.task.source,
        f"{package}/kernel.cu": subject.source,
        f"{package}/py.typed": "",
        f"tests/test_{subject.name}.py": rendered("library/test.py", subject, package=package),
    }
