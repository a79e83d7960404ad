"""Hostile host code in a confined process: each ends as a failure, reaches nothing, and the next run is fine."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hostile import LIGHT, SMALL, WORKER, attack, build, is_gone, python, state, texts, until

from cupilot.sandbox.confine import Measure, confinement
from cupilot.sandbox.process import Ended


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the parent's, in the very folder that the process works in."""
    path = tmp_path / "victim"
    path.write_text("precious")
    path.chmod(0o600)
    return path


def test_an_honest_call_answers(library: Path, victim: Path) -> None:
    ended = attack(library, "honest", victim)
    assert ended == Ended(0, False, "", "", ended.answers, False)
    assert texts(ended) == ["42"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("segfault", -signal.SIGSEGV),
        ("aborts", -signal.SIGABRT),
        ("early", 0),
        ("sudden", 0),
        ("forges_and_exits", 0),
    ],
)
def test_a_process_that_ends_early_has_given_no_answer(library: Path, victim: Path, name: str, status: int) -> None:
    ended = attack(library, name, victim)
    assert (ended.answers, ended.status, ended.timed_out) == ((), status, False), ended


def test_answers_before_a_crash_stand(library: Path, victim: Path) -> None:
    ended = attack(library, "honest+honest+segfault+honest", victim)
    assert texts(ended) == ["42", "42"]
    assert ended.status == -signal.SIGSEGV


@pytest.mark.parametrize("name", ["endless", "silent_endless"])
def test_an_endless_loop_is_ended(library: Path, victim: Path, name: str) -> None:
    begin_s = time.monotonic()
    ended = attack(library, name, victim, timeout_s=1.0)
    assert time.monotonic() - begin_s < 10
    assert ended.timed_out
    assert ended.answers == ()


def test_what_a_candidate_writes_into_the_channel_is_no_answer(library: Path, victim: Path) -> None:
    ended = attack(library, "honest+forges+honest", victim)
    assert texts(ended) == ["42"]
    assert ended.disturbed


def test_an_answer_counts_once(tmp_path: Path) -> None:
    script = """
import os
write, sent = os.write, []
os.write = lambda descriptor, data: sent.append((descriptor, bytes(data))) or write(descriptor, data)
channel.send(b"42")
for again in sent:
    write(*again)
"""
    ended = python(LIGHT + script, tmp_path)
    assert (texts(ended), ended.status, ended.disturbed) == (["42"], 0, True), ended.output


def outcomes(library: Path, names: str, file: Path) -> dict[str, int]:
    """What each of several attacks returned, in one process."""
    ended = attack(library, "+".join(names.split()), file)
    assert ended.status == 0, ended.output
    return dict(zip(names.split(), map(int, texts(ended)), strict=True))


def test_files_of_others_cannot_be_touched(library: Path, victim: Path) -> None:
    found = outcomes(
        library, "overwrites truncates removes renames creates reads opens_to_all reads_the_parent", victim
    )
    assert found == dict.fromkeys(found, -errno.EACCES) | {"opens_to_all": -errno.EPERM}
    assert victim.read_text() == "precious"
    assert victim.stat().st_mode & 0o777 == 0o600
    assert list(victim.parent.iterdir()) == [victim]


def test_the_system_is_out_of_reach(library: Path, victim: Path) -> None:
    found = outcomes(
        library, "sockets kills_the_parent kills_all timer hidden_memory forks clones threads shell honest", victim
    )
    assert found.pop("honest") == 42
    assert found.pop("shell") != 0
    assert found == dict.fromkeys(found, -errno.EPERM)


@pytest.mark.parametrize(
    ("name", "how", "excess"),
    [
        ("memory", "confined", "used more than 300 MiB of memory"),
        ("prints", "confined", "printed more than 4 MiB"),
        ("threads", "threads", "started more than 8 threads and processes"),
        ("forks", "free", "started more than 8 threads and processes"),
    ],
)
def test_what_uses_too_much_is_ended(library: Path, victim: Path, name: str, how: str, excess: str) -> None:
    ended = attack(library, name, victim, how)
    assert (ended.excess, ended.timed_out, ended.answers) == (excess, False, ())
    assert len(ended.output) < 2 << 20
    assert list(victim.parent.iterdir()) == [victim]


@pytest.mark.parametrize(("name", "how"), [("segfault", "confined"), ("prints", "confined"), ("forks", "free")])
def test_the_next_run_is_not_affected(library: Path, victim: Path, name: str, how: str) -> None:
    attack(library, name, victim, how)
    assert texts(attack(library, "honest", victim)) == ["42"]


def test_a_child_in_a_session_of_its_own_does_not_outlive_the_run(library: Path, tmp_path: Path) -> None:
    ended = attack(library, "leaves_a_child", tmp_path / "number", "free")
    assert texts(ended) == ["0"]
    until(lambda: is_gone((tmp_path / "number").read_text()), "the child is gone")


