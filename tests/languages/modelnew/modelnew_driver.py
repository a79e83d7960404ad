"""Runs calls of many ModelNew files in one set of processes: ``python modelnew_driver.py JOBS RESULTS``.

Does what a worker does around a file, without the parts that are tested elsewhere: with processes for each file, most
of the time would go into importing PyTorch.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.devices.host_process import start_host
from cupilot.gpu import load_spec
from cupilot.languages.contract import CandidateFailed
from cupilot.languages.modelnew.program import ModelNewProgram, PythonProcess
from cupilot.languages.modelnew.record import read_assembly
from cupilot.toolchain.abi import TensorValue, WrapperError
from cupilot.vgpu.machine import Machine


def main(jobs: dict[str, Any], folder: Path) -> dict[str, Any]:
    process = PythonProcess(Path(tempfile.mkdtemp(dir=folder)))
    machine = Machine(load_spec("a100-80gb"), jobs["runtime"], {}, "virtual:a100-80gb")
    libraries = [path for library, _ in jobs["files"].values() for path in read_assembly(library).files()]
    start_host(machine, jobs["host"], libraries)
    return {name: _results(machine, process, *job) for name, job in jobs["files"].items()}


def _results(machine: Machine, process: PythonProcess, library: Path, calls: list[tuple[Any, ...]]) -> list[Any]:
    program = ModelNewProgram(library, Path(), process)
    machine.begin(None, 60.0)
    try:
        program.load(machine, 60.0)
    except CandidateFailed as error:
        return [error.failure] * len(calls)
    return [_called(machine, program, values) for values in calls]


def _called(machine: Machine, program: ModelNewProgram, values: tuple[Any, ...]) -> Any:
    placed = [_placed(machine, value) for value in values]
    program.prepare(placed, 60.0)
    machine.begin(None, 60.0)
    try:
        results = program.call("forward", placed)
    except CandidateFailed as error:
        return error.failure
    except WrapperError as error:
        return error.message, machine.findings()
    machine.end()
    assert not machine.findings(), machine.findings()
    profile = machine.profile()
    arrays, written = [], []
    for result in results:
        flat = machine.view(result.pointer, (int(np.prod(result.shape)),), np.dtype(result.dtype))
        arrays.append(flat.copy().reshape(result.shape))
        where = machine.stored_elements(result.pointer, flat.size, flat.itemsize)
        written.append(flat.size if where is None else where.size)
    program.release()
    launches = [launch.kernel for launch in profile.launches]
    return arrays, written, launches, [*profile.operations, *program.operations()]


def _placed(machine: Machine, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_placed(machine, item) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    strides = tuple(stride // value.itemsize for stride in value.strides)
    return TensorValue(machine.upload(value), value.shape, strides, str(value.dtype))


if __name__ == "__main__":
    found = main(pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]).parent)
    Path(sys.argv[2]).write_bytes(pickle.dumps(found))
    sys.stdout.flush()
    os._exit(0)
