"""Building what a solution asks for, on the trusted side.

Only the solution's own code knows which extensions it wants, so it runs in a worker that says what is missing; that is
built here, and the worker is started once more.  Some files load extensions in a constructor or in ``forward``, with
sources that depend on sizes: the calls themselves then show what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from cupilot.contracts import Built, Outcome
from cupilot.devices.solution_record import Assembly, read_assembly
from cupilot.errors import DataError
from cupilot.records import Failure, Kernel, Resources, from_plain, to_plain
from cupilot.records.evaluation import SassFunction
from cupilot.toolchain.cache import digest, publish, scratch_beside
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.extension import Extension, Source, build_extension
from cupilot.toolchain.imports import guard_failure
from cupilot.toolchain.nvcc import CUBIN, PTX
from cupilot.toolchain.sass import kernel_sass

ROUNDS = 4
"""How often a worker may come back with something new to build."""
MOST_EXTENSIONS = 64
RECORD, WANTED = "solution.json", "wanted.json"

Results = tuple[Outcome | Failure, ...]
Run = Callable[[Built], Results]


class SolutionBuilder:
    """Builds solutions for one architecture; ``Built.library`` is the file with the `Assembly`."""

    def __init__(self, arch: str, cache: Path, cuda: Cuda) -> None:
        self._arch, self._cache, self._cuda = arch, cache, cuda

    def build(self, kernel: Kernel, load: Run) -> Built | Failure:
        """Everything that the file asks for when it is loaded; ``load`` loads it in a worker, with one empty call."""
        bare = self._assembled(kernel, ())
        if isinstance(bare, Failure):
            return bare
        asked = self._cache / "solutions" / digest(("asked", kernel.digest, self._arch))
        if not asked.is_dir():
            (result,) = load(bare)
            if isinstance(result, Failure) and result.kind != "unbuilt":
                return result
            wanted = wanted_by([result])
            if isinstance(wanted, Failure):
                return wanted
            with scratch_beside(asked) as scratch:
                (scratch / WANTED).write_text(json.dumps(to_plain(wanted)), encoding="utf-8")
                publish(scratch, asked)
        known = from_plain(tuple[Extension, ...], json.loads((asked / WANTED).read_text(encoding="utf-8")))
        return self._with(bare, known)

    def run(self, built: Built, run: Run) -> Results:
        """The results of the calls, once everything is built that they ask for."""
        for _ in range(ROUNDS):
            results = run(built)
            wanted = wanted_by(results)
            if not wanted:
                return results
            more = wanted if isinstance(wanted, Failure) else self._with(built, wanted)
            if isinstance(more, Failure):
                return tuple(more for _ in results)
            built = more
        failure = Failure("build", "unbuilt", f"the solution asks for other sources each of {ROUNDS} times it is run")
        return tuple(failure for _ in results)

    def sass(self, built: Built) -> tuple[SassFunction, ...]:
        """Of all libraries; functions that have one name and are not the same are left out."""
        found: dict[str, SassFunction | None] = {}
        for path in read_assembly(built.library).files():
            ptx = path.with_name(PTX).read_text(encoding="utf-8")
            for function in kernel_sass(path.with_name(CUBIN), ptx, self._cuda, self._cache / "sass"):
                same = found.get(function.name, function) == function
                found[function.name] = function if same else None
        return tuple(function for function in found.values() if function is not None)

    def _assembled(self, kernel: Kernel, libraries: Sequence[tuple[str, str]]) -> Built | Failure:
        text = (files("cupilot.devices") / "solution_glue.cu").read_text(encoding="utf-8")
        glue = self._library(Extension("glue", (), (Source("glue.cu", text),)))
        if isinstance(glue, Failure):
            return glue
        built = Built(kernel, glue.library, glue.ptx, glue.resources)
        return self._recorded(built, Assembly(kernel.source, str(glue.library), (), kernel.form.endswith("+torch")))

    def _library(self, extension: Extension) -> Built | Failure:
        built = build_extension(extension, self._arch, self._cache / "kernels", self._cuda)
        return built if isinstance(built, Failure) else guard_failure(built.library) or built

    def _with(self, built: Built, extensions: Iterable[Extension]) -> Built | Failure:
        assembly = read_assembly(built.library)
        libraries, ptx, resources = list(assembly.libraries), [built.ptx], [*built.resources]
        for extension in extensions:
            made = self._library(extension)
            if isinstance(made, Failure):
                return made
            libraries.append((extension.key, str(made.library)))
            ptx.append(made.ptx)
            resources += made.resources
        larger = Built(built.kernel, built.library, "\n".join(ptx), merged_resources(resources))
        return self._recorded(larger, replace(assembly, libraries=tuple(dict(libraries).items())))

    def _recorded(self, built: Built, assembly: Assembly) -> Built:
        text = json.dumps(to_plain(assembly))
        final = self._cache / "solutions" / digest((text,))
        if not final.is_dir():
            with scratch_beside(final) as scratch:
                (scratch / RECORD).write_text(text, encoding="utf-8")
                publish(scratch, final)
        return replace(built, library=final / RECORD)


def wanted_by(results: Iterable[Outcome | Failure]) -> tuple[Extension, ...] | Failure:
    """What the failures of kind ``unbuilt`` ask for; what a worker says is not trusted to be well-formed."""
    found: dict[str, Extension] = {}
    for result in results:
        if not isinstance(result, Failure) or result.kind != "unbuilt":
            continue
        try:
            wanted = from_plain(tuple[Extension, ...], json.loads(result.log))
        except (ValueError, DataError):
            return Failure("build", "load", "the solution's extensions cannot be read")
        found |= {extension.key: extension for extension in wanted}
    if len(found) > MOST_EXTENSIONS:
        return Failure("build", "load", f"the solution asks for {len(found)} extensions; {MOST_EXTENSIONS} are allowed")
    return tuple(found.values())


def merged_resources(all_of: Iterable[tuple[str, Resources]]) -> tuple[tuple[str, Resources], ...]:
    """By kernel; where two libraries have kernels of one name, the larger of each number."""
    found: dict[str, Resources] = {}
    for name, resources in all_of:
        other = found.get(name, resources)
        found[name] = Resources(
            max(resources.registers, other.registers),
            max(resources.static_shared_bytes, other.static_shared_bytes),
            max(resources.spill_bytes, other.spill_bytes),
            max(resources.barriers, other.barriers),
        )
    return tuple(found.items())