@pytest.mark.parametrize("session", [False, True])
def test_a_child_is_gone_when_the_run_is_over(session: bool, tmp_path: Path) -> None:
    """One with much memory takes a while to end, and until then holds its folder."""
    child = "held = bytearray(1 << 28); print(len(held), flush=True); import time; time.sleep(60)"
    script = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE, start_new_session={session})
child.stdout.readline()
print(child.pid)
"""
    number = python(script, tmp_path).output.strip()
    assert number.isdigit()
    assert is_gone(number)


def test_a_worker_does_not_outlive_a_parent_that_is_killed(library: Path, tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from cupilot.sandbox.process import run_limited
command = {(sys.executable, "-P", "-c", WORKER, str(library), "endless", "", "confined")!r}
run_limited(command, Path({str(tmp_path)!r}), 60.0, {{}})
"""
    with subprocess.Popen((sys.executable, "-P", "-c", script)) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        until(lambda: "Seccomp:\t2" in state(children.read_text().strip()), "the worker is confined")
        worker = children.read_text().strip()
        parent.kill()
    until(lambda: is_gone(worker), "the worker is gone")


def test_the_first_and_the_last_words_are_kept(tmp_path: Path) -> None:
    script = "print('first'); print('x' * (3 << 20)); print('last')"
    output = python(script, tmp_path).output
    assert output.startswith("first\n")
    assert output.endswith("last\n")
    assert len(output) < 2 << 20


def test_arrays_come_back_as_they_were_sent(tmp_path: Path) -> None:
    script = (
        LIGHT
        + """
import numpy as np
channel.send(b"", np.arange(600000, dtype=np.int64).reshape(2, -1).data, np.float16(3).reshape(()).data)
channel.send()
channel.send(np.zeros((0, 3)).data, b"end")
"""
    )
    ended = python(script, tmp_path, limits=replace(SMALL, answer_bytes=1 << 30))
    (nothing, numbers, three), empty, (zero, end) = ended.answers
    assert (bytes(nothing), empty, bytes(zero), bytes(end), ended.disturbed) == (b"", (), b"", b"end", False)
    np.testing.assert_array_equal(np.frombuffer(numbers, np.int64), np.arange(600000))
    assert np.frombuffer(three, np.float16) == 3
    assert python(script, tmp_path).excess == "returned more than 1 MiB"


def test_the_channel_is_for_processes_that_were_given_one(tmp_path: Path) -> None:
    ended = python(LIGHT + "open_channel()", tmp_path)
    assert ended.status == 1
    assert "must be started by run_limited" in ended.output


MEASURES = ("end with parent", "privileges", "open files", "network", "files", "capabilities", "system calls")
TRIAL = (
    LIGHT
    + """
import os, json
from dataclasses import astuple
from pathlib import Path
%s
measures = confine.confine((), [Path("room")])
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
    return 0
tried = [attempt(open, name, "w") for name in ("room/new", "new")] + [attempt(os.fork)]
channel.send(json.dumps([[astuple(measure) for measure in measures], tried]).encode())
"""
)


def trial(folder: Path, before: str) -> tuple[dict[str, Measure], list[int]]:
    (folder / "room").mkdir()
    (folder / "room").chmod(0o777)
    folder.chmod(0o777)
    ended = python(TRIAL % before, folder)
    assert ended.answers, ended.output
    measures, tried = json.loads(bytes(ended.answers[0][0]))
    found = [Measure(*values) for values in measures]
    assert tuple(measure.name for measure in found) == MEASURES
    return {measure.name: measure for measure in found}, tried


def test_files_can_be_made_where_that_is_allowed(tmp_path: Path) -> None:
    _, tried = trial(tmp_path, "")
    assert tried == [0, errno.EACCES, errno.EPERM]


def test_without_landlock_all_mounts_become_read_only(tmp_path: Path) -> None:
    measures, tried = trial(tmp_path, "confine.landlock_version = lambda: 0")
    if not measures["files"].active:
        pytest.skip(f"mounts cannot be changed here: {measures['files'].reason}")
    assert tried == [0, errno.EROFS, errno.EPERM]


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_a_user_without_rights_is_confined_too(tmp_path: Path) -> None:
    # a process that has changed its user must say so before it may write its own maps
    become = "os.setgid(65534); os.setuid(65534); confine._process_control(4, 1)"
    measures, tried = trial(tmp_path, become)
    assert measures["capabilities"].reason == "none"
    assert tried[1:] == [errno.EACCES, errno.EPERM]


def test_the_trial_says_what_holds_on_this_machine() -> None:
    measures = confinement()
    assert tuple(measure.name for measure in measures) == MEASURES
    assert all(measure.reason for measure in measures)
