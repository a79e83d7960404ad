"""A whole search with a small language model on this machine: does it come to an end, and does it leak?

The model may answer whatever it likes.  `cupilot optimize` runs in a process of its own, which is looked at after
each generation: resident memory, open files, threads and child processes after the last may be above those after the
fifth by no more than `ALLOWED`.  The final kernel must be at least as fast as the plain one, and as many calls must be
recorded as replies were counted by the proxy in front of the server.  Linux only (/proc).  Prints one line of JSON
last; exit status 1 says that something did not hold::

    python benchmarks/local_llm.py http://127.0.0.1:8080/v1 --generations 20
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SETTLED = 5  # the generation after which nothing is loaded for the first time any more
# a generation's own records are kept in memory, some kilobytes each; the rest must not grow at all
ALLOWED = {"resident_mb": 24.0, "files": 2, "threads": 1, "children": 1}
EXAMPLE = Path(__file__).parents[1] / "examples" / "relu.py"
_GENERATION = re.compile(r"generation (\d+) of ")


class Counting(ThreadingHTTPServer):
    """Passes everything on to the server and counts the replies that were good."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target.removesuffix("/v1")
        self.replies = 0
        self.refusals: list[str] = []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Passing(BaseHTTPRequestHandler):
    server: Counting

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = urllib.request.Request(self.server.target + self.path, body, {"Content-Type": "application/json"})
        try:
            # the server is this machine's own: past any proxy
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=600) as response:
                status, data = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, data = error.code, error.read()
        with self.server.lock:
            if status == 200:
                self.server.replies += 1
            else:
                self.server.refusals.append(data.decode("utf-8", "replace")[:300])
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *values: Any) -> None:
        """Silent."""


def footprint(pid: int) -> dict[str, float]:
    """What a process holds at this moment."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident_kb = int(status.split("VmRSS:")[1].split()[0])
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    children = sum(len((task / "children").read_text().split()) for task in tasks)
    return {
        "resident_mb": round(resident_kb / 1024, 1),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(tasks),
        "children": children,
    }


def search(url: str, options: argparse.Namespace, folder: Path) -> tuple[int, dict[int, dict[str, float]]]:
    """Run the command; its exit status, and what it held after each generation."""
    command = [
        sys.executable, "-m", "cupilot", "optimize", str(options.task), "--agents", "llm",
        "--model", f"llamacpp/small@{url}", "--prompt-tokens", str(options.prompt_tokens),
        "--reply-tokens", str(options.reply_tokens), "--population", str(options.population),
        # one more, so that the process is still there when it is looked at after the last
        "--generations", str(options.generations + 1), "--patience", str(options.generations + 2),
        "--jobs", "1", "--no-pool", "--out", str(folder),
    ]  # fmt: skip
    held: dict[int, dict[str, float]] = {}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            found = _GENERATION.match(line)
            if found and int(found[1]) <= options.generations:
                held[int(found[1])] = footprint(process.pid)
    return process.returncode, held


def recorded(folder: Path) -> dict[str, int]:
    with closing(sqlite3.connect(folder / "run.sqlite")) as store:
        calls, sent, made = store.execute(
            "SELECT count(*), sum(input_tokens), sum(output_tokens) FROM llm_call"
        ).fetchone()
        individuals, right = store.execute("SELECT count(*), count(time_s) FROM individual").fetchone()
    return {"calls": calls, "input_tokens": sent, "output_tokens": made, "individuals": individuals, "right": right}


def time_s(evaluation: dict[str, Any]) -> float:
    return float(evaluation["timing"]["time_s"])


def faults(status: int, held: dict[int, dict[str, float]], last: int, report: dict[str, Any]) -> list[str]:
    """What does not hold, in words."""
    if status != 0 or last not in held:
        return [f"the command ended with status {status} after generation {max(held, default=-1)}"]
    found = []
    for name, allowed in ALLOWED.items():
        grown = held[last][name] - held[SETTLED][name]
        if grown > allowed:
            found.append(f"{name} grew by {grown:g} after generation {SETTLED}; {allowed:g} are allowed")
    if report["best_s"] > report["plain_s"]:
        found.append("the final kernel is slower than the plain one")
    if report["calls"] != report["replies"]:
        found.append(f"{report['replies']} replies were given and {report['calls']} recorded")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="an OpenAI-compatible server")
    parser.add_argument("--task", type=Path, default=EXAMPLE)
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--population", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=1200)
    parser.add_argument("--reply-tokens", type=int, default=96)
    options = parser.parse_args()
    began_s = time.monotonic()
    proxy = Counting(options.url)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        status, held = search(proxy.url, options, folder)
        report: dict[str, Any] = {"generations": options.generations, "replies": proxy.replies}
        if status == 0:
            result = json.loads((folder / "result.json").read_text())
            report |= recorded(folder)
            report |= {
                name + "_s": result[key]["timing"]["time_s"] for name, key in (("plain", "first"), ("best", "best"))
            }
    report |= {
        "minutes": round((time.monotonic() - began_s) / 60, 1),
        "refusals": len(proxy.refusals),
        "settled": held.get(SETTLED),
        "last": held.get(options.generations),
        "faults": faults(status, held, options.generations, report),
    }
    for refusal in proxy.refusals[:3]:
        print(f"refused: {refusal}", file=sys.stderr)
    print(json.dumps(report))
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
