"""``cupilot profile``: the page (golden), the mistakes, and the command itself on the virtual GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from cupilot.cli import main
from cupilot.cli.profile_view import bars, compare, headroom, show
from cupilot.cli.terminal import Terminal
from cupilot.contracts import Built
from cupilot.evaluation.launch_view import count, unlike
from cupilot.evaluation.profiling import Profiled, Profiler, ProfileReport, profiled
from cupilot.gpu.spec import GpuSpec
from cupilot.records import (
    Counter,
    Failure,
    Kernel,
    Launch,
    LineCost,
    MemoryOperation,
    Profile,
    Resources,
    Timing,
    from_plain,
)
from cupilot.testing.samples import SPEC, TASK

GOLDEN = Path(__file__).parent / "golden"
Cli = Callable[..., SimpleNamespace]

SOURCE = """__global__ void relu(const float* x, float* y, int n) {
    extern __shared__ float part[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) part[i] = x[i];
    y[threadIdx.x] = fmaxf(part[threadIdx.x], 0.0f) + 1.0f;
}
"""


def counters(source: str, **values: float) -> tuple[Counter, ...]:
    return tuple(Counter(name, value, source) for name, value in values.items())


LAUNCH = Launch(
    kernel="_Z4reluPKfPfi",
    grid=(4096, 1, 1),
    block=(256, 1, 1),
    dynamic_shared_bytes=1024,
    resources=Resources(40, 0, 16),
    blocks_run=64,
    counters=(
        *counters("PTX", warp_instructions=5e5, lane_instructions=1.4e7, flop_fp32=1048576.0, shared_load_requests=4e4,
                  shared_store_requests=3e4, global_atomic_requests=10.0, global_atomic_steps=320.0,
                  global_atomic_sectors=10.0, global_atomic_bytes=1280.0),
        *counters("SASS", global_load_requests=32768.0, global_load_sectors=131072.0, global_load_bytes=4194304.0,
                  global_load_wavefronts=32768.0, global_store_requests=32768.0, global_store_sectors=131072.0,
                  global_store_bytes=4194304.0, shared_load_wavefronts=8e4, shared_load_conflicts=4e4,
                  shared_store_wavefronts=3e4),
        *counters("model", l1_hit_sectors=32768.0, l2_read_sectors=98304.0, l2_write_sectors=131072.0,
                  l2_hit_sectors=9830.0, dram_read_bytes=2831168.0, dram_write_bytes=4194304.0),
    ),
    lines=(LineCost(3, 3e5, 131072.0), LineCost(4, 2e5, 131072.0), LineCost(5, 10.0)),
)  # fmt: skip
SMALL = replace(LAUNCH, grid=(8, 2, 1), blocks_run=16)


class FakeDevice:
    """Takes 6 µs for a launch and 3 µs for anything else."""

    name = "virtual:sample"
    spec: GpuSpec = SPEC

    def __init__(self, outcome: Any = None, built: Any = None) -> None:
        self.outcome, self.built = outcome, built

    def time(self, profile: Profile) -> Timing:
        launches = {"dram": 4e-6, "latency": 1.99e-6, "l2": 1e-8}
        parts = tuple((name, time_s * len(profile.launches)) for name, time_s in launches.items() if profile.launches)
        parts += (("launch", 3e-6 * len(profile.operations)),) if profile.operations else ()
        return Timing(sum(time_s for _, time_s in parts), "modelled", self.name, parts[0][0], parts)

    def build(self, kernel: Kernel) -> Any:
        return self.built or Built(kernel, Path("none"), "", ())

    def run(self, built: Built, calls: Sequence[Any], timeout_s: float) -> tuple[Any, ...]:
        assert len(calls) == 1
        assert calls[0].sample_budget
        return (self.outcome,)


def made_up(*launches: Launch, operations: tuple[MemoryOperation, ...] = ()) -> Profiled:
    return profiled(FakeDevice(), TASK, Profile("virtual:sample", launches, operations, sampled=True))


def page(found: Profiled, capsys: pytest.CaptureFixture[str], kernel: Kernel | None = None) -> str:
    show(found, SPEC, kernel or Kernel(SOURCE), Terminal())
    # rich fills tables up with blanks
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("profile_one_launch", made_up(LAUNCH)),
        ("profile_two_launches", made_up(LAUNCH, SMALL, operations=(MemoryOperation("fill", 4096),))),
    ],
)
def test_the_page(name: str, found: Profiled, capsys: pytest.CaptureFixture[str]) -> None:
    assert page(found, capsys) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_many_launches_are_listed_and_the_longest_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = page(made_up(*[LAUNCH] * 30), capsys)
    assert "relu #1, launch 1 of 30" in text
    assert text.count("where the time goes") == 3
    assert "and 10 more, which --json has" in text


def test_no_launch_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    text = page(made_up(operations=(MemoryOperation("copy", 1 << 20),)), capsys)
    assert "where the time goes" not in text
    assert "not verified here" in text


def test_operations_that_do_not_count_are_the_task_s(capsys: pytest.CaptureFixture[str]) -> None:
    silent = replace(LAUNCH, counters=tuple(c for c in LAUNCH.counters if c.name != "flop_fp32"))
    text = page(made_up(silent), capsys)
    assert "the task's count is used" in text
    assert "relu" in text


def test_bars_are_in_order_and_what_is_small_is_added_up() -> None:
    parts = (("issue", 1e-9), ("dram", 7e-6), ("int", 2e-9), ("latency", 2.9e-6), ("launch", 9.7e-8))
    lines = bars(Timing(sum(t for _, t in parts), "modelled", "d", "dram", parts))
    assert [line.split()[0] for line in lines] == ["dram", "latency", "launch"]
    assert [line.split()[-2] for line in lines] == ["70", "29", "1.0"]
    assert lines[0].count("█") == 21


def test_headroom_below_the_limit_is_said_so() -> None:
    at = made_up(LAUNCH).standing
    assert headroom(replace(at, headroom=2.345)) == "2.35x above"
    assert headroom(replace(at, headroom=0.5)) == "2.00x below"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (512, "512"), (9999, "9999"), (16384, "16.4 k"), (2.5e9, "2.5 G")]
)
def test_counts(value: float, text: str) -> None:
    assert count(value) == text


def test_several_devices_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    found = made_up(LAUNCH)
    slower = replace(found, device="virtual:slow", timing=replace(found.timing, time_s=1e-3))
    compare([(found, SPEC), (slower, SPEC)], Terminal())
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["device", "time", "source", "limit", "zone", "headroom", "occupancy"]
    assert first.split()[:5] == ["virtual:sample", "6.00", "µs", "modelled", "dram"]
    assert "1.22x above the limit" in first
    assert second.startswith("virtual:slow")


def test_kernels_of_one_name_are_numbered() -> None:
    assert unlike(["a", "b", "a"]) == ["a #1", "b", "a #2"]


def test_a_failure_is_the_answer() -> None:
    profiler, kernel = Profiler(TASK), Kernel("", arguments="inputs[0]")
    no_build = Failure("build", "compile-error", "no")
    assert profiler(FakeDevice(built=no_build), kernel) is no_build


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("none.cu", "--task", "relu.py"), "the kernel file none.cu cannot be read: No such file"),
        (("good.cu",), "the following arguments are required: --task (see cupilot profile --help)"),
        (("good.cu", "--task", "none.py"), "the task file none.py does not exist"),
        (("good.cu", "--task", "relu.py", "--device", "cuda:9"), "unknown device 'cuda:9'"),
        (
            ("good.cu", "--task", "relu.py", "--device", "virtual:sample,"),
            "--device virtual:sample,: a name is missing",
        ),
        (("good.cu", "--task", "relu.py", "--device", "a,a"), "--device a,a: a device is named twice"),
        (("good.cu", "--task", "relu.py", "--plot", "x.jpg"), "--plot x.jpg: the file's name must end in .svg or .png"),
        (("good.cu", "--task", "relu.py", "--plot", "no/x.svg"), "--plot no/x.svg: there is no folder"),
        (("good.cu", "--task", "relu.py", "--json", "no/x.json"), "--json no/x.json: there is no folder"),
        (("good.cu", "--task", "relu.py", "--timeout", "0"), "argument --timeout: '0' is not a positive"),
    ],
)
def test_mistakes_are_one_sentence(cli: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    Path("good.cu").write_text("// a kernel\n")
    ran = cli("profile", *arguments)
    assert ran.status == 2
    assert ran.err.startswith(f"cupilot: {sentence}")
    assert ran.err.count("\n") == 1


def test_a_plot_without_the_extra_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    ran = cli("profile", "none.cu", "--task", "none.py", "--plot", "x.svg")
    assert ran.status == 2
    assert ran.err == "cupilot: charts need the Python package 'vl-convert-python': pip install 'cupilot[report]'\n"


# --- on the virtual GPU ----------------------------------------------------------------------

TWO_LAUNCHES = """#include <torch/extension.h>
template <int K> __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = K * x[i];
}
__global__ void sums(const float* y, float* out, int columns) {
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 32) sum += y[blockIdx.x * columns + c];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    auto out = torch::empty({x.size(0)}, x.options());
    int n = (int)x.numel();
    twice<2><<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    sums<<<x.size(0), 32>>>(y.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    return out;
}
"""
TASK_FILE = """import torch
ROWS, COLUMNS = 256, 512
class Model(torch.nn.Module):
    def forward(self, x):
        return (x * 2.0).sum(dim=1)
