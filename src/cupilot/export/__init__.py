"""A verified kernel for other people's programs: as a torch extension, a KernelBench answer, or a package.

Each target is a module of `targets` with its templates in `templates`; it is found by its name.
"""

from cupilot.export.subject import Subject, subject_of
from cupilot.export.writing import export, load_target, target_names

__all__ = ["Subject", "export", "load_target", "subject_of", "target_names"]
