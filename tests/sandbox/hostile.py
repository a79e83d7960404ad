"""Hostile host code, the worker that runs it, and how the tests of both walls start and watch that worker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from cupilot.sandbox.bubblewrap import run_boxed
from cupilot.sandbox.process import Ended, Limits
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

LIGHT = """
import sys
from cupilot.sandbox import confine
from cupilot.sandbox.process import limit_self, open_channel
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
    confine.confine([Path(library)], threads=how == "threads")
for part in name.split("+"):
    channel.send(str(getattr(ctypes.CDLL(library), part)(file.encode())).encode())
"""
)

SMALL = Limits(memory_bytes=300 << 20, tasks=8, output_bytes=4 << 20, answer_bytes=1 << 20)


def build(folder: Path) -> Path:
    """The hostile code as a library."""
    (folder / "hostile.cpp").write_text(HOSTILE)
    done = run([find_host_compiler(), "-shared", "-fPIC", "-pthread", "hostile.cpp", "-o", "hostile.so"], folder, 60)
    assert done is not None
    assert done.status == 0, done.output
    return folder / "hostile.so"


def python(
    script: str, folder: Path, *arguments: str, timeout_s: float = 20.0, limits: Limits = SMALL, program: str = ""
) -> Ended:
    """Run a script; ``program`` is bubblewrap's, when it is to be started through that."""
    command = (sys.executable, "-P", "-c", script, *arguments)
    return run_boxed(program, command, folder, timeout_s, {"OPENBLAS_NUM_THREADS": "1"}, limits)


def attack(
    library: Path, name: str, file: Path, how: str = "confined", *,
    timeout_s: float = 20.0, program: str = "", folder: Path | None = None,
) -> Ended:  # fmt: skip
    """Call functions of the hostile library, with names joined by +, on a file; it works in that file's folder."""
    arguments = (str(library), name, str(file), how)
    return python(WORKER, folder or file.parent, *arguments, timeout_s=timeout_s, program=program)


def texts(ended: Ended) -> list[str]:
    return [bytes(part).decode() for (part,) in ended.answers]


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
