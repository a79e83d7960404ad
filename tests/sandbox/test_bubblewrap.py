"""Workers that are started through bubblewrap: its wall alone, with hostile code, and where it is missing or fails."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hostile import LIGHT, SMALL, WORKER, attack, build, python, state, texts, until

from cupilot.errors import MachineError, UserError
from cupilot.sandbox import confine
from cupilot.sandbox.bubblewrap import (
    AUTO,
    BUBBLEWRAP,
    LANDLOCK,
    Found,
    chosen,
    command_line,
    confinement,
    find_bubblewrap,
    run_boxed,
    true_status,
)
from cupilot.sandbox.process import Ended


@pytest.fixture(scope="module")
def program() -> str:
    """The real one."""
    found = find_bubblewrap()
    if found.problem:
        pytest.skip(f"bubblewrap cannot be used here: {found.problem}")
    return found.program


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the parent's, outside of the folder that the process works in."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "victim").write_text("precious")
    return tmp_path / "victim"


# --- through bubblewrap ---------------------------------------------------------------------------


def test_an_honest_call_answers(library: Path, victim: Path, program: str) -> None:
    ended = attack(library, "honest", victim, program=program)
    assert ended == Ended(0, False, "", "", ended.answers, False)
    assert texts(ended) == ["42"]


@pytest.mark.parametrize(
    ("name", "status"),
    [("segfault", -signal.SIGSEGV), ("aborts", -signal.SIGABRT), ("sudden", 0), ("forges_and_exits", 0)],
)
def test_how_a_process_ended_is_told_as_without(
    library: Path, victim: Path, program: str, name: str, status: int
) -> None:
    ended = attack(library, f"honest+{name}", victim, program=program)
    assert (texts(ended), ended.status, ended.timed_out) == (["42"], status, False), ended


def test_an_endless_loop_is_a_time_out(library: Path, victim: Path, program: str) -> None:
    ended = attack(library, "silent_endless", victim, program=program, timeout_s=1.0)
    assert (ended.timed_out, ended.excess, ended.answers) == (True, "", ())
    assert running(library) == []


@pytest.mark.parametrize(
    ("name", "how", "excess"),
    [
        ("memory", "confined", "used more than 300 MiB of memory"),
        ("prints", "confined", "printed more than 4 MiB"),
        ("forks", "free", "started more than 8 threads and processes"),
    ],
)
def test_what_uses_too_much_is_ended(
    library: Path, victim: Path, program: str, name: str, how: str, excess: str
) -> None:
    ended = attack(library, name, victim, how, program=program)
    assert (ended.excess, ended.timed_out, ended.answers) == (excess, False, ())
    assert running(library) == []


def test_a_child_in_a_session_of_its_own_does_not_outlive_the_run(library: Path, victim: Path, program: str) -> None:
    file = victim.parent / "scratch" / "number"
    assert texts(attack(library, "leaves_a_child", file, "free", program=program)) == ["0"]
    assert running(library) == []


def test_a_worker_does_not_outlive_a_parent_that_is_killed(library: Path, tmp_path: Path, program: str) -> None:
    script = f"""
from pathlib import Path
from cupilot.sandbox.bubblewrap import run_boxed
command = {(sys.executable, "-P", "-c", WORKER, str(library), "endless", "", "confined")!r}
run_boxed({program!r}, command, Path({str(tmp_path)!r}), 60.0, {{}})
"""
    with subprocess.Popen((sys.executable, "-P", "-c", script)) as parent:
        until(lambda: any("Seccomp:\t2" in state(number) for number in running(library)), "the worker is confined")
        parent.kill()
    until(lambda: not running(library), "the worker is gone")


def running(library: Path) -> list[str]:
    """Processes, in whatever namespace, with the library among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(library) in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:  # ended meanwhile
            continue
    return found


def test_this_wall_alone_keeps_files_of_others(library: Path, victim: Path, program: str) -> None:
    names = ["overwrites", "truncates", "removes", "opens_to_all", "renames", "creates"]
    scratch = victim.parent / "scratch"
    ended = attack(library, "+".join(names), victim, "free", program=program, folder=scratch)
    found = dict(zip(names, map(int, texts(ended)), strict=True))
    assert found == dict.fromkeys(names, -errno.EROFS) | {"renames": -errno.EXDEV, "creates": 0}
    assert victim.read_text() == "precious"
    assert sorted(path.name for path in victim.parent.rglob("*")) == ["new", "scratch", "victim"]


