"""Mutated PTX on the virtual GPU: refused, found out or run, but never a crash, a hang or an internal error.

The PTX of about a dozen kernels (ptx_mutants.cu, and ptx_mutants.ptx by hand) is changed in one to four places:
lines deleted, doubled, swapped and mixed between kernels; registers, numbers, types, modifiers, opcodes and single
characters replaced; the text cut off.  Mutants run in worker processes with short deadlines, every other one on two
host threads; every eighth is compiled with LLVM's optimisations, the others without, which is several times faster::

    python benchmarks/ptx_mutants.py 100000 --keep FOLDER

A mutant is known by its seed and number: ``1 --first N`` runs one again, and ``--show N`` prints its text.  The last
line is JSON with the number of each outcome.  The exit status is 1 when the engine failed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.devices.virtual import VirtualDevice
from cupilot.gpu import load_spec
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run
from cupilot.vgpu.emit import KernelCode
from cupilot.vgpu.emit.verify import PARAM_BYTES
from cupilot.vgpu.machine import Machine
from cupilot.vgpu.ptx.parse import PtxError, parse_module
from cupilot.vgpu.translate import Translator

HERE = Path(__file__).parent
DEVICE = "a100-80gb"
DEADLINE_S = 0.2
HANG_S = 30.0
START_S = 300.0  # of a worker: it may have to compile the runtime
BATCH = 2000  # mutants of one process: native code is never given back
MEMORY_LIMIT_BYTES = 6 << 30
WORDS = 4096  # of a buffer
FAILURES = ("crash", "hang", "internal")


@dataclass(frozen=True)
class Subject:
    """One kernel's PTX."""

    name: str
    text: str


def corpus() -> list[Subject]:
    """The kernels as nvcc compiles them, one with all device functions, and those written by hand."""
    cuda = find_cuda()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "mutants.ptx"
        # without line numbers: a mutant that differs in those only shows little
        flags = ("-ptx", "-arch=sm_80", "-std=c++17", "-ccbin", cuda.host_compiler)
        # by its bare name, which assertions hold: mutants are the same wherever this file lies
        source = shutil.copy(HERE / "ptx_mutants.cu", folder)
        finished = run([cuda.nvcc, *flags, Path(source).name, "-o", out], Path(folder), timeout_s=120)
        if finished is None or finished.status != 0:
            sys.exit(f"ptx_mutants.cu does not compile: {finished.output if finished else 'time-out'}")
        # what follows the code is for debuggers
        text = out.read_text().split("\n\t.section")[0]
    head, *kernels = re.split(r"(?m)^(?=\t// \.globl)", text)
    # definitions of device functions stand last in the head; one kernel needs them
    defined = re.search(r"(?m)^\.func[^;{]*\n\{", head)
    variables = head[: defined.start()] if defined else head
    alone = re.sub(r"(?m)^\.global[^\n]*actions[^\n]*\n", "", variables)
    by_hand, *more = re.split(r"(?m)^(?=\.visible)", (HERE / "ptx_mutants.ptx").read_text())
    found = []
    for kernel in (*kernels, *more):
        name = re.findall(r"\.entry (\w+)", kernel)[0]
        found.append(Subject(name, (by_hand if kernel in more else head if name == "calls" else alone) + kernel))
    return sorted(found, key=lambda s: s.name)


# --- mutation --------------------------------------------------------------------------------------

REGISTER = re.compile(r"%[a-z]+\d+")
NUMBER = re.compile(r"(?<![\w.%$])-?(0[xXfFdD][0-9a-fA-F]+|\d+)\b")
MODIFIER = re.compile(r"(?<=\w)\.[a-z]\w*")
TYPE = re.compile(r"\.(?:[busf](?:8|16|32|64)|pred|f16x2|bf16|b128)\b")
OPCODE = re.compile(r"(?m)(?<=[\t ])[a-z]\w+(?=[. ])")
LABEL = re.compile(r"\$\w+")
NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "15", "16", "31", "32", "33", "63", "64", "127", "255", "256", "1023", "4095",
    "65535", "65536", "0x7fffffff", "0x80000000", "4294967295", "-2147483648", "0x7fffffffffffffff",
    "0xffffffffffffffff", "9223372036854775808", "123456789012345678901234567890", "0f7F800000", "0fFFC00000",
    "0dFFF8000000000000", "0f00000001", "1.5", "0x100000000000000",
)  # fmt: skip
SPECIAL = ("%tid.x", "%laneid", "%clock64", "%envreg2", "%warpid", "%nosuch", "_", "%p99", "tile", "%lanemask_lt")


