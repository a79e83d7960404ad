"""Kernel files that no evaluation may stumble over."""

from __future__ import annotations

from hostile_case import Hostile

TASK = """
import torch
rows, cols = 64, 48
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.rand(rows, cols)]
"""
HEAD = "#include <torch/extension.h>\n#include <stdexcept>\n#include <string>\n"
KERNEL = """__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""
LAUNCH = """    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    twice<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
"""


def source(
    before: str = "", body: str = "", *, head: str = HEAD, kernel: str = KERNEL, end: str = "    return y;\n"
) -> str:
    """A right kernel with something in it that is not."""
    return f"{head}{kernel}{before}\ntorch::Tensor forward(torch::Tensor x) {{\n{body}{LAUNCH}{end}}}\n"


def device(body: str, launch: str = "twice<<<(n + 255) / 256, 256>>>") -> str:
    kernel = f"__global__ void twice(const float* x, float* y, int n) {{\n    {body}\n}}\n"
    return source(kernel=kernel).replace("twice<<<(n + 255) / 256, 256>>>", launch)


MODEL = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
CUDA_TEXT = "SOURCE = '''__global__ void k() {}'''\n"

KERNELS: dict[str, str | bytes] = {
    "empty": "",
    "blank": " \n\t\n" * 1000,
    "binary": bytes(range(256)) * 64,
    "nul bytes": source().encode() + b"\0\0\0",
    "invalid UTF-8": source().encode() + b"// \xff\xfe\n",
    "UTF-16": source().encode("utf-16"),
    "lone surrogate": source().encode() + b"// \xed\xa0\x80\n",
    "ten megabytes of comment": "//" + "x" * 10_000_000 + "\n",
    "ten megabytes of braces": "{" * 10_000_000,
    "a line of a megabyte": source("int " + "a" * 1_000_000 + ";"),
    "unclosed comment": source() + "/* never closed",
    "unclosed string": source('const char* text = "never closed;'),
    "unclosed raw string": source('const char* text = R"x(never closed;'),
    "unclosed character": source("char c = 'never closed;"),
    "unclosed braces": source() + "void f() { if (true) {",
    "too many braces": source() + "}}}}}}",
    "nested templates": source("template <int N> struct T { static const int v = T<N + 1>::v; }; int v = T<0>::v;"),
    "nested brackets": source(f"int deep = {'(' * 5000}1{')' * 5000};"),
    "endless constant": source('constexpr int f(int n) { return f(n + 1); } static_assert(f(0), "");'),
    "includes itself": "#include __FILE__\n" + source(),
    "include that is missing": '#include "nowhere.h"\n' + source(),
    "include of a folder": '#include "/tmp"\n' + source(),
    "error with escapes": "#error \x1b[31mred\x07\n" + source(),
    "line directive": '#line 4000000000 "/etc/passwd"\n' + source("this is wrong;"),
    "garbled directive": "#define\n#if\n#elif x\n" + source(),
    "no kernel": "int main() { return 0; }\n",
    "prose": "Dear reader,\n\nthis is not CUDA. It has \"quotes' and ` backticks.\n",
    "Markdown": "```cuda\n" + source() + "```\n",
    "two forwards": source() + "torch::Tensor forward(torch::Tensor x, int k) { return x; }\n",
    "the same forward twice": source() + source(head="", kernel=""),
    "forward is a variable": HEAD + KERNEL + "int forward = 3;\n",
    "forward is a macro": source("#define forward backward"),
    "forward in a namespace": f"{HEAD}namespace n {{\n{source(head='')}}}\n",
    "static forward": source().replace("torch::Tensor forward", "static torch::Tensor forward"),
    "signature of pointers": HEAD
    + KERNEL
    + "float** forward(void (*f)(int), float* const* x, ...) { return nullptr; }\n",
    "signature of templates": HEAD + KERNEL + "template <typename T> T forward(T x) { return x; }\n",
    "signature that is cut off": HEAD + KERNEL + "torch::Tensor forward(torch::Tensor x,",
    "default arguments": HEAD
    + KERNEL
    + "torch::Tensor forward(torch::Tensor x = torch::Tensor(), int n = f(g({1, 2}))) { return x; }\n",
    "return redefined": source("#define return throw 1; return"),
    "if redefined": source("#define if while"),
    "torch redefined": source("#define torch std"),
    "garbage in assembly": device('asm volatile("no.such.instruction %0;" :: "r"(n));'),
    "assembly of another file": device('asm(".include \\"/etc/passwd\\"");'),
    "a name of a megabyte": source(kernel=KERNEL.replace("twice", "t" * 100_000)).replace("twice", "t" * 100_000),
    "throws a number": source(body="    throw 42;\n"),
    "throws a text": source(body='    throw std::string("text");\n'),
    "throws escapes": source(body='    throw std::runtime_error("\\x1b[2J\\x07 first\\nsecond\\r\\n\\xff\\xfe");\n'),
    "throws ten megabytes": source(body="    throw std::runtime_error(std::string(10000000, 'x'));\n"),
    "throws without a word": source(body='    throw std::runtime_error("");\n'),
    "throws while it is loaded": source("struct S { S() { throw 1; } }; static S s;"),
    "exits while it is loaded": source("#include <cstdlib>\nstruct S { S() { exit(0); } }; static S s;"),
    "exits when it is unloaded": source("#include <cstdlib>\nstruct S { ~S() { _Exit(0); } }; static S s;"),
    "exits": source("#include <cstdlib>", "    exit(0);\n"),
    "exits at once": source("#include <cstdlib>", "    _Exit(0);\n"),
    "aborts": source("#include <cstdlib>", "    abort();\n"),
    "kills itself": source("#include <csignal>", "    raise(SIGKILL);\n"),
    "stops itself": source("#include <csignal>", "    raise(SIGSTOP);\n"),
    "segmentation fault": source(body="    *(volatile int*)8 = 1;\n"),
    "divides by zero": source(body="    volatile int zero = 0; volatile int bad = 1 / zero; (void)bad;\n"),
    "stack overflow": source(
        "int f(int n) { volatile char space[65536]; space[0] = n; return f(n + 1) + space[0]; }", "    f(0);\n"
    ),
    "endless host loop": source(body="    volatile int go = 1; while (go) {}\n"),
    "all memory": source(
        "#include <vector>", "    for (;;) { auto* v = new std::vector<char>(1 << 28, 1); (void)v; }\n"
    ),
    "floods stdout": source("#include <cstdio>", '    for (;;) printf("flood\\n");\n'),
    "floods stderr": source("#include <cstdio>", '    for (;;) fprintf(stderr, "flood\\n");\n'),
    "closes files": source("#include <unistd.h>", "    for (int i = 0; i < 1024; i++) close(i);\n"),
    "starts processes": source("#include <unistd.h>", "    for (;;) fork();\n"),
    "starts threads": source("#include <thread>", "    for (;;) std::thread([] { for (;;) {} }).detach();\n"),
    "returns nothing": source(end="    return torch::Tensor();\n"),
    "returns no tensor": source().replace("torch::Tensor forward", "int forward").replace("return y;", "return 3;"),
    "returns its input": source(end="    return x;\n"),
    "returns another shape": source(end="    return torch::empty({3, 0, 5}, x.options());\n"),
    "negative size": source(body="    auto z = torch::empty({-5, 3}, x.options());\n"),
    "enormous size": source(body="    auto z = torch::empty({1LL << 40, 1LL << 20}, x.options());\n"),
    "zero grid": device("y[0] = 1;", "twice<<<0, 256>>>"),
    "huge grid": device("y[0] = 1;", "twice<<<dim3(2147483647, 65535, 65535), 1024>>>"),
    "huge block": device("y[0] = 1;", "twice<<<1, 4096>>>"),
    "negative grid": device("y[0] = 1;", "twice<<<-1, -1>>>"),
    "all shared memory": device("extern __shared__ float s[]; s[threadIdx.x] = 1;", "twice<<<1, 32, 1 << 30>>>"),
    "null pointer": device("float* none = nullptr; none[threadIdx.x] = 1;"),
    "far out of bounds": device("y[1LL << 50] = 1;"),
    "endless device loop": device("volatile int go = 1; while (go) {}"),
    "device recursion": source(
        "",
        kernel="__device__ int f(int n) { return n < 0 ? 0 : f(n + 1) + n; }\n__global__ void twice(const float* x, float* y, int n) { y[0] = f(n); }\n",
    ),
    "trap": device("__trap();"),
    "assertion with escapes": "#include <cassert>\n" + device('assert(n < 0 && "\\x1b[31m\\n");'),
    "device printf floods": "#include <cstdio>\n" + device('for (;;) printf("flood %d\\n", n);'),
    "half of the barriers": device("if (threadIdx.x < 7) __syncthreads(); y[threadIdx.x] = 1;"),
}
PYTHON: dict[str, str | bytes] = {
    "Python: syntax error": "class ModelNew(:\n",
    "Python: nul bytes": MODEL.encode() + b"\0",
    "Python: nested brackets": MODEL + f"x = {'[' * 3000}{']' * 3000}\n",
    "Python: long sum": MODEL + "x = " + "+".join(["1"] * 30_000) + "\n",
    "Python: no class": CUDA_TEXT + "x = 3\n",
    "Python: the class is a number": CUDA_TEXT + "ModelNew = 3\n",
    "Python: class without forward": CUDA_TEXT + "class ModelNew: pass\n",
    "Python: raises": CUDA_TEXT + MODEL + "raise BaseException('\\x1b[31m\\n\\ud800')\n",
    "Python: exits at once": CUDA_TEXT + "import os\nos._exit(0)\n" + MODEL,
    "Python: never ends": CUDA_TEXT + "while True: pass\n" + MODEL,
    "Python: deep recursion": CUDA_TEXT + MODEL.replace("return x * 2", "return self.forward(x)"),
    "Python: returns a text": CUDA_TEXT + MODEL.replace("x * 2", "'text'"),
}  # fmt: skip
RIGHT = (
    "static forward", "if redefined", "a line of a megabyte", "nested brackets",
    "forward is a macro", "forward in a namespace", "a name of a megabyte",
)  # fmt: skip
"""Strange, and yet a right kernel: C++ means by them what it says."""
STATUS = {
    **dict.fromkeys(RIGHT, (0,)),
    "nul bytes": (0, 1, 2),  # C++ does not say what they are
    "divides by zero": (0, 1),  # undefined: GCC makes a comparison of a division of one
}
DAILY = ("empty", "unclosed raw string", "throws escapes", "exits while it is loaded", "Python: nested brackets")


def evaluated(name: str, content: str | bytes, file: str) -> Hostile:
    words = ("evaluate", file, "--task", "task.py", "--timeout", "5", "--seed", "1", "--json", "-")
    return Hostile(words, STATUS.get(name, (1, 2)), {file: content, "task.py": TASK}, daily=name in DAILY)


CASES = {
    **{f"kernel: {name}": evaluated(name, text, "kernel.cu") for name, text in KERNELS.items()},
    **{name: evaluated(name, text, "kernel.py") for name, text in PYTHON.items()},
}