def test_a_second_wall_stands_inside(library: Path, victim: Path, program: str) -> None:
    names = ["reads", "creates", "sockets", "kills_the_parent", "reads_the_parent", "forks"]
    scratch = victim.parent / "scratch"
    ended = attack(library, "+".join(names), victim, program=program, folder=scratch)
    refused = dict.fromkeys(names, -errno.EPERM)
    expected = refused | dict.fromkeys(("reads", "creates", "reads_the_parent"), -errno.EACCES)
    assert dict(zip(names, map(int, texts(ended)), strict=True)) == expected


def test_files_in_shared_memory_are_there(library: Path, program: str) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no shared memory to put files in")
    with TemporaryDirectory(prefix="cupilot-test-", dir="/dev/shm") as name:
        (Path(name) / "scratch").mkdir()
        (Path(name) / "given").touch()
        ended = attack(
            library, "reads+creates", Path(name) / "given", "free", program=program, folder=Path(name) / "scratch"
        )
    assert texts(ended) == ["0", "0"], ended


OUTSIDE = (
    LIGHT
    + """
import json, os, socket
from pathlib import Path
port, parent, shared, room = sys.argv[1:]
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
    return 0
def reach():
    with socket.socket() as ours:
        ours.connect(("127.0.0.1", int(port)))
channel.send(json.dumps({
    "network": attempt(reach), "parent": attempt(os.kill, int(parent), 0),
    "shared memory": attempt(os.open, shared, os.O_CREAT | os.O_WRONLY),
    "devices": attempt(os.open, "/dev/new", os.O_CREAT | os.O_WRONLY),
    # opened, not written: these tests must not be a danger where the wall is not
    "settings": attempt(os.open, "/proc/sys/kernel/hostname", os.O_WRONLY),
    "room": attempt(Path(room, "new").touch), "null": attempt(Path("/dev/null").write_text, "x"),
}).encode())
"""
)


def test_this_wall_alone_keeps_the_system_out_of_reach(tmp_path: Path, program: str) -> None:
    room, shared = tmp_path / "link" / "not" / "there", Path(f"/dev/shm/cupilot-test-{os.getpid()}")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "true").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "true")
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = (str(server.getsockname()[1]), str(os.getpid()), str(shared), str(room))
        command = (sys.executable, "-P", "-c", OUTSIDE, *arguments)
        ended = run_boxed(program, command, tmp_path / "scratch", 20.0, {}, SMALL, (room,))
    assert ended.answers, ended.output
    found = json.loads(bytes(ended.answers[0][0]))
    assert found.pop("settings") in {errno.EROFS, errno.EACCES}
    shared.unlink(missing_ok=True)
    assert found == {
        "network": errno.ECONNREFUSED, "parent": errno.ESRCH, "shared memory": errno.EROFS, "devices": errno.EROFS,
        "room": 0, "null": 0,
    }  # fmt: skip
    assert (tmp_path / "true" / "not" / "there" / "new").exists()


def test_what_bubblewrap_cannot_start_is_no_candidates_fault(tmp_path: Path, program: str) -> None:
    with pytest.raises(MachineError, match=r"bubblewrap could not start a process: .*no-such-command"):
        run_boxed(program, ("no-such-command",), tmp_path, 20.0, {})


def test_the_trial_says_what_holds_through_bubblewrap(program: str) -> None:
    first, *within = confinement(program)
    assert (first.name, first.active, first.reason) == (BUBBLEWRAP, True, program)
    assert [measure.name for measure in within] == [measure.name for measure in confinement("")]
    assert next(measure.active for measure in within if measure.name == "network")


# --- with any bubblewrap, or none -----------------------------------------------------------------


def test_the_command_line() -> None:
    line = command_line("/usr/bin/bwrap", ("python", "-c", "pass"), Path("/job"), (Path("/kept"),), 7)
    assert " ".join(line) == (
        "/usr/bin/bwrap --ro-bind / / --dev /dev --ro-bind-try /dev/shm /dev/shm"
        " --proc /proc --ro-bind-try /proc/sys /proc/sys --bind /job /job --bind /kept /kept --remount-ro /dev"
        " --unshare-net --unshare-pid --unshare-ipc --unshare-uts --die-with-parent --new-session"
        " --json-status-fd 7 --chdir /job -- python -c pass"
    )


