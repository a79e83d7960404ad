from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cupilot import __version__
from cupilot.cli import main
from cupilot.cli.environment import cache_folder

Cli = Callable[..., Any]


@pytest.fixture
def kernel(fakes: None) -> str:
    Path("good.cu").write_text("// width 4\n")
    Path("bad.cu").write_text("// width 8\n")
    return "good.cu"


def test_evaluate_a_good_kernel(cli: Cli, kernel: str) -> None:
    ran = cli("evaluate", kernel, "--task", "relu.py")
    assert (ran.status, ran.err) == (0, "")
    assert "device virtual:sample: no CUDA GPU was found" in ran.out
    assert "modelled, SAMPLE" in ran.out
    assert "2.50x" in ran.out
    assert "relu: correct" in ran.out


def test_evaluate_for_programs(cli: Cli, kernel: str) -> None:
    ran = cli("evaluate", kernel, "--task", "relu.py", "--json", "-")
    report = json.loads(ran.out)
    keys = "correct failure timing baseline speedup profile checks kernel precision"
    assert set(report) >= set(keys.split())
    assert (report["correct"], report["failure"]) == (True, None)
    assert {"time_s", "source", "device", "limit", "breakdown"} <= set(report["timing"])
    assert report["speedup"] == pytest.approx(2.5)


@pytest.mark.parametrize("json_option", [(), ("--json", "-")], ids=["lines", "json"])
def test_evaluate_a_wrong_kernel(cli: Cli, kernel: str, json_option: tuple[str, ...]) -> None:
    ran = cli("evaluate", "bad.cu", "--task", "relu.py", *json_option)
    assert ran.status == 1
    verdict = "relu: rejected (verify, wrong-result): element 7 differs by a lot"
    assert verdict in " ".join((ran.err if json_option else ran.out).split())
    if json_option:
        report = json.loads(ran.out)
        assert report["correct"] is False
        assert report["failure"]["kind"] == "wrong-result"
        assert report["timing"] is None
    else:
        assert ran.err == ""
        assert "a long log" in ran.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("evaluate", "none.cu", "--task", "relu.py"), "the kernel file none.cu cannot be read: No such file"),
        (("evaluate", "binary.cu", "--task", "relu.py"), "the kernel file binary.cu is not text in UTF-8"),
        (("evaluate", "good.cu"), "the following arguments are required: --task (see cupilot evaluate --help)"),
        (("evaluate", "good.cu", "--task", "none.py"), "the task file none.py does not exist"),
        (("evaluate", "good.cu", "--task", "relu.py", "--timeout", "-1"), "argument --timeout: '-1' is not a positive"),
        (("evaluate", "good.cu", "--task", "relu.py", "--device", "cuda:9"), "unknown device 'cuda:9'"),
        (
            ("evaluate", "good.cu", "--task", "relu.py", "--json", "no/out.json"),
            "--json no/out.json: there is no folder",
        ),
        (("optimize", "none.py"), "the task file none.py does not exist"),
        (
            ("optimize", "relu.py", "--population", "0"),
            "argument --population: '0' is not a whole number of at least 1",
        ),
        (("optimize", "relu.py", "--device", "warp"), "unknown device 'warp'"),
        (("optimize", "relu.py", "--agents", "oracle"), "argument --agents: invalid choice: 'oracle'"),
        (("optimise", "relu.py"), "argument COMMAND: invalid choice: 'optimise'"),
        ((), "the following arguments are required: COMMAND"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(
    cli: Cli, kernel: str, arguments: tuple[str, ...], sentence: str
) -> None:
    Path("binary.cu").write_bytes(b"\xff\xfe\x00")
    ran = cli(*arguments)
    assert ran.status == 2
    assert ran.err.startswith(f"cupilot: {sentence}")
    assert ran.err.count("\n") == 1
    assert not Path("runs").exists()


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("optimize", "evaluate", "devices"))


def test_it_runs_as_a_module_and_starts_quickly() -> None:
    program = "import sys, runpy; sys.argv = ['cupilot', '--version']\n"
    program += "try: runpy.run_module('cupilot', run_name='__main__')\n"
    program += "finally: print('torch' in sys.modules, 'llvmlite' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"cupilot {__version__}", "False False"]


def test_text_that_cannot_be_encoded_is_escaped() -> None:
    program = "from cupilot.cli import main; from cupilot.cli.commands import devices\n"
    program += "devices.run = lambda options, terminal: terminal.line('half \\ud800 of') or 0\n"
    program += "raise SystemExit(main(['devices']))"
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("half \\ud800 of\n", "", 0)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CUPILOT_CACHE", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "cupilot"
    monkeypatch.setenv("CUPILOT_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
