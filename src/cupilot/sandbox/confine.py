"""Rights that a process gives up before it loads untrusted code.

A worker calls `confine` after its trusted parts are loaded.  From then on it has no network, no files but the ones
named, no new processes, no capabilities and no access to other processes; this cannot be undone.  It needs nothing but
a Linux kernel, holds for root too, and takes about two milliseconds.  A restriction that the kernel does not offer is
left out, and `confinement` reports it.

`cupilot.sandbox.process` bounds processor time, output and memory.  Untrusted code shares the address space with the
trusted part of its process.  It cannot reach out of the process; inside it, the guard on its imports
(`cupilot.toolchain.imports`) and the codes on answers make tampering hard.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from cupilot.sandbox.system_calls import MACHINES, SECCOMP, tools_filter, worker_filter

OPEN_FILES = 256
END_WITH_PARENT, NO_NEW_PRIVILEGES = 1, 38
NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
RECURSIVE, PRIVATE, BIND = 0x4000, 1 << 18, 0x1000
HERE, AT_RECURSIVE, READ_ONLY_MOUNT = -100, 0x8000, 1
# the same numbers on all architectures
CREATE_RULESET, ADD_RULE, RESTRICT_SELF, MOUNT_SETATTR = 444, 445, 446, 442

# what Python, C and C++ may look at in the middle of their work
SYSTEM_PLACES = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime",
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo",
    "/sys/devices/system/cpu",
)  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """One restriction: in force or not, and how or why not."""

    name: str
    active: bool
    reason: str


def confine(readable: Iterable[Path], writable: Iterable[Path] = (), *, threads: bool = False) -> tuple[Measure, ...]:
    """Restrict this process for good; files and folders that are not named can be neither read nor written.

    Python's own folders and the system's libraries stay readable.  ``threads`` says whether new threads may start;
    processes never may.  Call it while there is one thread: restrictions on files bind only the calling thread and
    those it starts.
    """
    places = (*readable, *trusted_places()), tuple(writable)
    with suppress(OSError):  # when memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000")
    version = landlock_version()
    return (
        _measure("end with parent", end_with_parent),
        _measure("privileges", _no_new_privileges),
        _measure("open files", _limit_files),
        _measure("network", _own_network),
        _measure("files", lambda: _landlock(version, *places) if version else _read_only_mounts(places[1])),
        _measure("capabilities", lambda: _drop_capabilities(keep_reading=bool(version))),
        _measure("system calls", lambda: _filter_calls(threads)),
    )


def confine_tools(readable: Iterable[Path], writable: Iterable[Path]) -> tuple[Measure, ...]:
    """Restrict this process and the programs that it starts: compilers and others that read a candidate's source.

    They may read and execute what is named and write their folder; of the system nothing else is there, not even
    Python.  They run no code of the candidate's, so they may start processes.
    """
    readable, writable, version = tuple(readable), tuple(writable), landlock_version()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    return (
        _measure("end with parent", end_with_parent),
        _measure("privileges", _no_new_privileges),
        _measure("open files", _limit_files),
        _measure("network", _own_network),
        _measure(
            "files",
            lambda: _landlock(version, readable, writable, EXECUTE) if version else _read_only_mounts(writable),
        ),
        _measure("capabilities", lambda: _drop_capabilities(keep_reading=bool(version))),
        _measure("system calls", _filter_tools),
    )


def confine_agent(readable: Iterable[Path], writable: Iterable[Path], *, network: bool) -> tuple[Measure, ...]:
    """Restrict this process and what it starts: a coding agent, which is a whole program tree of its own.

    It may read and execute what is named, and do in its folders whatever it likes.  Without ``network`` it has none;
    with it, any address can be reached.  It cannot signal or look into processes outside.  What Landlock does not
    cover: modes, owners and times of files that this user owns.  Raises `OSError` where there is no Landlock.
    """
    version = landlock_version()
    if not version:
        raise OSError(errno.ENOSYS, "the kernel does not offer Landlock")
    measures = [_measure("end with parent", end_with_parent), _measure("privileges", _no_new_privileges)]
    if not network:
        measures.append(Measure("network", True, _own_network()))
    rules = _rules(version, tuple(readable), (), EXECUTE, network=network)
    try:
        for path in writable:
            _allow(rules, path, EVERYTHING & _handled(version))
        for device in DEVICES:
            _allow(rules, Path(device), READ_FILE | WRITE_FILE)
        _system_call(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    measures.append(Measure("files", True, f"Landlock, version {version}"))
    return (*measures, _measure("capabilities", lambda: _drop_capabilities(keep_reading=True)))


def confinement(through: Sequence[str] = ()) -> tuple[Measure, ...]:
    """What `confine` achieves on this machine, tried in a process of its own.

    ``through`` is the command, if any, that starts the process.
    """
    # with one thread, as in a worker
    command = (*through, "env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-P", "-m", "cupilot.sandbox.confine")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        return (Measure("sandbox", False, last or f"the trial ended with status {done.returncode}"),)
    return tuple(Measure(*values) for values in json.loads(done.stdout))


def trusted_places() -> tuple[Path, ...]:
    """Python's library, installed packages, this package, the system's libraries; nothing of the user's own."""
    own = (Path(__file__).parents[1], Path(os.__file__).parent, Path(sys.base_prefix) / "lib")
    installed = (Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"})
    return tuple(dict.fromkeys((*own, *installed, *map(Path, SYSTEM_PLACES))))


def _measure(name: str, act: Callable[[], str]) -> Measure:
    try:
        return Measure(name, True, act())
    except OSError as error:
        return Measure(name, False, error.strerror or str(error))


# --- calls into the kernel ------------------------------------------------------------------------

_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    return _checked(int(getattr(_LIBC, name)(*arguments)))


def _system_call(number: int, *arguments: object) -> int:
    return _checked(int(_LIBC.syscall(ctypes.c_long(number), *arguments)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def end_with_parent() -> str:
    """Have this process killed when the thread that started it ends."""
    _process_control(END_WITH_PARENT, signal.SIGKILL)
    return "killed when the thread that started it ends"


def _no_new_privileges() -> str:
    _process_control(NO_NEW_PRIVILEGES, 1)
    return "no program gives more rights"


def _process_control(option: int, value: int) -> None:
    # the call takes whole registers
    _call("prctl", option, *(ctypes.c_ulong(argument) for argument in (value, 0, 0, 0)))


def _limit_files() -> str:
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    return f"at most {OPEN_FILES}"


# --- namespaces -----------------------------------------------------------------------------------


def _own_network() -> str:
    _unshare(NEW_NETWORK | NEW_IPC)
    return "a network namespace without a network"


def _unshare(namespaces: int) -> None:
    """As root at once; for others in a user namespace, where they keep their own number."""
    try:
        _call("unshare", namespaces)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _call("unshare", namespaces | NEW_USER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with suppress(OSError):  # without a number of its own, a process can read but not make files
                Path(f"/proc/self/{name}").write_text(text)


def _read_only_mounts(writable: Sequence[Path]) -> str:
    """Where there is no Landlock (Linux before 5.13, or built without)."""
    _unshare(NEW_MOUNTS)
    _call("mount", None, b"/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None)
    for path in writable:
        _call("mount", bytes(path), bytes(path), None, ctypes.c_ulong(BIND), None)
    _set_mounts(b"/", AT_RECURSIVE, READ_ONLY_MOUNT, 0)
    for path in writable:
        _set_mounts(bytes(path), 0, 0, READ_ONLY_MOUNT)
    return "no Landlock: nothing can be written, everything can be read"


def _set_mounts(path: bytes, depth: int, add: int, remove: int) -> None:
    attributes = struct.pack("QQQQ", add, remove, 0, 0)
    _system_call(MOUNT_SETATTR, HERE, path, depth, attributes, ctypes.c_size_t(len(attributes)))


# --- files: Landlock ------------------------------------------------------------------------------

EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
READ = READ_FILE | READ_FOLDER
# reading, writing, making and removing plain files and folders; no links or devices
WRITE = READ | WRITE_FILE | TRUNCATE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8
EVERYTHING = (1 << 16) - 1
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
BIND_AND_CONNECT_TCP = 0b11
SIGNALS_AND_ABSTRACT_SOCKETS = 0b11


def landlock_version() -> int:
    """What the kernel offers of Landlock; 0 when it has none."""
    try:
        return _system_call(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


def _landlock(version: int, readable: Sequence[Path], writable: Sequence[Path], execute: int = 0) -> str:
    rules = _rules(version, readable, writable, execute)
    try:
        _system_call(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    return f"Landlock, version {version}"


def reading_rules(readable: Iterable[Path]) -> int:
    """A descriptor of Landlock rules: the files named can be read, and nothing else; -1 where there is no Landlock."""
    version = landlock_version()
    return _rules(version, tuple(readable), ()) if version else -1


def _handled(version: int) -> int:
    """The rights about files that this version of Landlock knows."""
    return (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1


def _rules(
    version: int, readable: Sequence[Path], writable: Sequence[Path], execute: int = 0, *, network: bool = False
) -> int:
    """``network``: what it says of the network is left to others."""
    handled = _handled(version)
    addresses = BIND_AND_CONNECT_TCP if version >= 4 and not network else 0
    scope = SIGNALS_AND_ABSTRACT_SOCKETS if version >= 6 else 0
    attributes = struct.pack("QQQ", handled, addresses, scope)
    rules = _system_call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for paths, rights in ((readable, READ | execute), (writable, WRITE | READ)):
            for path in paths:
                _allow(rules, path, rights & handled)
        _allow(rules, Path("/dev/null"), READ_FILE | WRITE_FILE)
    except BaseException:
        os.close(rules)
        raise
    return rules


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what is not there needs no rule
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= FILE_RIGHTS
        _system_call(ADD_RULE, rules, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        # a rule is about an inode, and those of /proc are made anew when nobody holds them
        if not path.is_relative_to("/proc"):
            os.close(place)


# --- capabilities ---------------------------------------------------------------------------------

READ_ANY_FILE = 1 << 2


def _drop_capabilities(keep_reading: bool) -> str:
    """None is left but, for root and where Landlock says which files, the one to read files of other users."""
    header = struct.pack("Ii", 0x20080522, 0)
    now = ctypes.create_string_buffer(24)
    _call("capget", header, now)
    kept = struct.unpack("6I", now.raw)[1] & READ_ANY_FILE if keep_reading and os.geteuid() == 0 else 0
    _call("capset", header, struct.pack("6I", kept, kept, 0, 0, 0, 0))
    return "only that of reading" if kept else "none"


# --- system calls: seccomp ------------------------------------------------------------------------


def _filter_calls(threads: bool) -> str:
    machine = os.uname().machine
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"the system calls of {machine} are not known here")
    column, architecture = MACHINES[machine]
    _install(worker_filter(column, architecture, os.getpid(), threads), column)
    return "no new processes" + ("" if threads else " or threads") + ", sockets or reach to other processes"


def _filter_tools() -> str:
    machine = os.uname().machine
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"the system calls of {machine} are not known here")
    column, architecture = MACHINES[machine]
    _install(tools_filter(column, architecture), column)
    return "no sockets or reach to other processes"


def _install(code: Sequence[bytes], column: int) -> None:
    instructions = ctypes.create_string_buffer(b"".join(code), 8 * len(code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(instructions))
    # mode: a filter; flag: for all threads at once
    if _system_call(SECCOMP[column], 1, 1, program) != 0:
        raise OSError(errno.ESRCH, "another thread has a filter of its own")


if __name__ == "__main__":
    found = [astuple(measure) for measure in confine(())]
    print(json.dumps(found))
