"""Stands in for ``cupilot optimize`` and ``cupilot resume``: a store that grows once, and Ctrl-C that keeps it."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from cupilot.evolution.store import create_store, open_store
from cupilot.testing.samples import INDIVIDUAL, INFO, RESULT


def main(arguments: list[str]) -> None:
    resumed = arguments[0] == "resume"
    folder = Path(arguments[1] if resumed else arguments[arguments.index("--out") + 1])
    task = "" if resumed else Path(arguments[1]).read_text()
    if "fails" in task:
        sys.exit("cupilot: the task is not in KernelBench form")
    print(f"stand-in {os.getpid()} for {' '.join(arguments)}", flush=True)
    store = open_store(folder) if resumed else create_store(folder)
    if resumed:
        number = len(store.repeat())
    else:
        store.begin(replace(INFO, task_source=task))
        number = 0
    store.add(replace(INDIVIDUAL, id=number))
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        if "stubborn" in task:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            while True:
                signal.pause()
        print("interrupted", flush=True)
        store.finish(replace(RESULT, stopped="interrupted"))
    finally:
        store.close()


main(sys.argv[1:])
