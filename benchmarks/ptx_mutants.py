"""Mutated PTX on the virtual GPU: refused, found out or run, but never a crash, a hang or an internal error.

The PTX of about a dozen kernels (ptx_mutants.cu, and the handwritten ones below) is changed in one to four places:
lines deleted, doubled, swapped and mixed between kernels; registers, numbers, types, modifiers, opcodes and single
characters replaced; the text cut off.  Mutants run in worker processes with short deadlines, every other one on two
host threads::

    python benchmarks/ptx_mutants.py 100000 --keep FOLDER

A mutant is known by its seed and number: ``1 --first N`` runs one again, and ``--show N`` prints its text.  The last
line is JSON with the number of each outcome.  The exit status is 1 when the engine failed.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np

from cupilot.devices.virtual import VirtualDevice
from cupilot.gpu import load_spec
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run
from cupilot.vgpu.emit.verify import PARAM_BYTES
from cupilot.vgpu.machine import Machine
from cupilot.vgpu.ptx.parse import PtxError, parse_module
from cupilot.vgpu.translate import Translator

HERE = Path(__file__).parent
DEVICE = "a100-80gb"
DEADLINE_S = 0.2
HANG_S = 30.0
START_S = 300.0  # of a worker: it may have to compile the runtime
BATCH = 500  # mutants of one process: native code is never given back
MEMORY_LIMIT_BYTES = 6 << 30
WORDS = 4096  # of a buffer
FAILURES = ("crash", "hang", "internal")

HANDWRITTEN = """.version 8.0
.target sm_80
.address_size 64
.global .align 16 .b8 words[256];
.const .align 4 .u32 fixed[4] = {1, 2, 0xFFFFFFFF, 4};
.visible .entry handwritten(.param .u64 p0, .param .align 16 .b8 p1[32], .param .u32 p2)
{
 .reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>; .reg .f64 %fd<4>;
 .shared .align 16 .b8 tile[1024];
 .local .align 16 .b8 own[64];
 ld.param.u64 %rd1, [p0];
 cvta.to.global.u64 %rd2, %rd1;
 mov.u32 %r1, %tid.x;
 mad.wide.u32 %rd3, %r1, 16, %rd2;
 ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3];
 ld.param.v2.b32 {%r2, %r3}, [p1+8];
 ld.param.u8 %rs1, [p1+31];
 mov.u32 %r4, tile;
 shl.b32 %r5, %r1, 4;
 add.u32 %r6, %r4, %r5;
 st.shared.v4.f32 [%r6], {%f1, %f2, %f3, %f4};
 bar.sync 1, 64;
 xor.b32 %r7, %r5, 16;
 ld.shared.v2.b64 {%rd4, %rd5}, [%r7];
 ld.shared.u32 %r8, [tile+1020];
 st.local.b64 [own+8], %rd4;
 ld.local.u32 %r9, [own+12];
 ld.const.u32 %r10, [fixed+8];
 mov.u64 %rd6, own;
 cvta.local.u64 %rd7, %rd6;
 st.u32 [%rd7+4], %r9;
 ld.u32 %r11, [%rd7+4];
 add.cc.u32 %r12, %r8, %r9;
 addc.cc.u32 %r13, %r10, %r11;
 madc.hi.u32 %r14, %r12, %r13, 7;
 setp.lt.and.s32 %p1|%p2, %r14, 17, %p3;
 bar.red.popc.u32 %r15, 0, %p1;
 barrier.sync.aligned 15;
 shfl.sync.idx.b32 %r16|%p4, %r15, %r1, 0x1f, 0xffffffff;
 lop3.b32 %r17, %r16, %r14, %r13, 0x96;
 prmt.b32 %r18, %r17, %r16, 0x1234;
 bfe.s32 %r19, %r18, %r1, 9;
 bfi.b32 %r20, %r19, %r18, 5, %r1;
 cvt.rn.f32.s32 %f5, %r20;
 fma.rn.ftz.f32 %f6, %f5, %f1, 0f3F000000;
 cvt.f64.f32 %fd1, %f6;
 div.rn.f64 %fd2, %fd1, 0d4008000000000000;
 div.s32 %r21, %r20, %r1;
 rem.u64 %rd8, %rd4, %rd5;
 mul.hi.s64 %rd9, %rd8, %rd4;
 @%p1 bra $SKIP;
 ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r22, %r23}, [%r6];
 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r22, %r23}, {%r17}, {%f1, %f2, %f3, %f4};
 atom.global.add.u32 %r24, [words+16], %r21;
 red.shared.max.s32 [tile], %r24;
$SKIP:
 cp.async.ca.shared.global [%r6], [%rd3], 16;
 cp.async.commit_group;
 cp.async.wait_group 0;
 membar.gl;
 isspacep.shared %p5, %rd7;
 selp.b32 %r25, %r21, %r20, %p5;
 vote.sync.ballot.b32 %r26, !%p5, -1;
 mov.b64 {%r27, %r28}, %rd9;
 min.f32 %f7, %f1, %f6;
 add.u32 %r29, %r29, 1;
 setp.lt.u32 %p6, %r29, 5;
 @%p6 bra $SKIP;
 st.global.v4.b32 [%rd3], {%r25, %r26, %r27, %r28};
 @!%p4 exit;
 ret;
}
"""


@dataclass(frozen=True)
class Subject:
    """One kernel's PTX."""

    name: str
    text: str


