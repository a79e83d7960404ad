"""Tasks that misbehave: each is one sentence, nothing of it is left, and the command goes on."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cupilot.arrays import Filed
from cupilot.errors import TaskError
from cupilot.places import Runs
from cupilot.records import Task, TaskSource
from cupilot.sandbox.fork_server import ForkServer
from cupilot.sandbox.process import Limits
from cupilot.tasks import process
from cupilot.tasks.case import draw_case, make_case
from cupilot.tasks.draw import KINDS
from cupilot.tasks.load import task_from_source
from cupilot.tasks.process import TaskProcess, open_server, process_of

FORM = """
import torch
ROWS, COLUMNS = 64, 96

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(COLUMNS, 32)
    def forward(self, x):
        {forward}return torch.relu(self.linear(x))

def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]
"""
HONEST = FORM.format(forward="")
LITTLE = Limits(memory_bytes=1 << 30)


def with_line(line: str) -> str:
    """A task that does something when it is loaded."""
    return HONEST + line + "\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    opened = open_server()
    opened.wait_until_ready()
    yield opened
    opened.close()


@pytest.fixture
def begin(server: ForkServer) -> Iterator[object]:
    """A process for a test, with limits that are reached soon."""
    begun: list[TaskProcess] = []

    def start(load_s: float = 60.0, limits: Limits = LITTLE) -> TaskProcess:
        begun.append(TaskProcess(server, limits, load_s))
        return begun[-1]

    yield start
    for each in begun:
        each.close()
        assert not any(folder.exists() for folder in each.folders), "folders are left"


def source(text: str) -> TaskSource:
    return TaskSource(name="hostile", source=text)


def refusal(task_process: TaskProcess, text: str) -> str:
    with pytest.raises(TaskError) as caught:
        task_process.load(source(text))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_task_that_hangs(begin) -> None:
    assert refusal(begin(load_s=0.5), with_line("while True: pass")) == "hostile did not finish loading within 0.5 s"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("import os; os._exit(0)", "hostile ended its own process (status 0) while loading"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "hostile was killed (by itself, or because the machine ran out of memory) while loading",
        ),
        ("import ctypes; ctypes.string_at(0)", "hostile crashed with SIGSEGV while loading"),
        ("import os; os.closerange(0, 1000)", "hostile ended its own process (status 0) while loading"),
        ("raise SystemExit(3)", "hostile: the task file cannot be imported (it calls exit)"),
        ("raise KeyError(7)", "hostile: the task file cannot be imported (KeyError: 7)"),
        ("class Odd(BaseException): pass\nraise Odd('so')", "hostile: Odd so"),
        ("import os; os.fork()", "hostile: the task file cannot be imported (PermissionError"),
        ("import subprocess; subprocess.run(['true'])", "hostile: the task file cannot be imported (PermissionError"),
        ("import socket; socket.socket()", "hostile: the task file cannot be imported (PermissionError"),
        ("open('/etc/passwd').read()", "hostile: the task file cannot be imported (PermissionError"),
        ("import os; os.setpgid(0, 0)", "hostile: the task file cannot be imported (PermissionError"),
        ("x = [0] * (1 << 48)", "hostile: the task file cannot be imported (MemoryError"),
    ],
)
def test_a_task_that_does_something_else(begin, line: str, sentence: str) -> None:
    assert refusal(begin(), with_line(line)).startswith(sentence)


def test_a_task_that_takes_all_memory(begin) -> None:
    bomb = with_line("kept = []\nwhile True: kept.append(bytearray(b'x') * (1 << 24))")
    assert refusal(begin(), bomb) == "hostile used more than 1 GiB of memory while loading"


def test_a_task_that_calls_itself_without_end(begin) -> None:
    endless = with_line("import sys; sys.setrecursionlimit(1 << 30)\ndef call(): call()\ncall()")
    assert refusal(begin(), endless) in (
        "hostile used more than 1 GiB of memory while loading",
        "hostile crashed with SIGSEGV while loading",
    )


def test_a_task_that_fills_its_folder(begin) -> None:
    """Files in shared memory are memory."""
    bomb = with_line("with open('large', 'wb') as file:\n    while True: file.write(bytes(1 << 24))")
    assert refusal(begin(), bomb) == "hostile used more than 1 GiB of memory while loading"


def test_a_task_that_starts_threads_without_end(begin) -> None:
    bomb = with_line("import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()")
    assert refusal(begin(limits=Limits(tasks=20)), bomb) == "hostile started more than 20 threads while loading"


def test_a_task_that_writes_elsewhere(begin, tmp_path: Path) -> None:
    target = tmp_path / "written"
    assert "PermissionError" in refusal(begin(), with_line(f"open({str(target)!r}, 'w')")) or not target.exists()
    assert not target.exists()


def test_a_task_that_forges_answers(begin) -> None:
    """Descriptors are easy to find; what is written there is no answer that anybody takes."""
    forge = with_line("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'x' * 64)\n    except OSError: pass")
    assert "hostile disturbed the process that it runs in" in refusal(begin(), forge)


def test_a_task_that_sends_half_an_answer(begin) -> None:
    half = "import os, struct\nfor fd in range(3, 64):\n    try: os.write(fd, struct.pack('<Q', 64) + b'x')\n"
    said = refusal(begin(load_s=0.5), with_line(half + "    except OSError: pass\nwhile True: pass"))
    assert said == "hostile did not finish loading within 0.5 s"


def test_a_task_that_removes_its_files(begin) -> None:
    """Whenever it is run; what was handed over before is out of its reach."""
    removing = with_line("import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)")
    task_process = begin()
    task = task_process.load(source(removing))
    cases = [task_process.make_case(task, "normal", seed) for seed in range(2)]
    for seed, case in enumerate(cases):
        here = make_case(replace(task, source=HONEST), "normal", seed)
        np.testing.assert_array_equal(case.expectation(0, None).expected, here.expected[0].reshape(-1))
        np.testing.assert_array_equal(case.arguments[0], here.arguments[0])


def test_a_task_that_cuts_its_files_short(begin) -> None:
    """Results are read, never mapped, so that our process is not hit by it: they are there or it is a `TaskError`."""
    cutting = HONEST + (
        "def cut():\n    import glob, os\n    while True:\n"
        "        for path in glob.glob('array*'):\n            try: os.truncate(path, 0)\n"
        "            except OSError: pass\n"
        "import threading; threading.Thread(target=cut, daemon=True).start()\n"
    )
    task_process = begin()
    task = task_process.load(source(cutting))
    for seed in range(3):
        with suppress(TaskError):
            assert task_process.make_case(task, "normal", seed).expectation(0, None).expected.size == 64 * 32


def test_a_task_that_leaves_threads(begin) -> None:
    leaving = with_line("import threading\nthreading.Thread(target=lambda: threading.Event().wait()).start()")
    assert begin().load(source(leaving)).operators


def test_a_failure_is_remembered(begin) -> None:
    task_process = begin()
    first = refusal(task_process, with_line("import os; os._exit(0)"))
    assert refusal(task_process, HONEST) == first


def test_a_task_that_fails_only_when_it_computes(begin) -> None:
    """Loading runs on tensors without values; the first real one ends the process."""
    text = FORM.format(forward="import os; type(x) is torch.Tensor and os._exit(0); ")
    task_process = begin()
    task = task_process.load(source(text))
    with pytest.raises(TaskError, match=r"^hostile\S* ended its own process \(status 0\) while"):
        task_process.make_case(task, "normal", 0)


# --- what it computes --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_inputs_and_references_as_in_one_process(begin, kind: str) -> None:
    task_process, seed = begin(), 7
    task = task_process.load(source(HONEST))
    assert task == task_from_source(HONEST, "hostile", "fp32", "hostile")
    here, there = make_case(task, kind, seed), task_process.make_case(task, kind, seed)
    for one, other in zip(here.arguments, there.arguments, strict=True):
        assert isinstance(other, Filed)
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    for where in (None, Runs.of(np.array([0, 5, 77]))):
        one, other = here.expectation(0, where), there.expectation(0, where)
        np.testing.assert_array_equal(one.expected, other.expected)
        np.testing.assert_array_equal(one.native, other.native)
        np.testing.assert_array_equal(one.errors, other.errors)
        assert one.scale == pytest.approx(other.scale, rel=1e-12), "added up on another number of threads"


def test_slices_are_the_same(begin) -> None:
    task_process = begin()
    task = task_process.load(source(HONEST))
    slicing = task_process.find_slicing(task, 3)
    assert slicing is not None
    case = task_process.sliced_case(task, "normal", 3, None, slicing)
    whole = task_process.make_case(task, "normal", 3)
    where = Runs.of(np.arange(0, 64 * 32, 3))
    found = case.expectation(0, where)
    assert found.positions is not None
    np.testing.assert_allclose(found.expected, whole.expectation(0, found.positions).expected, rtol=1e-12)


def test_values_come_as_expressions_say(begin) -> None:
    task_process = begin()
    task = task_process.load(source(HONEST))
    drawn = task_process.draw_case(task, "normal", 1)
    x, weight, size, nothing, both = drawn.bound(
        "inputs[0], model.linear.weight, model.linear.out_features, None, [inputs[0], 2.5]"
    )
    here = draw_case(task, "normal", 1)
    np.testing.assert_array_equal(x, here.arguments[0])
    assert weight.shape == (32, 96)
    assert (size, nothing) == (32, None)
    assert both[0] is x, "one array for one tensor, which has one file"
    assert both[1] == 2.5
    with pytest.raises(TaskError, match=r"--args: model\.none cannot be evaluated"):
        drawn.bound("model.none")


def test_files_go_with_their_arrays(begin) -> None:
    task_process = begin()
    task = task_process.load(source(HONEST))
    case = task_process.make_case(task, "normal", 1)
    (first, *_) = case.arguments
    assert isinstance(first, Filed)
    file = first.file
    assert file is not None
    assert file.exists()
    del case, first, _
    gc.collect()
    assert not file.exists()


def test_several_threads_may_ask(begin) -> None:
    task_process = begin()
    task = task_process.load(source(HONEST))
    found: dict[int, object] = {}

    def ask(seed: int) -> None:
        found[seed] = task_process.make_case(task, "normal", seed).expectation(0, None).expected[0]

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: make_case(task, "normal", seed).expected[0][0, 0] for seed in range(6)}


def test_one_text_has_one_process_which_is_kept_for_a_while() -> None:
    texts = [with_line(f"number = {number}") for number in range(4)]
    first = process_of(texts[0])
    assert process_of(texts[0]) is first
    assert first.load(source(texts[0])).name == "hostile"
    for text in texts[1:]:
        process_of(text)
    again = process_of(texts[0])
    assert again is first, "somebody uses it"


# --- our own process -----------------------------------------------------------------------------


def children(number: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    for listed in Path(f"/proc/{number}/task").glob("*/children"):
        for child in map(int, listed.read_text().split()):
            found += [child, *children(child)]
    return found


PROGRAM = """
import json, os, sys
from pathlib import Path
from cupilot.tasks import load_task
task = load_task(Path(sys.argv[1]))
from cupilot.tasks.process import process_of
print(json.dumps([str(each.parent) for each in process_of(task.source).folders]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["kill", "end"])
def test_nothing_is_left_when_our_process_ends(ending: str, tmp_path: Path) -> None:
    """However it ends, and though the task has a thread that never does."""
    file = tmp_path / "task.py"
    file.write_text(with_line("import threading\nthreading.Thread(target=lambda: threading.Event().wait()).start()"))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdin is not None
    assert program.stdout is not None
    folders = [Path(each) for each in json.loads(program.stdout.readline())]
    started = children(program.pid)
    assert started
    assert all(folder.exists() for folder in folders)
    if ending == "kill":
        program.kill()
    program.stdin.close()
    program.wait()
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s and (any(map(alive, started)) or any(f.exists() for f in folders)):
        os.sched_yield()
    assert not [number for number in started if alive(number)]
    assert not [folder for folder in folders if folder.exists()]
    program.stdout.close()


def alive(number: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cupilot", *words], capture_output=True, text=True, check=False)


def test_a_command_says_it_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(with_line("import os; os._exit(0)"))
    kernel = tmp_path / "kernel.cu"
    kernel.write_text("#include <torch/extension.h>\ntorch::Tensor forward(torch::Tensor x) { return x; }\n")
    done = run_command("evaluate", str(kernel), "--task", str(file), "--device", "virtual:a100-80gb")
    assert done.returncode == 2
    assert done.stderr.strip().endswith(f"{file} ended its own process (status 0) while loading")
    assert "Traceback" not in done.stderr


KERNEL = """
#include <torch/extension.h>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
RELU = """
import torch
ROWS, COLUMNS = 64, 96
class Model(torch.nn.Module):
    def forward(self, x):
        print("LOUD")
        return torch.relu(x)
def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]
"""
WITHOUT_TORCH = """
import sys
from cupilot.cli import main
status = main(sys.argv[1:])
assert "torch" not in sys.modules
sys.exit(status)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "relu.cu", "--task", "relu.py", "--json", "-"),
        ("profile", "relu.cu", "--task", "relu.py", "--json", "-"),
        ("optimize", "relu.py", "--max-evaluations", "1", "--no-pool", "--json", "-"),
    ],
)
def test_commands_do_not_import_pytorch(words: tuple[str, ...], tmp_path: Path) -> None:
    """And print one JSON object, whatever the task prints."""
    (tmp_path / "relu.py").write_text(RELU)
    (tmp_path / "relu.cu").write_text(KERNEL)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *words, "--device", "virtual:a100-80gb"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert "LOUD" in done.stderr


def test_what_a_task_prints_is_no_part_of_the_result(tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(with_line("print('LOUD')\nimport os; os.write(1, b'LOUDER\\n\\x1b[31mRED')"))
    program = "import sys; from pathlib import Path; from cupilot.tasks import load_task\nload_task(Path(sys.argv[1]))"
    program += "\nassert 'torch' not in sys.modules\nprint('done')"
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout == "done\n"
    assert "LOUD" in done.stderr
    assert "LOUDER\n" in done.stderr
    assert "\\x1b[31mRED" in done.stderr, "it cannot steer the terminal"
    assert "\x1b" not in done.stderr


def test_folders_on_disk_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there is no shared memory."""
    monkeypatch.setattr(process, "SHARED_MEMORY", tmp_path / "none")
    opened = open_server()
    try:
        task_process = TaskProcess(opened)
        task: Task = task_process.load(source(HONEST))
        assert len(task_process.folders) == 1
        assert task_process.make_case(task, "normal", 0).expectation(0, None).expected.size == 64 * 32
    finally:
        opened.close()
