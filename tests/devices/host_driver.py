"""Runs one command in a process for host code, as a worker does: ``python host_driver.py JOB.json``.

Prints what became of it as JSON.  The library may be anything, because the guard on imports is not asked.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.devices.host_process import start_host
from cupilot.gpu import load_spec
from cupilot.toolchain.abi import TensorValue, WrapperError
from cupilot.vgpu.host import HostGone
from cupilot.vgpu.machine import Machine


def main(job: dict[str, Any]) -> dict[str, Any]:
    machine = Machine(load_spec("a100-80gb"), Path(job["runtime"]), {}, "virtual:a100-80gb")
    start_host(machine, Path(job["host"]), [Path(path) for path in job["libraries"]])
    (host,) = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    machine.begin(None, job["seconds"])
    machine.host.allow(job["seconds"], job["seconds"])
    # a whole program expects all of the device's memory to be free
    buffer = 0 if job["entry"] == "program" else machine.upload(np.arange(1000, dtype=np.float32))
    told: dict[str, Any] = {"kind": "", "message": "", "maps": "", "results": []}
    try:
        library = machine.host.load(Path(job["libraries"][0]))
        told["maps"] = Path(f"/proc/{host}/maps").read_text()
        machine.begin(None, job["seconds"])
        if job["entry"] == "program":
            machine.run_program(Path("findings.jsonl"), job["seconds"], checks=True)
        values = [TensorValue(buffer, (1000,), (1,), "float32") if value == "x" else value for value in job["values"]]
        told["results"] = [(result.shape, result.dtype) for result in library.call(job["entry"], values)]
    except (HostGone, WrapperError) as error:
        told |= {"kind": error.kind, "message": error.message}
    machine.end()
    profile = machine.profile()
    told |= {"findings": [finding.kind for finding in machine.findings()], "launches": len(profile.launches)}
    told |= {"host_seconds": profile.host_seconds, "operations": len(profile.operations)}
    # the engine still works, and its memory is what it was
    told["intact"] = not buffer or bool((machine.view(buffer, (1000,), np.dtype(np.float32)) == np.arange(1000)).all())
    return told


if __name__ == "__main__":
    found = main(json.loads(Path(sys.argv[1]).read_text()))
    sys.stdout.flush()
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)
