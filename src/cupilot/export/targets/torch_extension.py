"""A folder that builds with plain PyTorch: ``pip install .``, or ``python setup.py build_ext --inplace``."""

from __future__ import annotations

from collections.abc import Mapping

from cupilot.export.subject import Subject
from cupilot.export.writing import rendered

HELP = "a folder that builds with plain PyTorch"


def files(subject: Subject) -> Mapping[str, str]:
    name = subject.name
    return {
        "README.md": rendered("torch_extension/README.md", subject),
        "setup.py": rendered("torch_extension/setup.py", subject),
        "kernel.cu": subject.source,
        f"{name}_reference.py": subject.task.source,
        f"{name}_module.py": rendered("torch_extension/module.py", subject),
        f"test_{name}.py": rendered("torch_extension/test.py", subject),
    }
