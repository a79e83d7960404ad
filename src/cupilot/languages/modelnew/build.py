"""Builds the extensions that a ModelNew file asks for, in the trusted process.

Only the file's own code knows which extensions it needs, so it runs in a worker that reports what is missing; that is
built here, and the worker is started once more.  Some files load extensions in a constructor or in ``forward``, with
sources that depend on sizes: then the calls themselves show what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from cupilot.contracts import Built, Outcome
from cupilot.errors import DataError
from cupilot.languages.contract import Attempt, Results, Target
from cupilot.languages.cuda import toolkit
from cupilot.languages.modelnew.extension import Extension, Source, build_extension
from cupilot.languages.modelnew.record import Assembly, read_assembly
from cupilot.records import Failure, Kernel, from_plain, to_plain
from cupilot.records.evaluation import SassFunction
from cupilot.toolchain.cache import digest, is_kept, publish, scratch_beside
from cupilot.toolchain.imports import guard_failure
from cupilot.toolchain.nvcc import CUBIN, PTX
from cupilot.toolchain.ptxas import larger_resources
from cupilot.toolchain.sass import kernel_sass

ROUNDS = 4
"""How often a worker may come back with something new to build."""
MOST_EXTENSIONS = 64
FOLDER, RECORD, WANTED = "modelnew", "modelnew.json", "wanted.json"
TORCH_OPS = "torch-ops"
GLUE = Path(__file__).with_name("glue.cu")


def build_file(kernel: Kernel, target: Target, load: Attempt) -> Built | Failure:
    """Everything that the file asks for when it is loaded; ``Built.library`` is the file with the `Assembly`."""
    bare = _bare(kernel, target)
    if isinstance(bare, Failure):
        return bare
    asked = target.cache / FOLDER / digest(("asked", kernel.digest, target.arch))
    if not is_kept(asked):
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
    return extended(bare, known, target)


def run_file(built: Built, target: Target, attempt: Attempt) -> Results:
    """The results of the calls, once everything is built that they ask for."""
    for _ in range(ROUNDS):
        results = attempt(built)
        wanted = wanted_by(results)
        if not wanted:
            return results
        more = wanted if isinstance(wanted, Failure) else extended(built, wanted, target)
        if isinstance(more, Failure):
            return tuple(more for _ in results)
        built = more
    failure = Failure("build", "unbuilt", f"the solution asks for other sources each of {ROUNDS} times it is run")
    return tuple(failure for _ in results)


def sass_of(built: Built, target: Target) -> tuple[SassFunction, ...]:
    """Of all libraries; functions that share a name and differ are left out."""
    found: dict[str, SassFunction | None] = {}
    for path in read_assembly(built.library).files():
        ptx = path.with_name(PTX).read_text(encoding="utf-8")
        cubin, kept = path.with_name(CUBIN), target.cache / "sass"
        for function in kernel_sass(cubin, ptx, toolkit(), kept, sandbox=target.sandbox):
            same = found.get(function.name, function) == function
            found[function.name] = function if same else None
    return tuple(function for function in found.values() if function is not None)


def extended(built: Built, extensions: Iterable[Extension], target: Target) -> Built | Failure:
    """A build with further extensions."""
    assembly = read_assembly(built.library)
    libraries, ptx, resources = list(assembly.libraries), [built.ptx], [*built.resources]
    for extension in extensions:
        made = _library(extension, target)
        if isinstance(made, Failure):
            return made
        libraries.append((extension.key, str(made.library)))
        ptx.append(made.ptx)
        resources += made.resources
    larger = Built(built.kernel, built.library, "\n".join(ptx), larger_resources(resources))
    return _recorded(larger, replace(assembly, libraries=tuple(dict(libraries).items())), target)


def _bare(kernel: Kernel, target: Target) -> Built | Failure:
    """The file without any of its extensions."""
    glue = _library(Extension("glue", (), (Source("glue.cu", GLUE.read_text(encoding="utf-8")),)), target)
    if isinstance(glue, Failure):
        return glue
    built = Built(kernel, glue.library, glue.ptx, glue.resources)
    return _recorded(built, Assembly(kernel.source, str(glue.library), (), TORCH_OPS in kernel.options), target)


def _library(extension: Extension, target: Target) -> Built | Failure:
    built = build_extension(extension, target.arch, target.cache / "kernels", toolkit(), target.sandbox)
    return built if isinstance(built, Failure) else guard_failure(built.library, target.sandbox) or built


def _recorded(built: Built, assembly: Assembly, target: Target) -> Built:
    text = json.dumps(to_plain(assembly))
    final = target.cache / FOLDER / digest((text,))
    if not is_kept(final):
        with scratch_beside(final) as scratch:
            (scratch / RECORD).write_text(text, encoding="utf-8")
            publish(scratch, final)
    return replace(built, library=final / RECORD)


def wanted_by(results: Iterable[Outcome | Failure]) -> tuple[Extension, ...] | Failure:
    """The extensions that failures of kind ``unbuilt`` ask for; a worker's word is not trusted to be well-formed."""
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
