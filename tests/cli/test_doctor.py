"""What ``cupilot doctor`` says: of this machine, and of machines that lack something."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cupilot.devices.cuda_probe
from cupilot.cli import main
from cupilot.cli.commands import doctor
from cupilot.cli.commands.doctor import ABSENT, BROKEN, OK, VIRTUAL, Part
from cupilot.devices.cuda_probe import Found, Gpu
from cupilot.sandbox import bubblewrap

Cli = Callable[..., Any]


def only(monkeypatch: pytest.MonkeyPatch, *checks: Callable[[], Iterator[Part]]) -> None:
    monkeypatch.setattr(doctor, "CHECKS", tuple((check.__name__, check) for check in checks))


def works() -> Iterator[Part]:
    yield Part(VIRTUAL, OK, "fine")


def test_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status = main(["doctor", "--json", str(tmp_path / "doctor.json")])
    lines = capsys.readouterr().out.splitlines()
    report = json.loads((tmp_path / "doctor.json").read_text())
    assert (status, report["usable"]) == (0, True), "the virtual GPU works wherever the tests run"
    assert {line.split()[0] for line in lines} <= {OK, ABSENT, BROKEN}
    assert len(lines) == len(report["parts"]), "one line each"
    status_of = {part["name"]: part["status"] for part in report["parts"]}
    assert {status_of[name] for name in ("Python", "PyTorch", "nvcc", "ptxas", "C++ compiler", VIRTUAL)} == {OK}
    assert set(status_of) >= {"sandbox", "CUDA GPU", "PyTorch CUDA", "NVML", "ncu", "LLM packages", "LLM keys", "cache"}
    assert all(part["advice"] for part in report["parts"] if part["status"] == ABSENT), "absent, and what then?"


def test_without_a_virtual_gpu_nothing_can_be_evaluated(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, doctor.virtual_gpu, doctor.python)
    ran = cli("doctor", "--json", "-")
    assert ran.status == 1
    report = json.loads(ran.out)
    assert report["usable"] is False
    assert [part["status"] for part in report["parts"]] == [BROKEN, OK], "the rest is looked at all the same"
    assert "unknown device" in report["parts"][0]["text"]
    assert ran.err.splitlines()[-1] == "cupilot: kernels cannot be evaluated here: the virtual GPU does not work"


def test_keys_are_named_and_never_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, works, doctor.language_models)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-do-not-show")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-nor-this")
    for arguments in ((), ("--json", "-")):
        ran = cli("doctor", *arguments)
        assert "set: DEEPSEEK_API_KEY, OPENAI_API_KEY" in ran.out
        assert "sk-" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("found", "network", "line"),
    [
        (bubblewrap.Found("/usr/bin/bwrap"), True, "ok      sandbox        candidates are confined: network, files"),
        (bubblewrap.Found(problem="bwrap is not installed"), True,
         "ok      sandbox        candidates are confined: network, files; without bubblewrap (bwrap is not installed)"),
        (bubblewrap.Found(problem="bwrap is not installed"), False,
         "broken  sandbox        not restricted: network (not permitted); restricted: files; "
         "without bubblewrap (bwrap is not installed); candidates can do more here than they should: "
         "run only code that you trust, or use a newer kernel"),
    ],
)  # fmt: skip
def test_the_sandbox_says_what_holds(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, found: bubblewrap.Found, network: bool, line: str
) -> None:
    measures = (SimpleNamespace(name="network", active=network, reason="not permitted"),
                SimpleNamespace(name="files", active=True, reason="Landlock"))  # fmt: skip
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: found)
    tried: list[str] = []
    monkeypatch.setattr(bubblewrap, "confinement", lambda program: tried.append(program) or measures)
    only(monkeypatch, works, doctor.sandbox)
    assert [said for said in cli("doctor").out.splitlines() if "sandbox" in said] == [line]
    assert tried == [found.program], "tried as workers are started"


def test_a_sandbox_that_cannot_be_had_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: bubblewrap.Found(problem="bwrap is not installed"))
    only(monkeypatch, works, doctor.sandbox)
    for choice, words in (
        ("bubblewrap", "the sandbox bubblewrap cannot be used here: bwrap is not installed"),
        ("docker", "unknown sandbox 'docker'; there are auto, bubblewrap, landlock"),
    ):
        monkeypatch.setenv("CUPILOT_SANDBOX", choice)
        assert f"broken  sandbox        {words}" in cli("doctor").out.splitlines()


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (Found(problem="no CUDA GPU was found"), ABSENT, "kernels run on virtual GPUs"),
        (Found("/lib/libcuda.so.1", problem="the CUDA driver does not start: 999"), BROKEN, "nvidia-smi"),
        (Found("/lib/libcuda.so.1", 13000), OK, "cuda:0: NVIDIA Test, 24 GB, driver for CUDA 13.0"),
        (Found("/lib/libcuda.so.1", 12040), BROKEN, "install a newer driver"),
    ],
)
def test_gpus(monkeypatch: pytest.MonkeyPatch, found: Found, status: str, words: str) -> None:
    attributes = (("COMPUTE_CAPABILITY_MAJOR", 8), ("COMPUTE_CAPABILITY_MINOR", 6))
    gpus = () if found.problem else (Gpu(0, "NVIDIA Test", "GPU-0", 24 << 30, attributes),)
    answer = Found(found.library, found.version, gpus, found.problem)
    monkeypatch.setattr(cupilot.devices.cuda_probe, "find_gpus", lambda: answer)
    (part,) = doctor.gpus()
    assert part.status == status
    assert words in str(part)


def test_tools_that_are_missing_or_do_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu = tmp_path / "ncu"
    monkeypatch.setattr(shutil, "which", lambda name: str(ncu) if ncu.exists() else None)
    (absent,) = doctor.ncu()
    assert (absent.status, absent.advice) == (ABSENT, "profiles have the virtual GPU's counters")
    for script, status, text in (
        ("exit 3", BROKEN, f"{ncu} does not tell its version"),
        ("echo NVIDIA; echo Version 2025.3, release 1", OK, "Version 2025.3, release 1"),
    ):
        ncu.write_text(f"#!/bin/sh\n{script}\n")
        ncu.chmod(0o755)
        (part,) = doctor.ncu()
        assert (part.status, part.text) == (status, text)


def test_the_cache_and_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPILOT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    (tmp_path / "cache" / "kernels" / "one").write_bytes(b"0" * (3 << 20))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    cache, disk = doctor.places()
    assert (cache.status, cache.text) == (OK, f"{tmp_path / 'cache'}, 3 MB in 1 files")
    assert (disk.status, disk.text) == (BROKEN, "0.0 GB free")
    assert "make room" in disk.advice
    monkeypatch.setenv("CUPILOT_CACHE", str(tmp_path / "not" / "there" / "yet"))
    assert next(doctor.places()).status == OK, "it will be made"
