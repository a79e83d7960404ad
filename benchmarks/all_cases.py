"""All exploits and honest kernels, or all hostile command lines, on one commit, in as many sittings as it takes.

    python benchmarks/all_cases.py --out exploits.jsonl tests/exploits
    python benchmarks/all_cases.py --out hostile.jsonl tests/cli/test_hostile.py

The same as ``python -m pytest PATH -m ''``, but every outcome is kept in a file, a sitting may be ended after some
time (``--seconds``), and the next one goes on with what is left.  A file holds the outcomes of one commit; another
commit, or changed files, need another file.  At the end of each sitting the counts, and the ratios of timing exploits
to their honest neighbours, are printed; the exit status is 0 when everything has run and passed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LEAST_RATIO = 0.67


def commit() -> str:
    """The state that is tested; changed files are told apart from none."""
    words = ("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


class Keep:
    """Leaves out what is in the file already, and writes down what runs."""

    def __init__(self, path: Path, state: str, seconds: float) -> None:
        self.path, self.state, self.until = path, state, time.monotonic() + seconds
        self.known = {each["test"] for each in read(path, state)}
        self.wanted = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.wanted = len(items)
        items[:] = [item for item in items if item.nodeid not in self.known]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            if time.monotonic() > self.until:
                item.session.shouldstop = "this sitting is over"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        line = {
            "commit": self.state, "test": report.nodeid, "outcome": report.outcome,
            **dict(report.user_properties), "why": "" if report.passed else str(report.longrepr)[-2000:],
        }  # fmt: skip
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read(path: Path, state: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if others := {each["commit"] for each in found} - {state}:
        raise SystemExit(f"{path} holds outcomes of {', '.join(sorted(others))}, and this is {state}")
    return found


def last(outcomes: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each test once: it has a line for each phase that did not pass, and then does not count as passed."""
    found: dict[str, dict[str, Any]] = {}
    for each in outcomes:
        if each["outcome"] != "passed" or each["test"] not in found:
            found[each["test"]] = each
    return found


def summary(outcomes: Iterable[dict[str, Any]], wanted: int) -> list[str]:
    """What ran, by test function; failures by name; the ratios, the least first."""
    by_test = last(outcomes)
    counts = Counter((name.partition("[")[0], each["outcome"]) for name, each in by_test.items())
    lines = [f"{len(by_test)} of {wanted} have run"]
    lines += [f"{function.partition('::')[2]}: {number} {outcome}" for (function, outcome), number in counts.items()]
    lines += [f"FAILED {name}" for name, each in by_test.items() if each["outcome"] == "failed"]
    ratios = sorted(
        (float(each["ratio"]), name.partition("[")[2][:-1]) for name, each in by_test.items() if "ratio" in each
    )
    lines += [f"{ratio:.2f} of its neighbour's time: {name}" for ratio, name in ratios]
    if ratios:
        lines.append(f"{len(ratios)} ratios, {sum(ratio < LEAST_RATIO for ratio, _ in ratios)} below {LEAST_RATIO}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--out", type=Path, required=True, help="the outcomes, one JSON object a line")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no test after this time")
    options = parser.parse_args()
    keep = Keep(options.out, commit(), options.seconds)
    pytest.main(["-m", "", "-n", "0", "--rootdir", str(ROOT), *options.paths], plugins=[keep])
    outcomes = read(options.out, keep.state)
    print("\n".join((keep.state, *summary(outcomes, keep.wanted))))
    passed = [each for each in last(outcomes).values() if each["outcome"] != "failed"]
    return 0 if keep.wanted and len(passed) == keep.wanted else 1


if __name__ == "__main__":
    sys.exit(main())
