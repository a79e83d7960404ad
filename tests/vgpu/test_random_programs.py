"""Random programs on the engine against a thread-by-thread interpreter."""

from __future__ import annotations

import random

import numpy as np
import pytest
from programs import VARIABLES, Printer, Writer, interpret
from ptxkit import INDEX, Bench, pointer

START = f"""{INDEX}{pointer(0, size=4)}{pointer(1, size=4 * VARIABLES)}
 mov.u32 %r10, %r0; ld.param.b32 %r11, [p2]; ld.global.u32 %r12, [%rd0]; mov.u32 %r13, 5;
 mov.u32 %r14, %ctaid.x; shr.u32 %r15, %r0, 2;
"""
BATCH = 8


@pytest.mark.parametrize("seed", range(0, 72, BATCH))
def test_engine_and_interpreter_agree(bench: Bench, seed: int) -> None:
    for number in range(seed, seed + BATCH):
        rng = random.Random(number)
        program = Writer(number).program()
        body = START + Printer(rng).body(program)
        threads, blocks = rng.choice((1, 17, 32, 40, 64)), rng.randint(1, 2)
        data = np.random.default_rng(number).integers(0, 1 << 32, threads * blocks, dtype=np.uint32)
        _, _, parameter = start = (data, np.zeros((data.size, VARIABLES), np.uint32), np.uint32(rng.getrandbits(32)))
        ran = bench.run(body, *start, threads=threads, grid=blocks)
        wanted = [interpret(program, [i, int(parameter), int(d), 5, i // threads, i >> 2]) for i, d in enumerate(data)]
        assert ran.findings == (), f"seed {number}\n{body}"
        assert ran.buffers[1].tolist() == wanted, f"seed {number}\n{body}"