def corpus() -> list[Subject]:
    """The kernels as nvcc compiles them, each with all device functions, and the handwritten one."""
    cuda = find_cuda()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "mutants.ptx"
        flags = ("-ptx", "-arch=sm_80", "-std=c++17", "-lineinfo", "-ccbin", cuda.host_compiler)
        finished = run([cuda.nvcc, *flags, HERE / "ptx_mutants.cu", "-o", out], Path(folder), timeout_s=120)
        if finished is None or finished.status != 0:
            sys.exit(f"ptx_mutants.cu does not compile: {finished.output if finished else 'time-out'}")
        # what follows the code is for debuggers
        text = out.read_text().split("\n\t.section")[0]
    head, *kernels = re.split(r"(?m)^(?=\t// \.globl)", text)
    # definitions of device functions stand last in the head; one kernel needs them
    defined = re.search(r"(?m)^\.func[^;{]*\n\{", head)
    variables = head[: defined.start()] if defined else head
    alone = re.sub(r"(?m)^\.global[^\n]*actions[^\n]*\n", "", variables)
    found = [Subject("handwritten", HANDWRITTEN)]
    for kernel in kernels:
        name = re.findall(r"\.entry (\w+)", kernel)[0]
        found.append(Subject(name, (head if name == "calls" else alone) + kernel))
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
            mark = rng.choice((*';,.[]{}()|!@%+-:="/* \n0', "", "//", "/*", "\u00e9", "\0"))
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


class Runner:
    """Runs mutants in this process and says what became of each."""

    def __init__(self, cache: Path, scratch: Path) -> None:
        """What is translated is kept beside the runtime library: a copy of it in ``scratch`` has nothing to keep."""
        spec = load_spec(DEVICE)
        device = VirtualDevice(spec, cache)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        self.machine = Machine(spec, Path(shutil.copy(device.runtime(), scratch)), {}, device.name)
        rng = np.random.default_rng(3)
        self.contents = [
            rng.standard_normal(WORDS).astype(np.float32).view(np.uint32), rng.integers(0, 9, WORDS, dtype=np.uint32),
            np.zeros(WORDS, np.uint32), rng.integers(0, 1 << 32, WORDS, dtype=np.uint32),
        ]  # fmt: skip
        self.buffers = [self.machine.upload(content) for content in self.contents]

    def run(self, mutant: Subject, threads: int = 1) -> str:
        m = self.machine
        for address, content in zip(self.buffers, self.contents, strict=True):
            m.view(address, content.shape, content.dtype)[:] = content
        m.begin(None, DEADLINE_S, threads)
        status = m.start(m.load_ptx(mutant.text), mutant.name, (2, 1, 1), (64, 1, 1), self._arguments(mutant))
        findings = m.findings()
        if any("internal error" in finding.message for finding in findings):
            return f"internal {findings[0].message}"
        if any(finding.kind == "unsupported" for finding in findings):
            return f"refused {findings[0].message}"
        if any(finding.kind == "time-out" for finding in findings):
            return "time-out"
        if not findings and not status:
            m.launch(0)
            return "ran"
        return f"found {findings[0].kind}" if findings else f"status {status}"

    def _arguments(self, mutant: Subject) -> list[bytes]:
        """As many bytes as the mutant's parameters have: a host program gets these from the same declarations."""
        try:
            function = parse_module(Translator.text(mutant.text.encode())).functions[mutant.name]
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
    runner = Runner(options.cache, options.corpus.parent / "runtime")
    for number in range(options.first, options.first + options.count):
        print(f"begin {number}", file=report, flush=True)
        outcome = runner.run(mutator.mutant(number), 1 + number % 2).replace("\n", " ")[:300]
        print(f"end {number} {outcome}", file=report, flush=True)


@dataclass
class Tally:
    """What became of the mutants."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, number: int, outcome: str) -> None:
        kind = outcome.split(maxsplit=1)[0]
        self.outcomes[kind] += 1
        if kind in FAILURES:
            self.failed.append((number, outcome))
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
    tally, began_s = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        corpus_file = Path(folder) / "corpus.json"
        corpus_file.write_text(json.dumps([(s.name, s.text) for s in subjects]))
        supervise(options, corpus_file, tally)
    for number, outcome in tally.failed if options.keep else ():
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{options.seed}-{number}.ptx").write_text(f"// {outcome}\n{mutator.mutant(number).text}")
    failures = sum(tally.outcomes[kind] for kind in FAILURES)
    result = {"mutants": options.count, "seed": options.seed, "failures": failures, "outcomes": dict(tally.outcomes)}
    print(json.dumps(result | {"seconds": round(time.monotonic() - began_s, 1)}))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