def test_a_status_tells_the_signal() -> None:
    given = {0: 0, 1: 1, 127: 127, 128: 128, 134: -6, 137: -9, 139: -11, 255: 255, -9: -9}
    assert {status: true_status(status) for status in given} == given


STAND_IN = """#!{python} -S
import json, os, subprocess, sys
{before}
cut = sys.argv.index("--")
with open({record!r}, "w") as record:
    json.dump(sys.argv[1:cut], record)
options = sys.argv[:cut]
os.chdir(options[options.index("--chdir") + 1])
status = subprocess.call(sys.argv[cut + 1 :], close_fds=False)
status = 128 - status if status < 0 else status
if "--json-status-fd" in options:
    os.write(int(options[options.index("--json-status-fd") + 1]), b'{{ "exit-code": %d }}' % status)
sys.exit(status)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder before all others on the PATH, to put a ``bwrap`` in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}")
    find_bubblewrap.cache_clear()
    yield folder
    find_bubblewrap.cache_clear()


def stand_in(folder: Path, before: str = "") -> Path:
    """A ``bwrap`` without a wall: it notes its options and runs the command."""
    record = folder / "options"
    (folder / "bwrap").write_text(STAND_IN.format(python=sys.executable, before=before, record=str(record)))
    (folder / "bwrap").chmod(0o755)
    return record


def test_the_first_bubblewrap_on_the_path_is_tried_and_used(library: Path, victim: Path, path: Path) -> None:
    record = stand_in(path)
    found = find_bubblewrap()
    assert found == Found(str(path / "bwrap"))
    assert {chosen(AUTO), chosen(BUBBLEWRAP)} == {found}
    tried = json.loads(record.read_text())
    ended = attack(library, "honest+segfault", victim, program=found.program)
    assert (texts(ended), ended.status) == (["42"], -signal.SIGSEGV)
    assert len(json.loads(record.read_text())) == len(tried), "tried with the options that workers get"


def test_a_bubblewrap_that_fails_is_not_used(tmp_path: Path, path: Path) -> None:
    stand_in(path, "print('first words', file=sys.stderr); sys.exit('bwrap: setting up uid map: Permission denied')")
    problem = "bwrap: setting up uid map: Permission denied"
    assert chosen(AUTO) == Found(problem=problem)
    with pytest.raises(MachineError, match=f"the sandbox bubblewrap cannot be used here: {problem}"):
        chosen(BUBBLEWRAP)
    # one that worked when it was tried
    with pytest.raises(MachineError, match=f"bubblewrap could not start a process: {problem}"):
        python("", tmp_path, program=str(path / "bwrap"))


def test_a_bubblewrap_that_only_seems_to_work_is_not_used(path: Path) -> None:
    stand_in(path, "sys.exit(0)")
    assert "ended with status 0" in chosen(AUTO).problem
    (path / "bwrap").write_bytes(b"no program")
    find_bubblewrap.cache_clear()
    assert "does not start" in chosen(AUTO).problem


def test_it_is_tried_once(path: Path) -> None:
    record = stand_in(path)
    chosen(AUTO)
    record.unlink()
    chosen(AUTO)
    assert not record.exists()


def test_without_bubblewrap(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(path))
    assert chosen(AUTO) == Found(problem="bwrap is not installed")
    with pytest.raises(MachineError, match="bwrap is not installed"):
        chosen(BUBBLEWRAP)


def test_bubblewrap_can_be_turned_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = stand_in(path)
    monkeypatch.setattr(confine, "landlock_version", lambda: 1)
    assert chosen(LANDLOCK) == Found(problem="landlock was chosen")
    assert not record.exists(), "not even tried"
    monkeypatch.setattr(confine, "landlock_version", lambda: 0)
    with pytest.raises(MachineError, match="the sandbox landlock cannot be used here"):
        chosen(LANDLOCK)


def test_an_unknown_sandbox_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="unknown sandbox 'docker'; there are auto, bubblewrap, landlock"):
        chosen("docker")
