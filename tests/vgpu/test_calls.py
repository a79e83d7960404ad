"""Device functions: frames, recursion, pointers, what CUDA provides to kernels; compiled by nvcc."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from ptxkit import INDEX, Bench

from cupilot.records import Finding
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run

SOURCE = r"""
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>

__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n == 0 ? false : even(n - 1); }
extern "C" __global__ void recursion(int* out) {
    int i = threadIdx.x, sum = i;
    // lanes recurse to different depths, and what lives across the calls must survive
    for (int k = 0; k < 3; k++) sum += fib((i + k) % 9) * (k + 1);
    if (i % 3) sum += 1000 * even(i); else sum += 2000 * odd(i + 1);
    out[i] = sum;
}

__device__ __noinline__ float sum2(float a, float b) { return a + b; }
__device__ __noinline__ float mul2(float a, float b) { return a * b; }
__device__ __noinline__ float sub2(float a, float b) { return a - b; }
typedef float (*Two)(float, float);
__device__ Two table[3] = {sum2, mul2, sub2};
extern "C" __global__ void pointers(float* out) {
    int i = threadIdx.x;
    float x = table[i % 3](i, 3.0f);
    if (i & 4) x = table[(i / 8) % 3](x, x);
    out[i] = x;
}
extern "C" __global__ void bad_pointer(float* out) {
    Two f = (Two)(unsigned long long)(threadIdx.x + 99);
    out[threadIdx.x] = f(1.0f, 2.0f);
}

struct Shape { __device__ virtual float area() const = 0; float side; };
struct Square : Shape { __device__ float area() const override { return side * side; } };
struct Circle : Shape { __device__ float area() const override { return 3.0f * side * side; } };
extern "C" __global__ void classes(float* out) {
    int i = threadIdx.x;
    Shape* shape;
    if (i % 2) shape = new Square; else shape = new Circle;
    shape->side = i;
    out[i] = shape->area();
    delete shape;
}

struct Big { float v[7]; char c; double d; };
__device__ __noinline__ Big change(Big b, int k) { b.v[k] += 1.5f; b.c++; b.d *= 2; return b; }
extern "C" __global__ void structs(float* out) {
    int i = threadIdx.x;
    Big b = {};
    for (int k = 0; k < 7; k++) b.v[k] = i * k;
    b.c = i, b.d = i;
    b = change(b, i % 7);
    out[i] = b.v[i % 7] + b.c + (float)b.d + b.v[(i + 1) % 7];
}

__device__ __noinline__ void meet(float* s, int i) { s[i] = i; __syncthreads(); }
extern "C" __global__ void barrier_inside(float* out) {
    __shared__ float s[64];
    meet(s, threadIdx.x);
    out[threadIdx.x] = s[63 - threadIdx.x];
}

extern "C" __global__ void endless(int* out) {
    struct Deep {
        static __device__ __noinline__ int go(int n) {
            int a[64];
            a[n % 64] = n;
            return n < 0 ? a[n & 63] : go(n + 1) + a[1];
        }
    };
    out[threadIdx.x] = Deep::go(threadIdx.x);
}

extern "C" __global__ void early(int* out) {
    struct Quit { static __device__ __noinline__ int some(int i) { if (i % 2) asm volatile("exit;"); return i; } };
    int i = threadIdx.x;
    int got = Quit::some(i);
    out[i] = got + 1;
}

extern "C" __global__ void claims(int* out) { assert(threadIdx.x < 40 && "a \"b\" \\ é"); out[threadIdx.x] = 1; }
extern "C" __global__ void prints(int* out) {
    if (threadIdx.x % 16 == 3) out[threadIdx.x] = printf("%d %s %.2f\n", threadIdx.x, "word", threadIdx.x / 4.0);
}

extern "C" __global__ void cases(int* out, int shift) {
    int i = threadIdx.x;
    switch (i + shift) {
        case 0: out[i] = 5; break; case 1: out[i] = 17; break; case 2: out[i] = i * 3; break;
        case 3: out[i] = ~i; break; case 4: out[i] = i << 4; break; case 5: out[i] = i * i; break;
        case 6: out[i] = 99; break; case 7: out[i] = i - 7; break; default: out[i] = -1;
    }
}

