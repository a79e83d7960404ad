"""Is a verdict the same for every draw of inputs?  Honest kernels and exploits of the precision kind, many seeds each.

    python benchmarks/precision_seeds.py [--seeds 20] [--kernels 30] [--out precision_seeds.jsonl]

Candidates are those of ``tests/exploits/catalogue_numerics.py``, on small tasks.  Each is evaluated as a search
evaluates it, once per seed; references of a task and a seed are made once for all of its candidates.  Every result is a
line of the file, and a run goes on where the last one stopped.  The table has the verdict of each kernel, how many of
its seeds agree, and the largest share of what is allowed that it used up in the checks that it passed.
The last result is in ``docs/honesty.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "exploits")]

from catalogue_numerics import EXPLOITS, HONEST  # noqa: E402
from exploit_index import Candidate  # noqa: E402
from exploit_tasks import task_of  # noqa: E402

from cupilot.cli.environment import cache_folder  # noqa: E402
from cupilot.contracts import Device  # noqa: E402
from cupilot.devices import open_device  # noqa: E402
from cupilot.records import Evaluation, Kernel  # noqa: E402
from cupilot.records.scope import SEARCH_REQUIREMENTS  # noqa: E402
from evaluating import evaluator_on  # noqa: E402

FIRST_SEED = 20_261_100


def candidates(kernels: int) -> dict[str, Candidate]:
    """So many honest ones and exploits, evenly from the catalogue."""
    found: dict[str, Candidate] = {}
    for side, entries in (("honest", HONEST), ("exploit", EXPLOITS)):
        names = list(entries)
        count = min(kernels, len(names))
        for number in range(count):
            name = names[number * len(names) // count]
            found[f"{side}: {name}"] = entries[name]
    return found


def evaluations(
    device: Device, chosen: Mapping[str, Candidate], seeds: int, known: set[tuple[str, int]]
) -> Iterator[tuple[str, int, Evaluation, float]]:
    """What is not known yet, task by task."""
    for task in dict.fromkeys(candidate.task for candidate in chosen.values()):
        names = [name for name, candidate in chosen.items() if candidate.task == task]
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            left = [name for name in names if (name, seed) not in known]
            evaluate = evaluator_on(device, seed=seed, timeout_s=120.0, require=SEARCH_REQUIREMENTS)
            for name in left:
                began = time.monotonic()
                evaluation = evaluate(task_of(task), Kernel(chosen[name].source, "forward", ""))
                yield name, seed, evaluation, time.monotonic() - began


def record(name: str, seed: int, evaluation: Evaluation, elapsed_s: float) -> dict[str, object]:
    failure = evaluation.failure
    return {
        "name": name, "seed": seed, "correct": evaluation.correct, "elapsed_s": round(elapsed_s, 2),
        "strain": max((check.strain for check in evaluation.checks), default=0.0),
        "kind": failure.kind if failure else "", "message": failure.message if failure else "",
    }  # fmt: skip


def report(lines: list[dict[str, object]], chosen: Mapping[str, Candidate]) -> None:
    agreeing = total = wrong = 0
    for name in chosen:
        mine = [line for line in lines if line["name"] == name]
        if not mine:
            continue
        verdict, count = Counter(bool(line["correct"]) for line in mine).most_common(1)[0]
        agreeing, total = agreeing + count, total + len(mine)
        wrong += verdict != name.startswith("honest")
        strain = max(float(str(line["strain"])) for line in mine)
        reasons = Counter(str(line["kind"]) for line in mine if line["kind"])
        verdicts = f"{'passes' if verdict else 'rejected':9s} {count:3d} of {len(mine):3d}"
        print(f"{name:60s} {verdicts}  {strain:9.3g}  {dict(reasons) or ''}")
    if total:
        print(f"{agreeing} of {total} evaluations ({agreeing / total:.2%}) have the verdict of their kernel's majority;"
              f" {wrong} kernels have the wrong one")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("precision_seeds.jsonl"))
    parser.add_argument("--device", default="virtual:a100-80gb")
    options = parser.parse_args()
    chosen = candidates(options.kernels)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    known = {(line["name"], line["seed"]) for line in lines}
    device = open_device(options.device, cache_folder())
    with options.out.open("a") as file:
        for name, seed, evaluation, elapsed_s in evaluations(device, chosen, options.seeds, known):
            lines.append(record(name, seed, evaluation, elapsed_s))
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
    report(lines, chosen)


if __name__ == "__main__":
    main()
