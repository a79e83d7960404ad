"""What a built candidate asks of the process it is loaded into.

A wrapper needs the CUDA runtime, the C++ standard library, and of C what computes, keeps memory, formats and prints.
Everything else - files, processes, sockets, threads, sleeping, Python, system calls - is refused before the library is
loaded, by the symbols that its relocations name (what the dynamic loader will look up) and by its instructions.

This is a guard, not a wall: code can reach the C library without naming it, by arithmetic on the address of a function
that it may call, or jump into the middle of an instruction.  The wall is `cupilot.sandbox.confine`.
"""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

from cupilot.errors import MachineError
from cupilot.records import Failure
from cupilot.sandbox.bubblewrap import AUTO
from cupilot.sandbox.tools import Step, run_tools
from cupilot.toolchain.names import readable

ONLY = "a candidate may only call the CUDA runtime and the C++ standard library"
NO_FILES = "a candidate has no files"
NO_THREADS = "all work belongs inside the call, on the GPU"
NO_WAITING = "a candidate must not wait"
NO_ENDING = "a candidate returns from its call"
NO_ENVIRONMENT = "a candidate depends on its arguments alone"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Of C, what touches nothing outside the process but standard output and the clock.
C_NAMES = _words(
    """
    malloc calloc realloc reallocarray free aligned_alloc posix_memalign memalign valloc malloc_usable_size
    memcpy memmove memset memcmp memchr memrchr memccpy mempcpy memmem bcmp bcopy bzero explicit_bzero rawmemchr
    strlen strnlen strcpy strncpy stpcpy stpncpy strcat strncat strcmp strncmp strcasecmp strncasecmp strcoll strxfrm
    strchr strrchr strchrnul strstr strcasestr strspn strcspn strpbrk strtok strtok_r strsep strdup strndup strerror
    strerror_r strlcpy strlcat wcslen wcscpy wcsncpy wcscmp wcsncmp wcschr wmemcpy wmemset wmemmove wmemchr wmemcmp
    atoi atol atoll atof strtol strtoll strtoul strtoull strtoq strtouq strtof strtod strtold strtoimax strtoumax
    isalnum isalpha isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit tolower toupper
    iswalnum iswalpha iswdigit iswspace towlower towupper btowc wctob mbrtowc wcrtomb mbstowcs wcstombs mbsrtowcs
    __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc __ctype_get_mb_cur_max localeconv
    abs labs llabs div ldiv lldiv imaxabs imaxdiv qsort qsort_r bsearch rand srand rand_r random srandom initstate
    setstate drand48 erand48 lrand48 nrand48 mrand48 jrand48 srand48 ffs ffsl ffsll
    printf fprintf vprintf vfprintf sprintf snprintf vsprintf vsnprintf asprintf vasprintf sscanf vsscanf
    puts putchar putchar_unlocked fputs fputc putc fwrite fflush perror psignal stdout stderr wprintf fwprintf
    swprintf fputws setbuf setvbuf setlinebuf
    time clock clock_gettime clock_getres gettimeofday timespec_get difftime mktime timegm gmtime gmtime_r localtime
    localtime_r strftime asctime asctime_r ctime ctime_r
    abort exit atexit __assert_fail __assert_perror_fail __assert __errno_location __stack_chk_fail __stack_chk_guard
    feclearexcept feraiseexcept fetestexcept fegetround fesetround fegetenv fesetenv feholdexcept feupdateenv
    feenableexcept fedisableexcept fegetexcept
    pthread_once pthread_self pthread_equal pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock
    pthread_mutex_trylock pthread_mutex_unlock pthread_mutexattr_init pthread_mutexattr_destroy
    pthread_mutexattr_settype pthread_rwlock_init pthread_rwlock_destroy pthread_rwlock_rdlock pthread_rwlock_tryrdlock
    pthread_rwlock_wrlock pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_spin_init pthread_spin_destroy
    pthread_spin_lock pthread_spin_trylock pthread_spin_unlock pthread_cond_init pthread_cond_destroy
    pthread_cond_signal pthread_cond_broadcast pthread_key_create pthread_key_delete pthread_getspecific
    pthread_setspecific __pthread_key_create __pthread_mutex_lock __pthread_mutex_unlock __libc_single_threaded
    __gmon_start__ __tls_get_addr __gxx_personality_v0 __gcc_personality_v0 __dynamic_cast __once_proxy
    """
)