struct Table { int v[16]; };
extern "C" __global__ void indexed(int* out, const __grid_constant__ Table t) {
    const int* p = t.v;
    out[threadIdx.x] = p[threadIdx.x % 16] + t.v[(threadIdx.x * 5) % 16];
}

namespace cg = cooperative_groups;
extern "C" __global__ void grid_wide(int* data, int* out) {
    cg::grid_group grid = cg::this_grid();
    int i = grid.thread_rank();
    for (int round = 0; round < 3; round++) {
        data[i] = i + round;
        grid.sync();
        int n = grid.size();
        int got = data[(i + 128) % n];
        grid.sync();
        out[i] = round == 0 ? got : out[i] + got;
    }
}
extern "C" __global__ void waits_for_the_next(volatile int* flags, int* out) {
    // block 0 waits for the last block
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) while (!flags[gridDim.x - 1]) { }
        __threadfence();
        flags[blockIdx.x] = 1;
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x;
}
"""


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("calls")
    (folder / "calls.cu").write_text(SOURCE)
    cuda = find_cuda()
    finished = run(
        [
            cuda.nvcc,
            "-ptx",
            "-arch=sm_80",
            "-lineinfo",
            "calls.cu",
            "-o",
            "calls.ptx",
            *(f"-I{p}" for p in cuda.include),
        ],
        folder,
        timeout_s=120,
    )
    assert finished is not None
    assert finished.status == 0, finished.output
    return Path(folder / "calls.ptx").read_text()


class Compiled:
    def __init__(self, bench: Bench, text: str) -> None:
        self.machine = bench.machine
        self.number = self.machine.load_ptx(text)

    def run(
        self,
        kernel: str,
        *outputs: np.ndarray,
        extra: bytes = b"",
        threads: int = 64,
        grid: int = 1,
        cooperative: bool = False,
    ) -> list[np.ndarray]:
        machine = self.machine
        addresses = [machine.upload(output) for output in outputs]
        arguments = [struct.pack("<Q", address) for address in addresses]
        machine.begin(None, 20.0)
        self.status = machine.start(
            self.number,
            kernel,
            (grid, 1, 1),
            (threads, 1, 1),
            [*arguments, *([extra] if extra else [])],
            cooperative=cooperative,
        )
        self.findings: tuple[Finding, ...] = machine.findings()
        got = [machine.view(a, o.shape, o.dtype).copy() for a, o in zip(addresses, outputs, strict=True)]
        for address in addresses:
            machine.free(address)
        return got

    def clean(self, kernel: str, *outputs: np.ndarray, **options: object) -> np.ndarray:
        got = self.run(kernel, *outputs, **options)  # type: ignore[arg-type]
        assert self.findings == ()
        assert self.status == 0
        return got[-1]


@pytest.fixture(scope="module")
def compiled(bench: Bench, ptx: str) -> Compiled:
    return Compiled(bench, ptx)


INTS, FLOATS = np.zeros(64, np.int32), np.zeros(64, np.float32)
LANES = range(64)


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_recursion(compiled: Compiled) -> None:
    wanted = [
        i + sum(fib((i + k) % 9) * (k + 1) for k in range(3)) + (1000 * (i % 2 == 0) if i % 3 else 2000 * ((i + 1) % 2))
        for i in LANES
    ]
    assert compiled.clean("recursion", INTS).tolist() == wanted


def test_function_pointers_that_differ_between_lanes(compiled: Compiled) -> None:
    functions = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b)
    wanted = []
    for i in LANES:
        x = functions[i % 3](i, 3)
        wanted.append(functions[i // 8 % 3](x, x) if i & 4 else x)
    assert compiled.clean("pointers", FLOATS).tolist() == wanted


def test_a_pointer_that_is_no_function(compiled: Compiled) -> None:
    compiled.run("bad_pointer", FLOATS)
    assert compiled.findings[0].kind == "bad-call"
    assert compiled.status == 718


def test_virtual_functions_and_device_memory(compiled: Compiled) -> None:
    assert compiled.clean("classes", FLOATS).tolist() == [i * i * (1 if i % 2 else 3) for i in LANES]


def test_structs_by_value(compiled: Compiled) -> None:
    wanted = [i * (i % 7) + 1.5 + (i + 1) + 2 * i + i * ((i + 1) % 7) for i in LANES]
    assert compiled.clean("structs", FLOATS).tolist() == wanted


def test_a_barrier_in_a_called_function(compiled: Compiled) -> None:
    assert compiled.clean("barrier_inside", FLOATS).tolist() == [63 - i for i in LANES]


def test_recursion_without_an_end(compiled: Compiled) -> None:
    compiled.run("endless", INTS)
    assert [f.kind for f in compiled.findings] == ["stack-overflow"]
    assert compiled.status == 719


def test_threads_that_end_in_a_called_function(compiled: Compiled) -> None:
    assert compiled.clean("early", INTS).tolist() == [0 if i % 2 else i + 1 for i in LANES]


def test_assert(compiled: Compiled) -> None:
    compiled.run("claims", INTS)
    assert compiled.status == 710
    (finding,) = compiled.findings
    assert finding.kind == "assert"
    assert finding.text == r"""assertion `threadIdx.x < 40 && "a \"b\" \\ é"` failed in void claims(int *)"""
    line = 1 + SOURCE.split("\n").index(next(line for line in SOURCE.split("\n") if "void claims" in line))
    assert (finding.kernel, finding.file, finding.line) == ("claims", "calls.cu", line)
    assert (finding.thread, finding.threads) == ((40, 0, 0), 24)


def test_printf_counts_its_arguments(compiled: Compiled) -> None:
    """Unlike that of C, which counts characters."""
    out = compiled.clean("prints", INTS)
    assert {i: int(out[i]) for i in LANES if out[i]} == dict.fromkeys((3, 19, 35, 51), 3)


@pytest.mark.parametrize("shift", [0, -3, 7])
def test_a_table_of_cases(compiled: Compiled, shift: int) -> None:
    def wanted(i: int) -> int:
        return {0: 5, 1: 17, 2: i * 3, 3: ~i, 4: i << 4, 5: i * i, 6: 99, 7: i - 7}.get(i + shift, -1)

    assert compiled.clean("cases", INTS, extra=struct.pack("<i", shift)).tolist() == [wanted(i) for i in LANES]


def test_an_index_into_a_parameter(compiled: Compiled) -> None:
    table = [i * i for i in range(16)]
    out = compiled.clean("indexed", INTS, extra=struct.pack("<16i", *table))
    assert out.tolist() == [table[i % 16] + table[i * 5 % 16] for i in LANES]


def test_a_table_of_branches(bench: Bench) -> None:
    body = f"""{INDEX} ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd0, %r0, 4, %rd0; and.b32 %r3, %r0, 3;
    T: .branchtargets A, B, C, A; brx.idx %r3, T;
    A: mov.u32 %r4, 10; bra D; B: mov.u32 %r4, 20; bra D; C: mov.u32 %r4, 30; D: st.global.u32 [%rd0], %r4; ret;"""
    (out,) = bench.clean(body, np.zeros(32, np.uint32))
    assert out.tolist() == [(10, 20, 30, 10)[i % 4] for i in range(32)]


def test_a_block_that_waits_for_a_later_one(compiled: Compiled) -> None:
    flags, out = np.zeros(6, np.int32), np.zeros(6 * 64, np.int32)
    got = compiled.clean("waits_for_the_next", flags, out, grid=6)
    assert got.tolist() == [i // 64 for i in range(6 * 64)]


def test_a_grid_that_waits_for_itself(compiled: Compiled) -> None:
    data, out = np.zeros(256, np.int32), np.zeros(256, np.int32)
    got = compiled.clean("grid_wide", data, out, grid=4, cooperative=True)
    assert got.tolist() == [sum((i + 128) % 256 + k for k in range(3)) for i in range(256)]
