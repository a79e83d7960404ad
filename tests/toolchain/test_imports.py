"""Which symbols and instructions of a built candidate are refused, on libraries made by the host compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.errors import MachineError
from cupilot.toolchain.cuda import find_host_compiler
from cupilot.toolchain.imports import forbidden_imports
from cupilot.toolchain.process import run

ONLY = "a candidate may only call the CUDA runtime and the C++ standard library"

HONEST = r"""
#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>
extern "C" int cudaGetLastError();
extern "C" void __cudaRegisterFatBinary(void*);
struct Base { virtual ~Base() = default; virtual int get() const = 0; };
struct One : Base { int get() const override { return 1; } };
struct Two : virtual One { int get() const override { return 2; } };
struct alignas(64) Wide { float a[16]; };
static std::mutex gate;
static std::shared_mutex shared;
static std::once_flag once;
static std::unordered_map<std::string, std::vector<int>> memo;
thread_local std::string mine = "x";
double maths(double v, float f, long double l, int n) {
    std::complex<double> z(v, 1);
    double whole;
    double s = sin(v) + atan2(v, 2) + exp2(v) + expm1(v) + log1p(v) + pow(v, 3.1) + cbrt(v) + hypot(v, 1) + erf(v)
        + tgamma(v) + lgamma(v) + fmod(v, 3) + remainder(v, 3) + fma(v, v, v) + ldexp(v, 2) + nextafter(v, 9)
        + frexp(v, &n) + modf(v, &whole) + lround(v) + llrint(v) + ilogb(v) + std::abs(std::exp(z)) + nearbyint(v);
    return s + sinf(f) + cosf(f) + powf(f, 2.5f) + erff(f) + tanhf(f) + lgammaf(f) + sinl(l) + powl(l, l) + roundf(f);
}
int forward(int n, double v) {
    assert(n > 0);
    std::lock_guard<std::mutex> hold(gate);
    std::shared_lock<std::shared_mutex> read(shared);
    std::call_once(once, [] { std::puts("once"); });
    static const std::vector<int> first = {3, n, 2};
    std::vector<int> values = first;
    std::stable_sort(values.begin(), values.end(), std::greater<int>());
    std::function<int(int)> add = [&](int k) { return k + values[0]; };
    std::map<int, std::string> names{{1, "a"}};
    std::deque<int> deque{1};
    memo["k" + std::to_string(n)] = values;
    std::stringstream text;
    text << std::setprecision(3) << std::fixed << v << " " << add(2) << names[1] << deque.front() << std::hex << 12;
    std::string word;
    std::getline(text, word);
    std::cout << word << std::endl;
    std::cerr << "e" << std::thread::hardware_concurrency() << std::flush;
    char line[64];
    snprintf(line, sizeof line, "%d %s", add(1), word.c_str());
    sscanf(line, "%d", &values[0]);
    fprintf(stderr, "%s %s\n", line, strerror(3));
    fputs(line, stdout);
    fflush(stdout);
    std::unique_ptr<Base> base(v > 1 ? static_cast<Base*>(new One) : new Two);
    if (auto* two = dynamic_cast<Two*>(base.get())) printf("%d %s\n", two->get(), typeid(*two).name());
    auto counted = std::make_shared<Two>();
    std::mt19937 generator(std::random_device{}());
    std::normal_distribution<float> normal;
    std::variant<int, std::string> either = "s";
    std::visit([](auto&& it) { std::cout << it; }, either);
    auto begin = std::chrono::steady_clock::now();
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%f %ld %ld\n", normal(generator), (long)begin.time_since_epoch().count(), (long)(time(nullptr) + clock()));
    try {
        (void)std::stoi(word);
    } catch (const std::exception& error) {
        fprintf(stderr, "%s\n", error.what());
    }
    std::vector<Wide> wide(n);
    void* block = std::calloc(n, 64);
    std::memmove(block, line, 8);
    std::free(std::realloc(block, 128));
    qsort(values.data(), values.size(), 4, [](const void* a, const void* b) { return *(int*)a - *(int*)b; });
    if (cudaGetLastError()) exit(EXIT_FAILURE);
    __cudaRegisterFatBinary(wide.data());
    if (n > 100) throw std::invalid_argument(mine + "too many");
    return (int)maths(v, (float)v, v, n) + std::rand() + std::atoi(line) + toupper(line[0]);
}
"""

CALLS = r"""
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>
extern "C" void PyRun_SimpleString(const char*);
extern "C" void vgc_begin();
extern "C" void cublasSgemm_v2();
int undefined(float);
void forward(char** words, void* p) {
    fork(); execve(words[0], words, words); (void)!system(words[0]); dlopen(words[0], 1); dlsym(p, words[0]);
    mmap(p, 1, 2, 3, 4, 5); mprotect(p, 1, 7); syscall(1); socket(1, 2, 3); ptrace(PTRACE_TRACEME); signal(1, SIG_IGN);
    kill(1, 2); (void)!write(3, p, 5); fopen(words[0], "w"); unlink(words[0]); dprintf(7, "x");
    usleep(5);
    pthread_create((pthread_t*)p, nullptr, nullptr, nullptr);
    PyRun_SimpleString("1"); vgc_begin(); cublasSgemm_v2(); undefined(1.0f);
    _exit(getenv("HOME") != nullptr);
}
"""

STANDARD = """
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
void forward() {
    std::thread([] {}).join();
    std::ofstream("answer") << 1;
    std::filesystem::remove("x");
    std::mutex m;
    std::unique_lock l(m);
    std::condition_variable().wait(l);
}
"""


def library(source: str, folder: Path, *flags: str) -> Path:
    (folder / "host.cpp").write_text(source)
    line = [find_host_compiler(), "-shared", "-fPIC", "-std=c++17", *flags, "host.cpp", "-o", "host.so"]
    done = run(line, folder, timeout_s=60)
    assert done is not None
    assert done.status == 0, done.output
    return folder / "host.so"


@pytest.mark.parametrize("flags", [("-O1",), ("-O2", "-D_FORTIFY_SOURCE=2")])
def test_what_wrappers_use_of_c_and_cpp_passes(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert forbidden_imports(library(HONEST, tmp_path, *flags)) == ()


def test_wrappers_built_by_nvcc_pass(many: Built) -> None:
    assert forbidden_imports(many.library) == ()


def test_calls_that_reach_the_system_are_named(tmp_path: Path) -> None:
    found = forbidden_imports(library(CALLS, tmp_path))
    plain = ("fork", "execve", "system", "dlopen", "dlsym", "mmap", "mprotect", "syscall", "socket", "ptrace", "signal",
             "kill", "write", "dprintf", "PyRun_SimpleString", "vgc_begin", "cublasSgemm_v2",
             "undefined(float)")  # fmt: skip
    expected = {f"the host code calls {name}: {ONLY}" for name in plain} | {
        "the host code calls fopen: a candidate has no files",
        "the host code calls unlink: a candidate has no files",
        "the host code calls usleep: a candidate must not wait",
        "the host code calls pthread_create: all work belongs inside the call, on the GPU",
        "the host code calls getenv: a candidate depends on its arguments alone",
        "the host code calls _exit: a candidate returns from its call",
    }
    assert set(found) == expected
    assert len(found) == len(expected)


def test_parts_of_the_standard_library_that_reach_out_are_refused(tmp_path: Path) -> None:
    assert set(forbidden_imports(library(STANDARD, tmp_path))) >= {
        "the host code uses std::thread: all work belongs inside the call, on the GPU",
        "the host code uses std::fstream: a candidate has no files",
        "the host code uses std::filesystem: a candidate has no files",
        "the host code uses std::condition_variable: a candidate must not wait",
    }


@pytest.mark.parametrize("assembly", ["syscall", "int $0x80", "sysenter"])
def test_system_calls_by_instruction_are_found(tmp_path: Path, assembly: str) -> None:
    found = forbidden_imports(library(f'void forward() {{ asm volatile("{assembly}"); }}', tmp_path))
    assert len(found) == 1
    assert found[0].startswith("the host code enters the system by the instruction " + assembly.partition(" ")[0])


def test_the_same_bytes_within_an_instruction_are_no_system_call(tmp_path: Path) -> None:
    source = 'unsigned forward() { unsigned v; asm volatile("movl $0x80cd050f, %0" : "=r"(v)); return v; }'
    path = library(source, tmp_path)
    assert b"\x0f\x05\xcd\x80" in path.read_bytes()
    assert forbidden_imports(path) == ()


def test_code_that_can_be_written_is_refused(tmp_path: Path) -> None:
    path = library("void forward() {}", tmp_path, "-Wl,-z,execstack")
    assert forbidden_imports(path) == ("the host code can change its own instructions: a candidate may not",)


def test_other_files_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "host.so").write_bytes(b"#!/bin/sh\n")
    with pytest.raises(MachineError, match="is not a shared library"):
        forbidden_imports(tmp_path / "host.so")
