"""Task files that do anything but say what to compute."""

from __future__ import annotations

import sys

from hostile_case import Hostile
from hostile_kernels import source

IMPORT = "import torch\n"
MODEL = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
INPUTS = "def get_inputs():\n    return [torch.rand(64, 48)]\n"


def task(
    start: str = "", *, forward: str = "return x * 2", inputs: str = "return [torch.rand(64, 48)]", end: str = ""
) -> str:
    """A right task with something in it that is not."""
    model = f"class Model(torch.nn.Module):\n    def forward(self, x):\n        {forward}\n"
    return f"{IMPORT}{start}\n{model}def get_inputs():\n    {inputs}\n{end}\n"


def inputs(value: str) -> str:
    return task(inputs=f"return {value}")


TASKS: dict[str, str | bytes] = {
    "empty": "",
    "binary": bytes(range(256)) * 64,
    "nul bytes": task().encode() + b"\0",
    "not UTF-8": task().encode() + b"# \xff\xfe\n",
    "UTF-16": task().encode("utf-16"),
    "another encoding": b"# -*- coding: no-such-encoding -*-\n" + task().encode(),
    "syntax error": "class Model(:\n",
    "nested brackets": task("x = " + "[" * 3000 + "]" * 3000),
    "nested too deeply to compile": task("x = " + "-" * 20_000 + "1"),
    "long sum": task("x = " + "+".join(["1"] * 30_000)),
    "long number": task("x = " + "9" * 10_000),
    "tabs and spaces": task("if True:\n\tx = 1\n        y = 2"),
    "no model": IMPORT + INPUTS,
    "no inputs": IMPORT + MODEL,
    "model is a number": IMPORT + "Model = 3\n" + INPUTS,
    "model is no module": IMPORT + "class Model:\n    def forward(self, x): return x\n" + INPUTS,
    "model needs arguments": IMPORT
    + "class Model(torch.nn.Module):\n    def __init__(self, a, b): super().__init__()\n"
    + INPUTS,
    "model forgets its parent": IMPORT
    + "class Model(torch.nn.Module):\n    def __init__(self): self.x = torch.nn.Linear(2, 2)\n"
    + INPUTS,
    "inputs is a number": IMPORT + MODEL + "get_inputs = 3\n",
    "inputs are nothing": inputs("None"),
    "inputs are a number": inputs("7"),
    "inputs are a tensor": inputs("torch.rand(64, 48)"),
    "inputs are none": inputs("[]"),
    "inputs are texts": inputs("['a']"),
    "inputs are lists": inputs("[[torch.rand(3)]]"),
    "inputs are a dict": inputs("{'x': torch.rand(3)}"),
    "inputs are too many": inputs("[torch.rand(3)] * 50"),
    "inputs are sparse": inputs("[torch.rand(64, 48).to_sparse()]"),
    "inputs are complex": inputs("[torch.rand(64, 48, dtype=torch.complex64)]"),
    "inputs are quantized": inputs("[torch.quantize_per_tensor(torch.rand(64, 48), 0.1, 0, torch.qint8)]"),
    "inputs are meta tensors": inputs("[torch.rand(64, 48, device='meta')]"),
    "inputs are on a GPU": inputs("[torch.rand(64, 48, device='cuda')]"),
    "inputs are nested tensors": inputs("[torch.nested.nested_tensor([torch.rand(2), torch.rand(3)])]"),
    "inputs have a negative size": inputs("[torch.rand(-3)]"),
    "inputs raise": task(inputs="raise ValueError('\\x1b[31m first\\nsecond')"),
    "inputs take arguments": IMPORT + MODEL + "def get_inputs(a, b, c):\n    return []\n",
    "raises": task("raise RuntimeError('no')"),
    "raises without a word": task("raise ValueError"),
    "raises a megabyte": task("raise ValueError('x' * 1_000_000)"),
    "raises what cannot be shown": task(
        "class E(Exception):\n    def __str__(self): raise ValueError('again')\nraise E"
    ),
    "imports nothing": task("import a_module_that_does_not_exist"),
    "imports a broken neighbour": task("import neighbour"),
    "imports itself": task("import task"),
    "assertion": task("assert False"),
    "forward returns nothing": task(forward="return None"),
    "forward returns a text": task(forward="return 'text'"),
    "forward returns a dict": task(forward="return {'y': x}"),
    "forward returns a nest": task(forward="return (x, (x, x))"),
    "forward returns no outputs": task(forward="return ()"),
    "forward returns a number": task(forward="return x.shape[0]"),
    "forward returns complex numbers": task(forward="return torch.fft.fft(x)"),
    "forward returns sparse": task(forward="return x.to_sparse()"),
    "forward raises": task(forward="raise KeyError('\\ud800')"),
    "forward recurses": task(forward="return self.forward(x)"),
    "forward takes two": task(forward="pass").replace("def forward(self, x)", "def forward(self, x, y)"),
    "init inputs are a number": task(end="def get_init_inputs():\n    return 7"),
    "unknown annotation": task().replace("def forward(self, x)", "def forward(self, x: Tensor)"),
}
WALLED: dict[str, str | bytes] = {
    "exits": task("import sys\nsys.exit(0)"),
    "exits in the inputs": task(inputs="raise SystemExit(0)"),
    "exits at once": task("import os\nos._exit(0)"),
    "exits at once in forward": task(forward="import os; os._exit(0)"),
    "raises what is no Exception": task("raise BaseException('no')"),
    "presses Ctrl-C": task("raise KeyboardInterrupt"),
    "presses Ctrl-C in the inputs": task(inputs="raise KeyboardInterrupt"),
    "kills itself": task("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    "kills its parent": task("import os, signal\nos.kill(os.getppid(), signal.SIGTERM)\nraise ValueError"),
    "segmentation fault": task("import ctypes\nctypes.string_at(8)"),
    "never ends": task("while True: pass"),
    "never ends in forward": task(forward="\n        while True: pass"),
    "sleeps": task("import time\ntime.sleep(10**6)"),
    "deep recursion": task("def f(n): return f(n + 1)\nimport sys\nsys.setrecursionlimit(10**9)\nf(0)"),
    "all memory": task("x = [bytearray(1 << 28) for _ in range(1000)]"),
    "huge tensors": inputs("[torch.rand(1 << 40, 1 << 20)]"),
    "prints megabytes": task("print('x' * 20_000_000)\nraise ValueError"),
    "writes to the real stdout": task("import os\nos.write(1, b'{}\\n')\nraise ValueError"),
    "closes all files": task("import os\nos.closerange(0, 1000)\nraise ValueError"),
    "patches JSON": task("import json\njson.dumps = json.loads = None\nraise ValueError"),
    "patches builtins": task(
        "import builtins\nbuiltins.open = builtins.len = builtins.isinstance = None\nraise ValueError"
    ),
    "patches stdout": task("import sys\nsys.stdout = sys.stderr = None\nraise ValueError"),
    "patches torch": task("torch.Tensor.shape = None\ntorch.nn.Module.__call__ = None"),
    "leaves a handler": task("import atexit, os\natexit.register(lambda: os._exit(0))\nraise ValueError"),
    "leaves a thread": task(
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(10**6)).start()\nraise ValueError"
    ),
    "leaves a process": task("import subprocess\nsubprocess.Popen(['sleep', '1000'])\nraise ValueError"),
    "leaves a temporary folder": task("import tempfile\ntempfile.mkdtemp()\nraise ValueError"),
    "removes its folder": task("import shutil, os\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nraise ValueError"),
    "changes folder": task("import os\nos.chdir('/')\nraise ValueError"),
    "starts a server": task("import socket\ns = socket.create_server(('', 0))\ns.accept()"),
    "forks": task("import os\nfor _ in range(3): os.fork()\nraise ValueError"),
}
"""What needs the wall of a process of its own."""
DAILY = ("syntax error", "raises what cannot be shown", "forward returns a nest", "exits at once", "leaves a handler")


def evaluated(name: str, content: str | bytes) -> Hostile:
    words = ("evaluate", "kernel.cu", "--task", "task.py", "--timeout", "5", "--seed", "1", "--json", "-")
    files = {"kernel.cu": source(), "task.py": content, "neighbour.py": "raise ValueError('neighbour')\n"}
    return Hostile(words, STATUS.get(name, (2,)), files, daily=name in DAILY)


STATUS = {
    "patches torch": (1, 2),  # may be found out only while the kernel is evaluated
    "another encoding": (2,),
    "imports itself": (0,),  # as Python lets it
    "unknown annotation": (2,) if sys.version_info < (3, 14) else (0,),  # evaluated only on demand from then on
}
CASES = {f"task: {name}": evaluated(name, text) for name, text in TASKS.items()}
WALLED_CASES = {f"task: {name}": evaluated(name, text) for name, text in WALLED.items()}
