"""Which system calls untrusted code may make: filters for the kernel (seccomp), by the numbers of the calls.

`cupilot.sandbox.confine` puts them in force.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence

# Numbers on x86_64 and on aarch64 (None: there is no such call).  A list of what is refused, not of what is allowed:
# C libraries, Python and LLVM differ in what they need, and every release needs something new.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "setns": (308, 268), "unshare": (272, 97), "setsid": (112, 157), "setpgid": (109, 154),
    # other processes
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "ptrace": (101, 117),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "kcmp": (312, 272),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    # network, and calls that are made for a process by the kernel, past this filter
    "socket": (41, 198), "socketpair": (53, 199), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # memory that belongs to no process, so that nobody would see it grow
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "semget": (64, 190), "msgget": (68, 186), "msgsnd": (69, 189), "mq_open": (240, 180),
    # a signal in the middle of the trusted part's work
    "alarm": (37, None), "setitimer": (38, 103), "timer_create": (222, 107),
    # what Landlock leaves open about files
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469),
    "open_by_handle_at": (304, 265),
    # parts of the kernel that are not for candidates
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "personality": (135, 92),
}  # fmt: skip

# what compilers and linkers do: they start each other, and give files modes and times
TOOLS_NEED = frozenset({
    "fork", "vfork", "execve", "setpriority", "sched_setaffinity", "chmod", "fchmod", "fchmodat",
    "fchmodat2", "utime", "utimes", "futimesat", "utimensat", "alarm", "setitimer",
})  # fmt: skip

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
CLONE, CLONE3, NEW_THREAD = (56, 220), 435, 0x00010000
KILL, TGKILL, PRLIMIT, SECCOMP = (62, 129), (234, 131), (302, 261), (317, 277)
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, ABSENT, END_PROCESS = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x80000000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
OTHER_ABI = 0x40000000


# What a process needs that only computes and talks over descriptors that it has.
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "lseek": (8, 62),
    "close": (3, 57), "fstat": (5, 80), "stat": (4, None), "lstat": (6, None), "newfstatat": (262, 79),
    "statx": (332, 291), "access": (21, None), "faccessat": (269, 48), "readlink": (89, None), "readlinkat": (267, 78),
    "getcwd": (79, 17), "poll": (7, None), "ppoll": (271, 73),
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "madvise": (28, 233),
    "brk": (12, 214), "futex": (202, 98), "set_robust_list": (273, 99), "rseq": (334, 293),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "getpid": (39, 172), "gettid": (186, 178), "getrusage": (98, 165), "times": (100, 153), "sysinfo": (99, 179),
    "uname": (63, 160), "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "getrandom": (318, 278),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, None),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "restart_syscall": (219, 128),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
OPEN, OPENAT = (2, None), (257, 56)
# to write, to make or to cut off a file; also for directories without a name
CHANGES_FILES = 0o3 | 0o100 | 0o1000 | 0o20000000


def native_filter(process: int) -> bytes:
    """A filter for a program of ours that loads untrusted code: nothing passes but what it needs to compute.

    Files can only be opened for reading, and only this process may be signalled.  Empty where the machine is not known.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        return b""
    column, architecture = MACHINES[machine]
    allowed = [number for pair in ALLOWED.values() if (number := pair[column]) is not None]
    return b"".join([
        step(LOAD, ARCHITECTURE), step(EQUAL, architecture, 1, 0), step(RETURN, END_PROCESS),
        step(LOAD, NUMBER),
        *(line for number in allowed for line in (step(EQUAL, number, 0, 1), step(RETURN, ALLOW))),
        *(
            line
            for call, place in ((OPEN[column], FIRST_ARGUMENT + 8), (OPENAT[column], FIRST_ARGUMENT + 16))
            if call is not None
            for line in (
                step(EQUAL, call, 0, 4), step(LOAD, place), step(ANY_BIT, CHANGES_FILES, 0, 1),
                step(RETURN, REFUSE), step(RETURN, ALLOW),
            )
        ),
        *_first_argument(KILL[column], EQUAL, process),
        *_first_argument(TGKILL[column], EQUAL, process),
        step(RETURN, REFUSE),
    ])  # fmt: skip


def step(operation: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """One instruction for the kernel's packet filter: jumps count the instructions that are left out."""
    return struct.pack("HBBI", operation, yes, no, value)


def checked_calls(architecture: int, refused: Sequence[int]) -> list[bytes]:
    """The beginning of every filter: the number of the call is loaded, and those refused have returned."""
    return [
        step(LOAD, ARCHITECTURE), step(EQUAL, architecture, 1, 0), step(RETURN, END_PROCESS),
        step(LOAD, NUMBER),
        step(AT_LEAST, OTHER_ABI, 0, 1), step(RETURN, REFUSE),
        *(line for number in refused for line in (step(EQUAL, number, 0, 1), step(RETURN, REFUSE))),
    ]  # fmt: skip


def _first_argument(call: int, test: int, *values: int) -> list[bytes]:
    """Allow a call only when its first argument passes the test with one of the values."""
    tests = [line for value in values for line in (step(test, value, 0, 1), step(RETURN, ALLOW))]
    return [step(EQUAL, call, 0, len(tests) + 2), step(LOAD, FIRST_ARGUMENT), *tests, step(RETURN, REFUSE)]


def worker_filter(column: int, architecture: int, process: int, threads: bool) -> list[bytes]:
    refused = [number for pair in REFUSED.values() if (number := pair[column]) is not None]
    refused += [] if threads else [CLONE[column]]
    return [
        *checked_calls(architecture, refused),
        # its flags lie in memory, where a filter cannot look; C libraries then fall back to clone
        step(EQUAL, CLONE3, 0, 1), step(RETURN, ABSENT),
        *_first_argument(CLONE[column], ANY_BIT, NEW_THREAD),
        *_first_argument(KILL[column], EQUAL, process),
        *_first_argument(TGKILL[column], EQUAL, process),
        *_first_argument(PRLIMIT[column], EQUAL, 0, process),
        step(RETURN, ALLOW),
    ]  # fmt: skip


def tools_filter(column: int, architecture: int) -> list[bytes]:
    refused = [number for name, pair in REFUSED.items() if name not in TOOLS_NEED and (number := pair[column])]
    return [*checked_calls(architecture, refused), step(RETURN, ALLOW)]
