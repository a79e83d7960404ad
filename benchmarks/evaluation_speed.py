"""How fast kernels are evaluated: another checkout against this one, in turns.

``evaluate``: ``cupilot evaluate`` from scratch (kernel not built before) for kernels of ``kernels/level1``.
``search``: candidates that ``cupilot optimize`` evaluates a minute, by the expert and without a pool.  Each side has a
cache of its own, in which the virtual GPU's runtime is compiled beforehand::

    git worktree add /tmp/old REVISION
    python benchmarks/evaluation_speed.py --old /tmp/old/src --out benchmarks/evaluation_speed.json

Needs a machine with nothing else to do.  Prints a table; ``--out`` keeps the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "src/cupilot/tasks/suites/kernelbench_level1"
KERNELS = ROOT / "kernels/level1/kernels"
EVERY = 5
"""Each so many-th kernel of level 1, 20 in all."""
SEARCHES = {"softmax": "23_Softmax", "product": "1_Square_matrix_multiplication_", "layer norm": "40_LayerNorm"}


@dataclass(frozen=True)
class Row:
    """One kernel or search; of evaluations seconds, of searches candidates a minute."""

    name: str
    old: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.old


class Side:
    """A checkout with a cache of its own."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._environment = os.environ | {"PYTHONPATH": str(source), "CUPILOT_CACHE": str(folder / "cache")}
        self._folder = folder

    def run(self, *arguments: str) -> tuple[float, str]:
        """Seconds that a command takes, and what it prints."""
        began_s = time.monotonic()
        command = (sys.executable, "-P", "-m", "cupilot", *arguments)
        done = subprocess.run(
            command, env=self._environment, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()[-400:]}")
        return time.monotonic() - began_s, done.stdout

    def evaluate(self, name: str) -> float:
        return self.run("evaluate", str(KERNELS / f"{name}.cu"), "--task", str(TASKS / f"{name}.py"))[0]

    def search(self, name: str, evaluations: int) -> float:
        """Candidates a minute, with the time from start to end."""
        options = ("--no-pool", "--patience", "99", "--generations", "99", "--population", "12", "--json", "-")
        seconds, printed = self.run(
            "optimize", str(TASKS / f"{name}.py"), "--max-evaluations", str(evaluations), *options
        )
        return 60 * json.loads(printed)["evaluations"] / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--old", type=Path, required=True, help="the other checkout's src folder")
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=40, help="of each search")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = sorted(path.stem for path in KERNELS.glob("*.cu"))[::EVERY][: options.kernels]
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for number, source in enumerate((options.old, ROOT / "src")):
            (Path(folder) / str(number)).mkdir()
            sides.append(Side(source.resolve(), Path(folder) / str(number)))
            sides[-1].evaluate("19_ReLU")  # compiles the runtime
        evaluated = [_shown(Row(name, *(side.evaluate(name) for side in sides))) for name in names]
        searched = [
            _shown(Row(what, *(side.search(name, options.evaluations) for side in sides)))
            for what, name in SEARCHES.items()
        ]
    if evaluated:
        middle = [median(getattr(row, side) for row in evaluated) for side in ("old", "new")]
        print(f"evaluate, median of {len(evaluated)}: {middle[0]:.1f} s, now {middle[1]:.1f} s")
    if options.out:
        found = {"evaluate_s": [asdict(row) for row in evaluated], "per_minute": [asdict(row) for row in searched]}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def _shown(row: Row) -> Row:
    print(f"{row.name:50} {row.old:7.1f} {row.new:7.1f} {row.ratio:6.2f}", flush=True)
    return row


if __name__ == "__main__":
    main()