class Mutator:
    """Makes mutant number n of a seed, always the same one."""

    def __init__(self, subjects: list[Subject], seed: int) -> None:
        self.subjects = subjects
        self.seed = seed
        everything = "\n".join(s.text for s in subjects)
        self.pools = {
            pattern: sorted(set(pattern.findall(everything))) for pattern in (REGISTER, MODIFIER, TYPE, OPCODE, LABEL)
        }
        self.lines = sorted({line for s in subjects for line in s.text.splitlines() if line.strip().endswith(";")})

    def mutant(self, number: int) -> Subject:
        rng = random.Random(f"{self.seed}:{number}")
        subject = rng.choice(self.subjects)
        text = subject.text
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            text = self._change(rng, text)
        return Subject(subject.name, text)

    def _change(self, rng: random.Random, text: str) -> str:
        way = rng.random()
        if way < 0.35:
            return self._change_lines(rng, text)
        if way < 0.93:
            return self._change_token(rng, text)
        position = rng.randrange(len(text) + 1)
        if way < 0.98:
            mark: str = rng.choice((*';,.[]{}()|!@%+-:="/* \n0', "", "//", "/*", "\u00e9", "\0"))
            return text[:position] + mark + text[position + rng.randrange(3) :]
        return text[:position]

    def _change_lines(self, rng: random.Random, text: str) -> str:
        lines = text.splitlines()
        # declarations are few, and code is what is executed
        first = next((n for n, line in enumerate(lines) if line.startswith("{")), 0) if rng.random() < 0.9 else 0
        if len(lines) - first < 2:
            return text
        a, b = (rng.randrange(first, len(lines)) for _ in range(2))
        way = rng.randrange(6)
        if way == 0:
            del lines[a]
        elif way == 1:
            lines.insert(b, lines[a])
        elif way == 2:
            lines[a], lines[b] = lines[b], lines[a]
        elif way == 3:
            lines.insert(b, lines.pop(a))
        elif way == 4:
            lines.insert(a, rng.choice(self.lines))
        else:
            del lines[a : a + rng.randrange(8)]
        return "\n".join(lines) + "\n"

    def _change_token(self, rng: random.Random, text: str) -> str:
        pattern = rng.choice(
            (REGISTER, REGISTER, NUMBER, NUMBER, NUMBER, MODIFIER, MODIFIER, TYPE, TYPE, OPCODE, LABEL)
        )
        places = list(pattern.finditer(text))
        if not places:
            return text
        place = rng.choice(places)
        if pattern is NUMBER:
            other = rng.choice(NUMBERS)
        elif pattern is REGISTER and rng.random() < 0.2:
            other = rng.choice((*SPECIAL, *NUMBERS))
        elif pattern is MODIFIER and rng.random() < 0.3:
            other = rng.choice(("", place.group() * 2))
        else:
            # mostly what this kernel has itself
            own = [p.group() for p in places]
            other = rng.choice(own if rng.random() < 0.7 else self.pools[pattern])
        return text[: place.start()] + other + text[place.end() :]


# --- workers ---------------------------------------------------------------------------------------


class QuickTranslator(Translator):
    """Parses a text once, compiles equal IR once, and optimises only when told to: most of the time went there."""

    parse = staticmethod(lru_cache(maxsize=1)(parse_module))

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__(library)
        self.level = 0
        self._known: dict[tuple[int, bytes], tuple[int, bytes]] = {}
        self._host, self._target = self._target, self

    def create_target_machine(self, **options: Any) -> Any:
        return self._host.create_target_machine(**options | {"opt": self.level})

    def _native(self, code: KernelCode, native: bytes) -> tuple[int, bytes]:
        key = self.level, sha256(code.ir.encode()).digest()
        if key not in self._known:
            self._known[key] = super()._native(code, native)
        return self._known[key]


class Runner:
    """Runs mutants in this process and says what became of each."""

    def __init__(self, cache: Path) -> None:
        spec = load_spec(DEVICE)
        device = VirtualDevice(spec, cache)
        self.machine = Machine(spec, device.runtime(), {}, device.name)
        self.translator = self.machine._translator = QuickTranslator(self.machine._library)
        rng = np.random.default_rng(3)
        self.contents = [
            rng.standard_normal(WORDS).astype(np.float32).view(np.uint32), rng.integers(0, 9, WORDS, dtype=np.uint32),
            np.zeros(WORDS, np.uint32), rng.integers(0, 1 << 32, WORDS, dtype=np.uint32),
        ]  # fmt: skip
        self.buffers = [self.machine.upload(content) for content in self.contents]

    def run(self, mutant: Subject, number: int) -> str:
        """Every other mutant runs on two host threads, and every eighth is optimised as kernels of users are."""
        m = self.machine
        self.translator.level = 0 if number % 8 else 2
        for address, content in zip(self.buffers, self.contents, strict=True):
            m.view(address, content.shape, content.dtype)[:] = content
        m.begin(None, DEADLINE_S, 1 + number % 2)
        status = m.start(m.load_ptx(mutant.text), mutant.name, (2, 1, 1), (64, 1, 1), self._arguments(mutant))
        findings = m.findings()
        if any("internal error" in finding.text for finding in findings):
            return f"internal {findings[0]}"
        if any(finding.kind == "unsupported" for finding in findings):
            return f"refused {findings[0]}"
        if any(finding.kind == "time-out" for finding in findings):
            return "time-out"
        if not findings and not status:
            m.launch(0)
            return "ran"
        return f"found {findings[0].kind}" if findings else f"status {status}"

    def _arguments(self, mutant: Subject) -> list[bytes]:
        """As many bytes as the mutant's parameters have: a host program gets these from the same declarations."""
        try:
            function = self.translator.parse(Translator.text(mutant.text.encode())).functions[mutant.name]
        except (PtxError, KeyError):
            return []  # will be refused
        if function.param_bytes > PARAM_BYTES:
            return []
        places = cycle(self.buffers)
        return [
            (struct.pack("<Q", next(places)) if p.bytes == 8 else struct.pack("<i", 64)).ljust(p.bytes, b"\0")
            for p in function.params
        ]