MATHS = _words(
    """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi drem erf erfc exp exp10 exp2 expm1 fabs
    fdim finite floor fma fmax fmaximum fmin fminimum fmod fpclassify frexp gamma hypot ilogb isfinite isinf isnan j0
    j1 jn ldexp lgamma lgamma_r llogb llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
    nextafter nexttoward pow pow10 remainder remquo rint round roundeven scalb scalbln scalbn signbit significand sin
    sincos sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn cabs cacos cacosh carg casin casinh catan catanh ccos ccosh
    cexp cimag clog clog10 conj cpow cproj creal csin csinh csqrt ctan ctanh __fpclassify __signbit __isnan __isinf
    __finite __issignaling __iseqsig
    """
)

# The CUDA runtime; what compilers call for exceptions, memory and arithmetic; names that C's headers put before others.
RUNTIME = re.compile(r"(?:__)?cuda[A-Z]\w*")
LANGUAGE = re.compile(
    r"_Z(?:nw|na|dl|da)\w+|__cxa_\w+|_Unwind_\w+|_ITM_\w+"
    r"|__(?:u?div|u?mod|mul|pow|popcount|clz|ctz|extend|trunc|parity|bswap|ffs)[a-z]+\d|__(?:fix|float)[a-z]+\d?"
)
FORTIFIED = re.compile(r"__(?:isoc\d\d_)?(\w+?)(?:_chk|_finite)?")
MATHS_TYPE = re.compile(r"(\w+?)(?:f|l|f32|f64|f128|f32x|f64x)(_r)?")
# a mangled name, data about a type or a thunk, that begins in std, in its abbreviations, or in libstdc++'s own
STANDARD = re.compile(
    r"_Z(?:T[VTIS]|GV|T[hv]n?\d+_(?:n?\d+_)?)?(?:N[rVK]*[RO]?)?(?:St|S[absiod]|9__gnu_cxx|10__cxxabiv1)\w*"
)
STANDARD_REFUSED = (
    (re.compile(r"basic_(?:filebuf|[io]?fstream)|__basic_file|stdio_filebuf"), "std::fstream", NO_FILES),
    (re.compile(r"10filesystem"), "std::filesystem", NO_FILES),
    (re.compile(r"11this_thread"), "std::this_thread", NO_WAITING),
    (re.compile(r"18condition_variable\w*4wait"), "std::condition_variable", NO_WAITING),
    (re.compile(r"6thread(?!20hardware_concurrency)"), "std::thread", NO_THREADS),
)
# All other names are refused; some deserve a better reason than the last one.
REASONS = (
    (re.compile(r"(?:u|nano|clock_nano|thrd_)?sleep|(?:sched|pthread|thrd)_yield|pause|p?select|p?poll"), NO_WAITING),
    (re.compile(r"pthread_cond_(?:timed|clock)?wait|sem_(?:timed|clock)?wait|sigwait|sigsuspend"), NO_WAITING),
    (re.compile(r"pthread_(?:create|join|detach)|thrd_\w+|GOMP_\w+|omp_\w+|__kmpc_\w+"), NO_THREADS),
    (re.compile(r"f?open(?:at)?(?:64)?|f(?:re|d|mem)open(?:64)?|creat(?:64)?|tmpfile(?:64)?|opendir"), NO_FILES),
    (re.compile(r"remove|rename(?:at)?|unlink(?:at)?|mkdir(?:at)?|rmdir|f?truncate(?:64)?"), NO_FILES),
    (re.compile(r"_exit|_Exit|quick_exit"), NO_ENDING),
    (re.compile(r"(?:secure_)?getenv|(?:un)?setenv|putenv|clearenv|_*environ"), NO_ENVIRONMENT),
    (re.compile(r".*"), ONLY),
)

