"""Hostile host code in a confined process: each ends as a failure, reaches nothing, and the next run is fine."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cupilot.devices.process import Ended, Limits, run_limited
from cupilot.devices.sandbox import Measure, confinement
from cupilot.toolchain.cuda import find_host_compiler
from cupilot.toolchain.process import run

HOSTILE = r"""
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define HOSTILE extern "C" int
static int outcome(long result) { return result < 0 ? -errno : 0; }
static void* idle(void*) { for (;;) pause(); }

HOSTILE honest(const char*) { return 42; }
HOSTILE segfault(const char*) { *(volatile int*)8 = 1; return 0; }
HOSTILE aborts(const char*) { abort(); }
HOSTILE endless(const char*) { for (volatile int i = 0;; i = i + 1) {} }
HOSTILE silent_endless(const char*) { for (int i = 0; i < 300; i++) close(i); for (;;) pause(); }
HOSTILE early(const char*) { exit(0); }
HOSTILE sudden(const char*) { _exit(0); }

HOSTILE forks(const char*) {
    for (int i = 0; i < 500; i++) {
        pid_t child = fork();
        if (child == 0) for (;;) pause();
        if (child < 0) return -errno;
    }
    for (;;) pause();
}
HOSTILE clones(const char*) { return outcome(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }
HOSTILE shell(const char*) { return system("true"); }
HOSTILE threads(const char*) {
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        if (int error = pthread_create(&thread, nullptr, idle, nullptr)) return -error;
    }
    for (;;) pause();
}
HOSTILE leaves_a_child(const char* file) {
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        FILE* out = fopen(file, "w");
        fprintf(out, "%d", getpid());
        fclose(out);
        for (int i = 0; i < 300; i++) close(i);
        for (;;) pause();
    }
    wait(nullptr);
    struct stat found;
    while (stat(file, &found) < 0 || found.st_size == 0) usleep(1000);
    return 0;
}

HOSTILE memory(const char*) {
    for (int i = 0; i < 64; i++) memset(malloc(64 << 20), i + 1, 64 << 20);
    for (;;) pause();
}
HOSTILE hidden_memory(const char*) { return outcome(syscall(SYS_memfd_create, "m", 0)); }
HOSTILE prints(const char*) {
    static char line[1 << 16];
    memset(line, 'x', sizeof line - 1);
    for (int i = 0; i < 1 << 15; i++) fputs(line, stdout);
    return 0;
}

HOSTILE overwrites(const char* file) { return outcome(open(file, O_WRONLY | O_TRUNC)); }
HOSTILE truncates(const char* file) { return outcome(truncate(file, 0)); }
HOSTILE removes(const char* file) { return outcome(unlink(file)); }
HOSTILE renames(const char* file) { return outcome(rename(file, "elsewhere")); }
HOSTILE opens_to_all(const char* file) { return outcome(chmod(file, 0777)); }
HOSTILE creates(const char*) { return outcome(creat("new", 0600)); }
HOSTILE reads(const char* file) { return outcome(open(file, O_RDONLY)); }
HOSTILE reads_the_parent(const char*) {
    char file[99];
    snprintf(file, sizeof file, "/proc/%d/environ", getppid());
    return outcome(open(file, O_RDONLY));
}
HOSTILE sockets(const char*) { return outcome(socket(AF_INET, SOCK_STREAM, 0)); }
// with signal 0, which only asks whether it could be done: these tests must not be a danger where the sandbox is not
HOSTILE kills_the_parent(const char*) { return outcome(kill(getppid(), 0)); }
HOSTILE kills_all(const char*) { return outcome(kill(-1, 0)); }
HOSTILE timer(const char*) {
    itimerval soon{{0, 0}, {0, 1000}};
    return outcome(setitimer(ITIMER_REAL, &soon, nullptr));
}