def work(mutator: Mutator, options: argparse.Namespace) -> None:
    """The worker's side: say which mutant comes next, then what became of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # kernels print
    runner = Runner(options.cache)
    gc.freeze()
    for number in range(options.first, options.first + options.count):
        print(f"begin {number}", file=report, flush=True)
        outcome = runner.run(mutator.mutant(number), number).replace("\n", " ")[:300]
        print(f"end {number} {outcome}", file=report, flush=True)


@dataclass
class Tally:
    """What became of the mutants; ``keep`` is told of those on which the engine failed."""

    keep: Callable[[int, str], None]
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, outcome: str) -> None:
        kind = outcome.split(maxsplit=1)[0]
        self.outcomes[kind] += 1
        if kind in FAILURES:
            self.keep(number, outcome)
            print(f"mutant {number}: {outcome}", flush=True)
        if (total := self.outcomes.total()) % 1000 == 0:
            print(f"{total} mutants: {dict(self.outcomes)}", flush=True)


def supervise(options: argparse.Namespace, corpus_file: Path, tally: Tally) -> None:
    """Run all mutants in one worker after the other; a worker that dies or hangs costs one mutant."""
    position, end = options.first, options.first + options.count
    while position < end:
        batch = min(BATCH, end - position)
        for number, outcome in _batch(options, corpus_file, position, batch):
            tally.add(number, outcome)
            position = number + 1


def _batch(options: argparse.Namespace, corpus_file: Path, first: int, count: int) -> Iterator[tuple[int, str]]:
    command = [sys.executable, __file__, str(count), "--first", str(first), "--seed", str(options.seed)]
    command += ["--cache", str(options.cache), "--corpus", str(corpus_file), "--worker"]
    with tempfile.TemporaryFile("w+") as errors:
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1)
        assert worker.stdout is not None
        at, ended, limit_s = first, first, START_S
        try:
            while True:
                ready, _, _ = select.select([worker.stdout], [], [], limit_s)
                line = worker.stdout.readline() if ready else ""
                if not line:
                    break
                word, number, *rest = line.split(maxsplit=2)
                at, limit_s = int(number), HANG_S
                if word == "end":
                    ended = at + 1
                    yield at, rest[0].strip()
            if ready:
                worker.wait()
        finally:
            if hung := worker.poll() is None:
                worker.kill()
                worker.wait()
        if ended < first + count:
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:]
            name = signal.Signals(-worker.returncode).name if worker.returncode < 0 else f"status {worker.returncode}"
            yield at, "hang" if hung else f"crash {name} {''.join(last)[:200]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--show", type=int, help="print a mutant instead")
    parser.add_argument("--keep", type=Path, help="folder for the texts of mutants on which the engine failed")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "cupilot", help="for compiled code")
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    given = json.loads(options.corpus.read_text()) if options.corpus else None
    subjects = [Subject(*pair) for pair in given] if given else corpus()
    mutator = Mutator(subjects, options.seed)
    if options.worker:
        work(mutator, options)
        return 0
    if options.show is not None:
        print(mutator.mutant(options.show).text)
        return 0

    def keep(number: int, outcome: str) -> None:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{options.seed}-{number}.ptx").write_text(f"// {outcome}\n{mutator.mutant(number).text}")

    tally, began_s = Tally(keep), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        corpus_file = Path(folder) / "corpus.json"
        corpus_file.write_text(json.dumps([(s.name, s.text) for s in subjects]))
        supervise(options, corpus_file, tally)
    failures = sum(tally.outcomes[kind] for kind in FAILURES)
    result = {"mutants": options.count, "seed": options.seed, "failures": failures, "outcomes": dict(tally.outcomes)}
    print(json.dumps(result | {"seconds": round(time.monotonic() - began_s, 1)}))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