# what the compiler adds for registration begins with underscores; C++ names are mangled
CUDA_CALL = re.compile(r"(?:cuda|cu|nvrtc|cupti|nvml)[A-Z]\w*")
SYSTEM_CALL = re.compile(r"^\s*[0-9a-f]+:\s+(syscall|sysenter|int\s+\$0x80|svc\b)", re.MULTILINE)
SYSTEM_CALL_BYTES = re.compile(rb"\x0f\x05|\x0f\x34|\xcd\x80")


def guard_failure(library: Path, sandbox: str = AUTO) -> Failure | None:
    """Why a built candidate is not run at all, or None."""
    if redefined := redefined_calls(library):
        return Failure(
            "guard", "redefined", f"the candidate has its own {redefined[0]}, which is the runtime's to define"
        )
    if forbidden := forbidden_imports(library, sandbox):
        return Failure("guard", "forbidden-call", forbidden[0], "\n".join(forbidden))
    return None


def redefined_calls(library: Path) -> tuple[str, ...]:
    """Functions of the CUDA runtime or driver that the library defines itself."""
    return tuple(sorted(name for name in _Image(library).functions() if CUDA_CALL.fullmatch(name)))


def forbidden_imports(library: Path, sandbox: str = AUTO) -> tuple[str, ...]:
    """A sentence for everything that the library would call or do and must not; none for honest code."""
    image = _Image(library)
    found = [sentence for name in image.imports() if (sentence := _verdict(name))]
    if image.writable_code:
        found.append("the host code can change its own instructions: a candidate may not")
    # only a disassembler knows whether bytes are an instruction; without these bytes it is not needed
    may = image.machine != X86_64 or SYSTEM_CALL_BYTES.search(image.code())
    if may and (instruction := _system_call(library, sandbox)):
        found.append(f"the host code enters the system by the instruction {instruction}: {ONLY}")
    return tuple(dict.fromkeys(found))


def _verdict(name: str) -> str:
    """Why a symbol may not be used; empty when it may."""
    if RUNTIME.fullmatch(name) or LANGUAGE.fullmatch(name) or _is_plain(name):
        return ""
    if STANDARD.fullmatch(name):
        refused = ((shown, reason) for pattern, shown, reason in STANDARD_REFUSED if pattern.search(name))
        return next((f"the host code uses {shown}: {reason}" for shown, reason in refused), "")
    reason = next(reason for pattern, reason in REASONS if pattern.fullmatch(name))
    return f"the host code calls {readable(name)}: {reason}"


def _is_plain(name: str) -> bool:
    if name in C_NAMES or name in MATHS:
        return True
    bare = fortified[1] if (fortified := FORTIFIED.fullmatch(name)) else name
    if bare in C_NAMES or bare in MATHS:
        return True
    typed = MATHS_TYPE.fullmatch(bare)
    return typed is not None and typed[1] + (typed[2] or "") in MATHS


def _system_call(library: Path, sandbox: str) -> str:
    """The first instruction that enters the system; nothing where there is no disassembler."""
    tool = shutil.which("objdump")
    if tool is None:
        return ""
    with TemporaryDirectory(prefix="cupilot-") as name:
        shutil.copyfile(library, Path(name, "library"))
        step = Step("objdump", (tool, "-d", "--no-show-raw-insn", "library"), output="listing")
        ended = run_tools([step], Path(name), [Path(tool).parent, Path(tool).resolve().parent], 60, sandbox=sandbox)
        done = ended.steps and ended.failed is None
        found = SYSTEM_CALL.search(Path(name, "listing").read_text(errors="replace")) if done else None
    return found[1] if found else ""


