"""The languages that kernels are written in: folders of this package, and packages of others.

A folder ``languages/<name>/`` has an object ``LANGUAGE`` that implements `cupilot.languages.contract.Language`.  A
package elsewhere names such an object as an entry point of the group ``cupilot.languages``.  Adding a language edits no
other file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from itertools import zip_longest
from pathlib import Path
from pkgutil import iter_modules

from cupilot.errors import UserError
from cupilot.files import read_text
from cupilot.languages.contract import Language
from cupilot.records import Kernel, Launch

GROUP = "cupilot.languages"
OURS = tuple(sorted(module.name for module in iter_modules(__path__) if module.ispkg))


@cache
def language_names() -> tuple[str, ...]:
    """Ours first; a package cannot replace one of them."""
    return (*OURS, *sorted(entry.name for entry in entry_points(group=GROUP) if entry.name not in OURS))


@cache
def find_language(name: str) -> Language:
    """The language of that name; no other is imported."""
    # looking through all installed packages takes a while, and every worker process would do it
    if name in OURS:
        ours: Language = import_module(f"{__name__}.{name}").LANGUAGE
        return ours
    if name not in language_names():
        raise UserError(f"unknown language {name!r}; known languages are {', '.join(language_names())}")
    found: Language = entry_points(group=GROUP, name=name)[name].load()
    if found.name != name:
        raise UserError(f"the language {name} calls itself {found.name}")
    return found


def languages() -> Mapping[str, Language]:
    """All of them, by name."""
    return {name: find_language(name) for name in language_names()}


def language_of(kernel: Kernel) -> Language:
    return find_language(kernel.language)


def visible_source(kernel: Kernel, launches: Iterable[Launch]) -> str:
    """The kernel's file as the costs of launches refer to it: lines that they do not refer to may be empty."""
    texts = (language_of(kernel).source_lines(kernel, launch) for launch in launches)
    return "\n".join(max(lines, key=len) for lines in zip_longest(*texts, fillvalue=""))


def detect_language(source: str, suffix: str = "") -> Language:
    """The language of a source: among those with the suffix, else among all, the one that is surest; else CUDA."""
    fitting = [language for language in languages().values() if language.suffix == suffix]
    if len(fitting) == 1:
        return fitting[0]
    surest = max(fitting or languages().values(), key=lambda language: language.detect(source))
    return surest if fitting or surest.detect(source) > 0 else language_of(Kernel(source))


def make_kernel(
    source: str, entry: str = "forward", arguments: str = "", *, suffix: str = "", options: Sequence[str] = ()
) -> Kernel:
    """A kernel in the language of its source; options that the language does not have are left out."""
    language = detect_language(source, suffix)
    kept = tuple(option for option in options if option in language.options)
    return Kernel(source, entry, arguments, language.name, kept)


def read_kernel(path: Path, entry: str = "forward", arguments: str = "", *, options: Sequence[str] = ()) -> Kernel:
    """The kernel in a file."""
    return make_kernel(read_text(path, "the kernel file"), entry, arguments, suffix=path.suffix, options=options)