def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(TWO_LAUNCHES)
    Path("t.py").write_text(TASK_FILE)


def test_end_to_end(files: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("profile", "k.cu", "--task", "t.py", "--device", "virtual:a100-80gb")
    status = main([*words, "--json", "out.json", "--plot", "out.svg"])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    for text in (
        "twice<2>, launch 1 of 2", "sums, launch 2 of 2", "if (i < n) y[i] = K * x[i];", "grid 512x1x1, block 256x1x1",
        "(modelled, virtual:a100-80gb)", "the task is memory-bound", "x above the limit", "SASS", "picture: out.svg",
        "not verified here: cupilot evaluate does that",
    ):  # fmt: skip
        assert text in out
    report = from_plain(ProfileReport, json.loads(Path("out.json").read_text()))
    assert (report.task, report.precision, report.verified, report.failures) == ("t", "fp32", False, ())
    (found,) = report.devices
    elements = 256 * 512
    assert found.places[0].flop == elements
    # every element is read and written once
    assert found.places[0].levels[0].bytes == 2 * 4 * elements
    assert found.places[0].levels[0].intensity == 0.125
    assert [place.label for place in found.places] == ["twice<2>", "sums", "the whole call"]
    assert sum(time.time_s for time in found.times) <= found.timing.time_s
    assert found.standing.headroom == pytest.approx(found.timing.time_s / found.standing.bound_s)
    root = ElementTree.parse("out.svg").getroot()
    assert any("twice<2> by bytes of DRAM" in mark.get("aria-label", "") for mark in root.iter())


def test_end_to_end_on_two_devices(files: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("profile", "k.cu", "--task", "t.py", "--device", "virtual:a100-80gb,virtual:t4", "--plot", "out.svg")
    assert main(words) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("virtual:")}
    assert set(rows) == {"virtual:a100-80gb", "virtual:t4"}
    assert all("x above the limit" in row for row in rows.values())
    assert Path("out-virtual-a100-80gb.svg").exists()
    assert Path("out-virtual-t4.svg").exists()
    assert not Path("out.svg").exists()


def test_end_to_end_with_findings(files: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.cu").write_text(TWO_LAUNCHES.replace("y[i] =", "y[i - 5000] ="))
    assert main(["profile", "k.cu", "--task", "t.py", "--json", "out.json"]) == 0
    assert "finding: out-of-bounds write" in capsys.readouterr().out
    report = from_plain(ProfileReport, json.loads(Path("out.json").read_text()))
    assert report.failures == ()
    assert report.devices[0].finding is not None
    assert report.devices[0].finding.kind == "out-of-bounds"


def test_end_to_end_with_a_kernel_that_stops(files: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.cu").write_text(TWO_LAUNCHES.replace("y[i] =", "__trap(); y[i] ="))
    assert main(["profile", "k.cu", "--task", "t.py", "--json", "out.json"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("cupilot: k.cu has no profile on virtual:a100-80gb (run, ")
    assert err.count("\n") == 1
    report = from_plain(ProfileReport, json.loads(Path("out.json").read_text()))
    assert report.devices == ()
    assert report.failures[0][1].stage == "run"
