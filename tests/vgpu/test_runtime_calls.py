"""Runtime calls as CUDA programs see them: the programs check the results themselves, with CUDA's documented values."""

from __future__ import annotations

import ctypes
import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ptxkit import Bench

from cupilot.contracts import Device

CALLS = Path(__file__).with_name("runtime_calls.cu").read_text()


def run(folder: Path, section: str) -> subprocess.CompletedProcess[str]:
    """The compiled program is kept by content, so only the first run compiles."""
    (folder / "calls.cu").write_text(CALLS)
    command = [sys.executable, "-m", "cupilot", "run", "calls.cu", "--", section]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, device: Device) -> Path:
    return tmp_path_factory.mktemp("calls")


def test_calls_give_what_the_documentation_says(folder: Path) -> None:
    done = run(folder, "all")
    assert (done.stdout, done.stderr, done.returncode) == ("all as documented\n", "", 0)


def test_a_kernel_that_fails_makes_every_later_call_fail(folder: Path) -> None:
    done = run(folder, "illegal")
    assert done.stdout == "all as documented\n"
    assert done.returncode == 86
    assert "out-of-bounds" in done.stderr
    assert "misaligned" in done.stderr


def test_a_call_that_is_not_there_is_named(folder: Path) -> None:
    done = run(folder, "array")
    assert done.stdout == "all as documented\n"
    assert done.returncode == 86
    assert "unsupported on the virtual GPU: the runtime call cudaMallocArray" in done.stderr


# --- printf in kernels ------------------------------------------------------------------------


def packed(*values: tuple[str, object]) -> bytes:
    """vprintf's buffer: every value aligned to its own size, as `struct` does it for native types."""
    return struct.pack("".join(kind for kind, _ in values), *(value for _, value in values))


@pytest.mark.parametrize(
    ("form", "values", "text"),
    [
        ("plain 100%%\n", (), "plain 100%\n"),
        ("%d,%i|%5d|%-5d|%05d|%+d", [("i", n) for n in (-1, 2, 3, 4, -5, 6)], "-1,2|    3|4    |-0005|+6"),
        ("%u %x %X %#x %o", [("I", n) for n in (2**32 - 1, 255, 48879, 16, 8)], "4294967295 ff BEEF 0x10 10"),
        ("%lld %ld %d", [("q", -(2**62)), ("q", 2**40), ("i", 7)], f"{-(2**62)} {2**40} 7"),
        ("%d %lu %zu", [("i", 7), ("Q", 2**64 - 1), ("Q", 9)], f"7 {2**64 - 1} 9"),
        ("%hd %hhu %hu", [("i", 65535 + 2), ("i", 511), ("i", -1)], "1 255 65535"),
        ("%c%c|%3c", [("i", ord(c)) for c in "abc"], "ab|  c"),
        ("%d %f %d", [("i", 1), ("d", 1.5), ("i", 2)], "1 1.500000 2"),
        ("%.3f %10.2e %g %G", [("d", x) for x in (math.pi, -12345.678, 1e-7, 1e20)], "3.142  -1.23e+04 1e-07 1E+20"),
        ("%f %f", [("d", math.inf), ("d", -0.0)], "inf -0.000000"),
        ("%a", [("d", 1.0)], "0x1p+0"),
        ("%*d|%-*.*f|", [("i", 4), ("i", 7), ("i", 6), ("i", 1), ("d", 2.25)], "   7|2.2   |"),
        ("%p", [("Q", 0x1234)], "0x1234"),
        ("%s", [("Q", 0)], "(null)"),
        ("%y %d", [("i", 3)], "%y 3"),
    ],
)
def test_printf_formats_as_c_does(bench: Bench, form: str, values: list[tuple[str, object]], text: str) -> None:
    buffer = packed(*values)
    out = ctypes.create_string_buffer(256)
    length = bench.machine._library.vgc_format_print(form.encode(), buffer, out, ctypes.c_uint64(256))
    assert (out.value.decode(), length) == (text, len(text))


def test_printf_takes_strings_from_device_memory(bench: Bench) -> None:
    address = bench.machine.upload(np.frombuffer(b"seen\0not seen", np.uint8))
    endless = bench.machine.upload(np.frombuffer(b"no end", np.uint8))
    out = ctypes.create_string_buffer(256)
    buffer = struct.pack("iQiQ", 1, address, 2, endless)
    bench.machine._library.vgc_format_print(b"%d %6s %d %.4s|", buffer, out, ctypes.c_uint64(256))
    assert out.value == b"1   seen 2 no e|"
    bench.machine._library.vgc_format_print(b"%s", struct.pack("Q", endless), out, ctypes.c_uint64(256))
    assert out.value == b"no end"
