"""Every target, from a small task and kernel: what is written is used as people would use it."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
from export_samples import CONVOLUTION, FILLING, KERNEL, TASK, TWO_OUTPUTS

from cupilot.cli import main
from cupilot.contracts import Brief, Built, Device
from cupilot.errors import UserError
from cupilot.evolution.result import evaluation_report, repeat_report, to_json
from cupilot.expert import Expert
from cupilot.export import Subject, export, subject_of, target_names
from cupilot.export.writing import python_text
from cupilot.records import Kernel, Task
from cupilot.tasks import load_task
from cupilot.tasks.load import task_from_source
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.nvcc import build_kernel
from evaluating import evaluator_on

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


@pytest.fixture(scope="module")
def task() -> Task:
    return task_from_source(TASK, "rows", "fp32", where="rows.py")


@pytest.fixture(scope="module")
def subject(task: Task) -> Subject:
    return subject_of(task, Kernel(KERNEL))


def test_the_kernel_is_bound_and_gets_a_module(subject: Subject) -> None:
    assert subject.call == "inputs[0], model.inner[0].weight, model.mean, model.shift"
    assert subject.source.endswith('m.def("forward", &rows::forward);\n}\n')
    assert [argument.path for argument in subject.state] == ["inner.0.weight", "mean"]
    assert subject.state[0].member == "getattr(self.inner, '0').weight"
    assert not subject.facts.mode_matters
    assert subject.facts.has_backward


def test_a_run_is_exported(
    device: Device, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = Kernel(KERNEL)
    evaluation = evaluator_on(device)(task, kernel)
    assert evaluation.correct, evaluation.failure
    Path("run").mkdir()
    Path("run/result.json").write_text(
        to_json({"best": evaluation_report(evaluation) | repeat_report(task, kernel, 60.0)})
    )
    for target in target_names():
        assert main(["export", "run", "--to", target]) == 0
        assert Path(f"rows-{target}").is_dir()
    assert "rows-library/rows_kernel/operator.py" in capsys.readouterr().out
    readme = Path("rows-torch-extension/README.md").read_text()
    assert "Verified by cupilot on `virtual:a100-80gb`" in readme
    assert "**modelled**" in readme
    # an answer of KernelBench, judged as all answers are
    answer = Path("rows-modelnew/rows_new.py")
    judged = evaluator_on(device, seed=3)(task, Kernel(answer.read_text(), language="modelnew"))
    assert judged.correct, judged.failure
    assert judged.timing is not None
    assert evaluation.timing is not None
    assert judged.timing.time_s == pytest.approx(evaluation.timing.time_s, rel=0.01)
    assert main(["export", "run", "--to", "modelnew"]) == 2
    assert "not an empty folder: choose another with --out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_convolution_becomes_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the commands alone; its module takes sizes from the top of the file, which smaller versions change."""
    monkeypatch.chdir(tmp_path)
    Path("conv.py").write_text(CONVOLUTION)
    device = ("--device", "virtual:a100-80gb")
    search = ("optimize", "conv.py", *device, "--max-evaluations", "2", "--no-pool", "--out", "run")
    assert main(search) == 0, capsys.readouterr().err
    assert main(["export", "run", "--to", "modelnew"]) == 0, capsys.readouterr().err
    judge = ("evaluate", "conv-modelnew/conv_new.py", "--task", "conv.py", *device, "--json", "judged.json")
    assert main(judge) == 0, capsys.readouterr().err
    best, judged = json.loads(Path("run/result.json").read_text())["best"], json.loads(Path("judged.json").read_text())
    assert judged["correct"]
    assert len({check["shapes"] for check in judged["checks"]}) >= 2, "at other sizes too"
    assert judged["timing"]["time_s"] == pytest.approx(best["timing"]["time_s"], rel=0.01)