# --- shared libraries, as the loader sees them (System V ABI, "Program Loading and Dynamic Linking") ------------------

X86_64 = 62
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
EXECUTABLE, WRITABLE = 1, 2
SYMBOL_TABLE, SYMBOL_BYTES, FUNCTION = 2, 24, 2
STRINGS, SYMBOLS, RELOCATIONS, RELOCATIONS_SIZE, CALLS_SIZE, CALLS = 5, 6, 7, 8, 2, 23


class _Image:
    """A 64-bit, little-endian shared library."""

    def __init__(self, library: Path) -> None:
        self._data = library.read_bytes()
        if self._data[:6] != b"\x7fELF\x02\x01":
            raise MachineError(f"{library} is not a shared library of this machine")
        (self.machine,) = struct.unpack_from("<H", self._data, 18)
        (table,) = struct.unpack_from("<Q", self._data, 32)
        size, count = struct.unpack_from("<HH", self._data, 54)
        # type, flags, offset, address, (physical address), size in the file
        self._segments: list[tuple[int, int, int, int, int]]
        self._segments = [struct.unpack_from("<IIQQ8xQ", self._data, table + size * i) for i in range(count)]

    @property
    def writable_code(self) -> bool:
        """Whether memory can be written and executed, or the stack be executed."""
        both = EXECUTABLE | WRITABLE
        return any(kind in {LOAD, STACK} and flags & both == both for kind, flags, *_ in self._segments)

    def code(self) -> bytes:
        """All segments that can be executed."""
        return b"".join(
            self._data[offset : offset + size]
            for kind, flags, offset, _, size in self._segments
            if kind == LOAD and flags & EXECUTABLE
        )

    def functions(self) -> set[str]:
        """Functions that the library's own table of symbols says it holds, hidden ones included."""
        (table,) = struct.unpack_from("<Q", self._data, 40)
        size, count = struct.unpack_from("<HH", self._data, 58)
        # type, offset, size, number of the section with the names
        sections = [struct.unpack_from("<4xI16xQQI", self._data, table + size * i) for i in range(count)]
        names = set()
        for kind, offset, length, link in sections:
            if kind != SYMBOL_TABLE:
                continue
            for at in range(offset, offset + length, SYMBOL_BYTES):
                name, info, section = struct.unpack_from("<IBxH", self._data, at)
                if section and info & 15 == FUNCTION:
                    begin = sections[link][1] + name
                    names.add(self._data[begin : self._data.index(0, begin)].decode(errors="replace"))
        return names

    def imports(self) -> list[str]:
        """Symbols that relocations name and the library does not define, in order of the alphabet."""
        entries = self._dynamic()
        symbols, strings = (self._place(entries[tag]) for tag in (SYMBOLS, STRINGS))
        names = set()
        for start, size in ((RELOCATIONS, RELOCATIONS_SIZE), (CALLS, CALLS_SIZE)):
            place = self._place(entries[start]) if start in entries else 0
            for at in range(place, place + entries.get(size, 0), 24):
                (number,) = struct.unpack_from("<I", self._data, at + 12)
                name, _, _, section = struct.unpack_from("<IBBH", self._data, symbols + 24 * number)
                if number and section == 0:
                    names.add(self._data[strings + name : self._data.index(b"\0", strings + name)].decode())
        return sorted(names)

    def _dynamic(self) -> dict[int, int]:
        for kind, _, offset, _, size in self._segments:
            if kind == DYNAMIC:
                return dict(struct.iter_unpack("<QQ", self._data[offset : offset + size - size % 16]))
        return {}

    def _place(self, address: int) -> int:
        for kind, _, offset, start, size in self._segments:
            if kind == LOAD and start <= address < start + size:
                return offset + address - start
        raise MachineError("a shared library points outside of itself")
