"""Runs, results, pools and benchmarks that were damaged."""

from __future__ import annotations

import json

from hostile_case import Hostile
from hostile_kernels import TASK, source

DEEP = "[" * 100_000 + "]" * 100_000
REPEAT = {
    "task": {"name": "task", "source": TASK, "precision": "fp32"},
    "kernel": {"source": source(), "entry": "forward", "arguments": "", "language": "cuda", "options": []},
    "timeout_s": 5.0,
}
TIMING = {"time_s": 1e-6, "source": "modelled", "device": "virtual:a100-80gb", "limit": "dram", "breakdown": []}
PROOF = {
    "source": "0" * 64, "task": "0" * 64, "tools": [["cupilot", "0.1.0"]], "seed": 1, "checks": 1, "worst": 0.1, "image": "0", "baseline": "",
}  # fmt: skip
RESULT = {"device": "virtual:a100-80gb", "timing": TIMING, "proof": PROOF, "repeat": REPEAT, "speedup": 1.0}


def result(**changes: object) -> str:
    """A result file with something in it that does not belong there."""
    return json.dumps({**RESULT, **changes})


RESULTS: dict[str, str | bytes] = {
    "empty": "",
    "binary": bytes(range(256)) * 100,
    "nul bytes": "\0" * 1000,
    "cut off": result()[:300],
    "not UTF-8": b'{"proof": "\xff\xfe"}',
    "a number": "7",
    "a list": "[1, 2, 3]",
    "a text": '"result"',
    "null": "null",
    "deeply nested": DEEP,
    "nested in the proof": '{"proof": ' + DEEP + ', "repeat": {}}',
    "a huge number": '{"proof": 1, "repeat": ' + "9" * 10_000 + "}",
    "best is a number": '{"best": 7}',
    "best is a list": '{"best": [1]}',
    "proof is a number": result(proof=7),
    "proof with unknown keys": result(proof={**PROOF, "more": 1}),
    "proof without keys": result(proof={"seed": 1}),
    "repeat is a text": result(repeat="again"),
    "repeat is a list": result(repeat=[1]),
    "task is missing": result(repeat={**REPEAT, "task": None}),
    "source is a number": result(repeat={**REPEAT, "task": {**REPEAT["task"], "source": 7}}),  # type: ignore[dict-item]
    "kernel is a number": result(repeat={**REPEAT, "kernel": 7}),
    "language of nobody": result(repeat={**REPEAT, "kernel": {**REPEAT["kernel"], "language": "fortran"}}),  # type: ignore[dict-item]
    "time that is no number": result(timing={**TIMING, "time_s": "soon"}),
    "time-out that is no number": result(repeat={**REPEAT, "timeout_s": "soon"}),
    "time-out without end": result(repeat={**REPEAT, "timeout_s": 1e308}),
    "device of nobody": result(device="quantum:0"),
    "device is a number": result(device=7),
    "seed of a hundred digits": result(proof={**PROOF, "seed": 10**100}),
    "sources of another proof": result(),
}
RUNS: dict[str, str] = {
    "is empty": "mkdir run && : > run/run.sqlite",
    "is text": "mkdir run && echo text > run/run.sqlite",
    "is a folder": "mkdir -p run/run.sqlite",
    "is noise": "mkdir run && head -c 20000 /dev/urandom > run/run.sqlite",
    "begins like SQLite": "mkdir run && printf 'SQLite format 3\\000' > run/run.sqlite && head -c 8000 /dev/zero >> run/run.sqlite",
    "has another schema": "mkdir run && python3 -c \"import sqlite3; c = sqlite3.connect('run/run.sqlite'); c.execute('PRAGMA user_version = 99'); c.execute('CREATE TABLE t (x)'); c.commit()\"",
    "has no tables": "mkdir run && python3 -c \"import sqlite3; c = sqlite3.connect('run/run.sqlite'); c.execute('PRAGMA user_version = 2'); c.execute('CREATE TABLE t (x)'); c.commit()\"",
    "is a link to nowhere": "mkdir run && ln -s nowhere run/run.sqlite",
}
SUITES: dict[str, str | bytes] = {
    "is empty": "",
    "is a number": "7",
    "is deeply nested": DEEP,
    "has rows of numbers": '{"results": [1, 2]}',
    "has no rows": "{}",
}
DAILY = ("deeply nested", "proof is a number", "source is a number", "has no tables", "is noise")


def verified(name: str, content: str | bytes) -> Hostile:
    words = ("verify", "result.json", "--json", "-")
    return Hostile(words, (1, 2), {"result.json": content}, daily=name in DAILY)


def exported(content: str | bytes) -> Hostile:
    words = ("export", "result.json", "--to", "modelnew", "--json", "-")
    return Hostile(words, (2,), {"result.json": content})


CASES = {
    **{f"result: {name}": verified(name, content) for name, content in RESULTS.items()},
    **{
        f"export: {name}": exported(content)
        for name, content in RESULTS.items()
        if name not in ("time-out without end", "device of nobody", "device is a number", "seed of a hundred digits",
                        "sources of another proof", "language of nobody")
    },
    **{
        f"{command}: run that {name}": Hostile((command, "run", "--json", "-"), (2,), prepare=prepare, daily=name in DAILY)
        for name, prepare in RUNS.items()
        for command in ("resume", "report")
    },
    **{
        f"report: benchmark that {name}": Hostile(("report", "suite", "--json", "-"), (2,), {"suite/results.json": content})
        for name, content in SUITES.items()
    },
    **{
        f"bench: results that {name}": Hostile(
            ("bench", "level1", "--out", "suite", "--resume", "--only", "1", "--budget", "1", "--json", "-"), (2,),
            {"suite/results.json": content},
        )
        for name, content in SUITES.items() if name != "has no rows"
    },
    "optimize: run folder that holds noise": Hostile(
        ("optimize", "task.py", "--out", "run", "--json", "-"), (2,), {"task.py": TASK}, prepare=RUNS["is noise"]
    ),
    "optimize: replay of noise": Hostile(
        ("optimize", "task.py", "--agents", "llm", "--model", "openai/x", "--replay", "run", "--no-pool", "--json", "-"), (2,),
        {"task.py": TASK}, prepare=RUNS["is noise"],
    ),
    "pool: noise": Hostile(("pool", "list", "--pool", "run/run.sqlite", "--json", "-"), (2,), prepare=RUNS["is noise"]),
    "pool: import of noise": Hostile(
        ("pool", "import", "--pool", "pool.sqlite", "run/run.sqlite"), (2,), prepare=RUNS["is noise"]
    ),
    "pool: import of nested brackets": Hostile(
        ("pool", "import", "--pool", "pool.sqlite", "lines.jsonl"), (2,), {"lines.jsonl": DEEP + "\n"}
    ),
}  # fmt: skip