def test_a_state_dict_of_the_module_fits_the_answer(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    class Fake:
        @staticmethod
        def forward(*arguments: Any) -> Any:
            return arguments

    def load_inline(**given: Any) -> type[Fake]:
        asked.update(given)
        return Fake

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", load_inline)
    (path,) = export(subject, "modelnew", tmp_path)
    names: dict[str, Any] = {"__name__": "answer"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert asked["cuda_sources"] == subject.source
    reference, answer = names["Model"](160, 0.25), names["ModelNew"](160, shift=0.25)
    answer.load_state_dict(reference.state_dict())
    x = torch.rand(160, 3).t()
    assert answer(x) is not None
    result = names["_call"](lambda *given: torch.stack([g for g in given if torch.is_tensor(g)][:1]), answer, (x,))
    assert torch.equal(result[0], x)


def test_the_extension_compiles(subject: Subject, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(subject, "torch-extension", tmp_path / "out")
    text = (tmp_path / "out" / "kernel.cu").read_text()
    built = build_kernel(Kernel(text), "sm_80", cache / "tests", find_cuda())
    assert isinstance(built, Built), built
    asked: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", lambda **given: asked.update(given))
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(find_cuda().root))  # the CPU build looks for none
    runpy.run_path(str(tmp_path / "out" / "setup.py"))
    (extension,) = asked["ext_modules"]
    assert (extension.name, extension.sources) == ("rows_cuda", ["kernel.cu"])
    assert asked["py_modules"] == ["rows_module", "rows_reference"]
    for path in (tmp_path / "out").glob("*.py"):
        compile(path.read_text(), str(path), "exec")


# names of types in headers of libraries that are not installed here; nothing of them is used
LIBRARIES = {
    "cublas_v2.h": "cublasHandle_t cublasStatus_t cublasOperation_t cublasMath_t",
    "cublasLt.h": "cublasLtHandle_t",
    "cusparse.h": "cusparseHandle_t cusparseStatus_t",
    "cusolverDn.h": "cusolverDnHandle_t cusolverStatus_t",
    "cusolver_common.h": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["a plain kernel", "the expert's"])
def test_the_extension_compiles_with_the_headers_of_pytorch(
    subject: Subject, device: Device, tmp_path: Path, form: str
) -> None:
    """The CPU build has them all but one."""
    from torch.utils.cpp_extension import include_paths

    if form == "the expert's":
        task = load_task(EXAMPLES / "softmax.py")
        subject = subject_of(task, Expert().generate(Brief(task, device.spec)))
    export(subject, "torch-extension", tmp_path / "out")
    stubs = tmp_path / "stubs"
    (stubs / "c10/cuda/impl").mkdir(parents=True)
    (stubs / "c10/cuda/impl/cuda_cmake_macros.h").write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    for name, types in LIBRARIES.items():
        (stubs / name).write_text("#pragma once\n" + "".join(f"enum {kind} : int {{}};\n" for kind in types.split()))
    cuda = find_cuda()
    folders = [stubs, *map(Path, include_paths()), *cuda.include, Path(sysconfig.get_paths()["include"])]
    command = [
        str(cuda.nvcc), "-ccbin", str(cuda.host_compiler), "-c", "-std=c++20", "-arch=sm_80", "-Xcompiler", "-fPIC",
        f"-DTORCH_EXTENSION_NAME={subject.name}_cuda", *subject.flags, *(f"-isystem={folder}" for folder in folders),
        "kernel.cu", "-o", "kernel.o",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    symbols = subprocess.run(["nm", "kernel.o"], cwd=tmp_path / "out", capture_output=True, text=True, check=True)
    assert f"PyInit_{subject.name}_cuda" in symbols.stdout


def test_the_package_is_installed_and_has_an_operator(subject: Subject, tmp_path: Path, cache: Path) -> None:
    export(subject, "library", tmp_path / "out")
    site = tmp_path / "site"
    install = [
        sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index",
        "--disable-pip-version-check", "--target", str(site), str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check = [sys.executable, str(HERE / "library_checks.py"), str(site), str(tmp_path / "out" / "tests")]
    done = subprocess.run(
        check, cwd=tmp_path, env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    built = build_kernel(
        Kernel((site / "rows_kernel" / "kernel.cu").read_text()), "sm_80", cache / "tests", find_cuda()
    )
    assert isinstance(built, Built), built


def test_modes_outputs_and_functions_that_return_nothing(tmp_path: Path) -> None:
    task = task_from_source(TWO_OUTPUTS, "23_Two Outputs", "fp32", where="two.py")
    subject = subject_of(task, Kernel(FILLING))
    assert (subject.name, subject.class_name) == ("task_23_two_outputs", "Task23TwoOutputs")
    assert subject.facts.mode_matters  # a batch norm
    assert not subject.facts.has_backward
    assert subject.allocated == (
        "torch.empty_like(inputs[0])",
        "torch.empty((32,), dtype=torch.float32, device=inputs[0].device)",
    )
    export(subject, "library", tmp_path)
    package = tmp_path / "task_23_two_outputs_kernel"
    assert "or self.training is not True" in (package / "module.py").read_text()
    operator = (package / "operator.py").read_text()
    assert "x: Tensor, times: float, norm_weight: Tensor" in operator
    assert "-> Tuple[Tensor, Tensor]:" in operator
    assert "register_autograd" not in operator


def test_texts_are_kept_as_they_are() -> None:
    for text in ("a\n'''b'''\\", "plain \\n text\n", "ends with '", "\r\n"):
        assert eval(python_text(text)) == text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "--to", "wheel"), "unknown target 'wheel': a kernel can be exported to library, modelnew, torch-ext"),
        (("run", "--to", "library"), "run holds no finished kernel: there is no result.json in it"),
        (("none", "--to", "library"), "the result file none cannot be read: No such file"),
        (("kernel.cu", "--to", "library"), "kernel.cu is a kernel without a task: give --task TASK.py"),
        (("run", "--to", "library", "--task", "rows.py"), "run is a folder: a run has its own task"),
        (("kernel.cu", "--to", "library", "--task", "rows.py", "--entry", "go"), "there is no host function go"),
        (("new.py", "--to", "library", "--task", "rows.py"), "a kernel in modelnew cannot be exported"),
        (
            ("more.cu", "--to", "library", "--task", "rows.py"),
            "Python cannot leave out extra of forward: say with --args",
        ),
        (("module.cu", "--to", "library", "--task", "rows.py"), "own PYBIND11_MODULE does not have forward"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    files: dict[str, str] = {
        "kernel.cu": KERNEL,
        "rows.py": TASK,
        "new.py": "class ModelNew: ...\n",
        "more.cu": KERNEL.replace("double shift)", "double shift, int64_t extra = INT_MAX)"),
        "module.cu": KERNEL + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("other", &rows::forward); }\n',
    }
    for name, text in files.items():
        Path(name).write_text(text)
    Path("run").mkdir()
    assert main(["export", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_kernel_with_its_task_is_exported_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernel.cu").write_text(KERNEL)
    Path("rows.py").write_text(TASK)
    assert main(["export", "kernel.cu", "--task", "rows.py", "--to", "torch-extension", "--out", "made"]) == 0
    assert "kernel.cu is not verified here" in capsys.readouterr().err
    assert "Nobody has verified this kernel yet" in Path("made/README.md").read_text()


def test_unknown_targets_are_refused(subject: Subject, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown target 'jax'"):
        export(subject, "jax", tmp_path)
    assert list(tmp_path.iterdir()) == []
