"""CUDA's mathematical functions have the errors that NVIDIA documents: accurate ones no more, fast ones up to it.

Bounds are from the CUDA C++ Programming Guide, "Mathematical Functions" (maximum ulp errors of the standard and of the
intrinsic functions) and, for instructions, from the PTX ISA.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from ptxkit import Bench

from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run

Floats = NDArray[np.float64]
COUNT = 4096


@dataclass(frozen=True)
class Function:
    """A CUDA expression of ``v``, what it approximates, the operands to try, and its documented error."""

    text: str
    true: Callable[[float], float]
    low: float
    high: float
    ulps: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    spread: bool = False
    """Operands evenly over the exponents, both signs where ``low`` is negative."""


def _wide(function: Callable[[mpmath.mpf], mpmath.mpf]) -> Callable[[float], float]:
    return lambda v: float(function(mpmath.mpf(v)))


ACCURATE = (
    Function("expf(v)", math.exp, -87, 88, ulps=2),
    Function("exp2f(v)", lambda v: 2.0**v, -125, 127, ulps=2),
    Function("exp10f(v)", lambda v: 10.0**v, -37, 38, ulps=2),
    Function("expm1f(v)", math.expm1, -20, 80, ulps=1),
    Function("expm1f(v * 0.001f)", lambda v: math.expm1(_f32(v * _f32(0.001))), -50, 50, ulps=1),
    Function("logf(v)", math.log, 2e-38, 3e38, ulps=1, spread=True),
    Function("logf(v)", math.log, 0.9, 1.1, ulps=1),
    Function("log2f(v)", math.log2, 2e-38, 3e38, ulps=1, spread=True),
    Function("log10f(v)", math.log10, 2e-38, 3e38, ulps=2, spread=True),
    Function("log1pf(v)", math.log1p, 1e-8, 1e8, ulps=1, spread=True),
    Function("sinf(v)", math.sin, -1e5, 1e5, ulps=2, spread=True),
    Function("cosf(v)", math.cos, -1e5, 1e5, ulps=2, spread=True),
    Function("tanf(v)", math.tan, -1e4, 1e4, ulps=4, spread=True),
    Function("sinpif(v)", _wide(mpmath.sinpi), -20, 20, ulps=1),
    Function("cospif(v)", _wide(mpmath.cospi), -20, 20, ulps=1),
    Function("asinf(v)", math.asin, -1, 1, ulps=2),
    Function("acosf(v)", math.acos, -1, 1, ulps=2),
    Function("atanf(v)", math.atan, -1e5, 1e5, ulps=2, spread=True),
    Function("atan2f(v, 3.0f)", lambda v: math.atan2(v, 3), -1e5, 1e5, ulps=3, spread=True),
    Function("sinhf(v)", math.sinh, -80, 80, ulps=3),
    Function("coshf(v)", math.cosh, -80, 80, ulps=2),
    Function("tanhf(v)", math.tanh, -20, 20, ulps=2, spread=True),
    Function("asinhf(v)", math.asinh, -1e6, 1e6, ulps=3, spread=True),
    Function("acoshf(v)", math.acosh, 1.001, 1e6, ulps=4, spread=True),
    Function("atanhf(v)", math.atanh, -0.999, 0.999, ulps=3),
    Function("powf(v, 1.7f)", lambda v: v ** _f32(1.7), 1e-20, 1e20, ulps=4, spread=True),
    Function("powf(1.3f, v)", lambda v: _f32(1.3) ** v, -300, 300, ulps=4),
    Function("erff(v)", math.erf, -4, 4, ulps=2),
    Function("erfcf(v)", math.erfc, -4, 9, ulps=4),
    # documented with 2 ulp; it takes lg2.approx, and if that has all of its documented error there is one more
    Function("erfinvf(v)", _wide(mpmath.erfinv), -0.999, 0.999, ulps=3),
    Function("normcdff(v)", _wide(mpmath.ncdf), -10, 5, ulps=5),
    Function("lgammaf(v)", math.lgamma, 0.1, 1e4, ulps=6, spread=True),
    Function("tgammaf(v)", math.gamma, -10.2, 34, ulps=5),
    Function("cbrtf(v)", lambda v: math.copysign(abs(v) ** (1 / 3), v), -1e30, 1e30, ulps=1, spread=True),
    Function("rsqrtf(v)", lambda v: 1 / math.sqrt(v), 2e-38, 3e38, ulps=2, spread=True),
    Function("hypotf(v, 2.5f)", lambda v: math.hypot(v, 2.5), -1e6, 1e6, ulps=3, spread=True),
    Function("1.0f / (1.0f + expf(-v))", lambda v: 1 / (1 + math.exp(-v)), -80, 80, ulps=4),
)
FAST = (
    Function("__sinf(v)", math.sin, -6.28, 6.28, absolute=2.0**-20.5),
    Function("__cosf(v)", math.cos, -6.28, 6.28, absolute=2.0**-20.5),
    Function("__sinf(v)", math.sin, -300, 300, absolute=2.0**-14.7),
    Function("__log2f(v)", math.log2, 0.5, 2, absolute=2.0**-22),
    Function("__log2f(v)", math.log2, 2.01, 1e30, relative=2.0**-22, spread=True),
    Function("__tanhf(v)", math.tanh, -5, 5, relative=2.0**-11),
    Function("__fdividef(1.0f, v)", lambda v: 1 / v, 1e-30, 1e30, ulps=2, spread=True),
    Function("rsqrtf(v)", lambda v: 1 / math.sqrt(v), 1e-30, 1e30, relative=2.0**-22.9, spread=True),
    Function("ex2(v)", lambda v: 2.0**v, -100, 100, ulps=2),
    Function("rcp(v)", lambda v: 1 / v, 1e-30, 1e30, ulps=1, spread=True),
)
HEAD = r"""
__device__ float ex2(float v) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
__device__ float rcp(float v) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
"""


def _f32(value: float) -> float:
    return float(np.float32(value))


def operands(function: Function, count: int = COUNT) -> NDArray[np.float32]:
    rng = np.random.default_rng(7)
    if not function.spread:
        return rng.uniform(function.low, function.high, count).astype(np.float32)
    low = np.log(function.low if function.low > 0 else 1e-6)
    values = np.exp(rng.uniform(low, np.log(function.high), count))
    return (values * (rng.choice((-1, 1), count) if function.low < 0 else 1)).astype(np.float32)


def errors(function: Function, bench: Bench, module: int, number: int) -> Floats:
    """In units of what is documented."""
    machine, x = bench.machine, operands(function)
    addresses = [machine.upload(array) for array in (x, np.zeros_like(x))]
    machine.begin(None, 20.0)
    data = [struct.pack("<Q", address) for address in addresses]
    assert machine.start(module, f"f{number}", (COUNT // 128, 1, 1), (128, 1, 1), data) == 0
    got = machine.view(addresses[1], x.shape, x.dtype).copy()
    for address in addresses:
        machine.free(address)
    true = np.array([function.true(float(v)) for v in x])
    kept = np.isfinite(true) & (np.abs(true) > 2e-38)
    true, got = true[kept], got[kept]
    if function.ulps:
        nearest = true.astype(np.float32)
        unit = function.ulps * np.spacing(np.abs(nearest)).astype(np.float64)
        return np.abs(got.astype(np.float64) - nearest) / unit
    return np.abs(got - true) / (function.absolute + function.relative * np.abs(true))


@pytest.fixture(scope="module")
def functions(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> int:
    folder: Path = tmp_path_factory.mktemp("functions")
    source = HEAD + "".join(
        f'extern "C" __global__ void f{number}(const float* x, float* y) {{\n'
        f"    int i = blockIdx.x * blockDim.x + threadIdx.x; float v = x[i]; y[i] = {function.text};\n}}\n"
        for number, function in enumerate((*ACCURATE, *FAST))
    )
    (folder / "functions.cu").write_text(source)
    cuda = find_cuda()
    flags = ("-ptx", "-arch=sm_80", "-std=c++17", "-ccbin", cuda.host_compiler)
    finished = run([cuda.nvcc, *flags, "functions.cu", "-o", "functions.ptx"], folder, timeout_s=120)
    assert finished is not None
    assert finished.status == 0, finished.output
    return bench.machine.load_ptx((folder / "functions.ptx").read_text())


@pytest.mark.parametrize("number", range(len(ACCURATE)), ids=lambda number: ACCURATE[number].text)
def test_accurate_functions_stay_within_their_errors(bench: Bench, functions: int, number: int) -> None:
    found = errors(ACCURATE[number], bench, functions, number)
    assert found.max() <= 1, found.max() * ACCURATE[number].ulps


@pytest.mark.parametrize("number", range(len(FAST)), ids=lambda number: FAST[number].text)
def test_fast_functions_use_up_their_errors(bench: Bench, functions: int, number: int) -> None:
    found = errors(FAST[number], bench, functions, len(ACCURATE) + number)
    assert 0.8 < found.max() <= 1
    if not FAST[number].ulps:  # spread over the bound, not at its ends
        assert 0.1 < np.median(found) < 0.75


def test_special_operands_are_exact(bench: Bench) -> None:
    names = ("ex2.approx", "lg2.approx", "sin.approx", "cos.approx", "tanh.approx", "rcp.approx", "rsqrt.approx")
    inf, nan = math.inf, math.nan
    given = np.array([0.0, -0.0, inf, -inf, nan], np.float32)
    wanted = {
        "ex2.approx": (1, 1, inf, 0, nan), "lg2.approx": (-inf, -inf, inf, nan, nan),
        "sin.approx": (0.0, -0.0, nan, nan, nan), "cos.approx": (1, 1, nan, nan, nan),
        "tanh.approx": (0.0, -0.0, 1, -1, nan), "rcp.approx": (inf, -inf, 0.0, -0.0, nan),
        "rsqrt.approx": (inf, -inf, 0.0, nan, nan),
    }  # fmt: skip
    load = "ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd3, %r0, 4;"
    for name in names:
        body = f"{load} add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3; ld.global.f32 %f1, [%rd1];"
        body += f" {name}.f32 %f2, %f1; st.global.f32 [%rd2], %f2; ret;"
        _, got = bench.clean(body, given, np.zeros_like(given), threads=5)
        want = np.array(wanted[name], np.float32)
        assert np.array_equal(got, want, equal_nan=True), (name, got)
        assert np.array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0])), name