// an answer of one part, "42", with a code that does not fit
static void forge() {
    unsigned char answer[4 + 8 + 2 + 32] = {1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, '4', '2'};
    for (int i = 3; i < 300; i++) (void)!write(i, answer, sizeof answer);
}
HOSTILE forges(const char*) { forge(); return 42; }
HOSTILE forges_and_exits(const char*) { forge(); exit(0); }
"""

# the two modules without their package, whose imports would take most of the time of these tests
LIGHT = """
import sys, types
from importlib.util import find_spec
package = types.ModuleType("cupilot.devices")
package.__path__ = [find_spec("cupilot").submodule_search_locations[0] + "/devices"]
sys.modules["cupilot.devices"] = package
from cupilot.devices import sandbox
from cupilot.devices.process import limit_self, open_channel
channel = open_channel()
"""
WORKER = (
    LIGHT
    + """
import ctypes
from pathlib import Path
limit_self(10.0)
library, name, file, how = sys.argv[1:]
if how != "free":
    sandbox.confine([Path(library)], threads=how == "threads")
for part in name.split("+"):
    channel.send(str(getattr(ctypes.CDLL(library), part)(file.encode())).encode())
"""
)

SMALL = Limits(memory_bytes=300 << 20, tasks=8, output_bytes=4 << 20, answer_bytes=1 << 20)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.cpp").write_text(HOSTILE)
    done = run([find_host_compiler(), "-shared", "-fPIC", "-pthread", "hostile.cpp", "-o", "hostile.so"], folder, 60)
    assert done is not None
    assert done.status == 0, done.output
    return folder / "hostile.so"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the parent's, in the very folder that the process works in."""
    path = tmp_path / "victim"
    path.write_text("precious")
    path.chmod(0o600)
    return path


def python(script: str, folder: Path, *arguments: str, timeout_s: float = 20.0, limits: Limits = SMALL) -> Ended:
    command = (sys.executable, "-P", "-c", script, *arguments)
    return run_limited(command, folder, timeout_s, {"OPENBLAS_NUM_THREADS": "1"}, limits)


def attack(library: Path, name: str, file: Path, how: str = "confined", **more: float) -> Ended:
    return python(WORKER, file.parent, str(library), name, str(file), how, **more)


def texts(ended: Ended) -> list[str]:
    return [bytes(part).decode() for (part,) in ended.answers]


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


def test_a_worker_does_not_outlive_a_parent_that_is_killed(library: Path, tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from cupilot.devices.process import run_limited
command = {(sys.executable, "-P", "-c", WORKER, str(library), "endless", "", "confined")!r}
run_limited(command, Path({str(tmp_path)!r}), 60.0, {{}})
"""
    with subprocess.Popen((sys.executable, "-P", "-c", script)) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        until(lambda: "Seccomp:\t2" in state(children.read_text().strip()), "the worker is confined")
        worker = children.read_text().strip()
        parent.kill()
    until(lambda: is_gone(worker), "the worker is gone")


def state(number: str) -> str:
    try:
        return Path(f"/proc/{number}/status").read_text()
    except OSError:
        return ""


def is_gone(number: str) -> bool:
    found = state(number)
    return not found or "zombie" in found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s, f"not within 20 s: {what}"


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
measures = sandbox.confine((), [Path("room")])
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
    measures, tried = trial(tmp_path, "sandbox._landlock_version = lambda: 0")
    if not measures["files"].active:
        pytest.skip(f"mounts cannot be changed here: {measures['files'].reason}")
    assert tried == [0, errno.EROFS, errno.EPERM]


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_a_user_without_rights_is_confined_too(tmp_path: Path) -> None:
    # a process that has changed its user must say so before it may write its own maps
    become = "os.setgid(65534); os.setuid(65534); sandbox._process_control(4, 1)"
    measures, tried = trial(tmp_path, become)
    assert measures["capabilities"].reason == "none"
    assert tried[1:] == [errno.EACCES, errno.EPERM]


def test_the_trial_says_what_holds_on_this_machine() -> None:
    measures = confinement()
    assert tuple(measure.name for measure in measures) == MEASURES
    assert all(measure.reason for measure in measures)
