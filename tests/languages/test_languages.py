"""Every language keeps the contract, and nothing outside of a language's folder knows its name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.agents.prompt_sections import PromptContext
from cupilot.agents.prompting import build_request
from cupilot.agents.reply_parsing import parse_kernel
from cupilot.contracts import Brief
from cupilot.errors import UserError
from cupilot.languages import Language, detect_language, find_language, language_names, make_kernel, read_kernel
from cupilot.records import Failure, Kernel
from cupilot.strategies import load_deck
from cupilot.testing import LanguageContract
from cupilot.testing.device import sample_kernel
from cupilot.testing.samples import INDIVIDUAL, SPEC, TASK

SOURCE = Path(__file__).parents[2] / "src" / "cupilot"
GOOD_PYTHON = '''
import torch
from torch.utils.cpp_extension import load_inline

source = """
__global__ void twice(const float* x, float* y, int64_t n) {
    int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
extension = load_inline("twice", "torch::Tensor run(torch::Tensor x);", source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)
'''


class TestCuda(LanguageContract):
    @pytest.fixture
    def language(self) -> Language:
        return find_language("cuda")

    @pytest.fixture
    def good(self) -> str:
        return sample_kernel("good").source

    @pytest.fixture
    def broken(self) -> str:
        return sample_kernel("broken").source


class TestModelNew(LanguageContract):
    @pytest.fixture
    def language(self) -> Language:
        return find_language("modelnew")

    @pytest.fixture
    def good(self) -> str:
        return GOOD_PYTHON

    @pytest.fixture
    def broken(self, good: str) -> str:
        return good.replace("2.0f * x[i]", "unknown")


class TestToy(LanguageContract):
    @pytest.fixture
    def language(self, toy: Language) -> Language:
        return toy

    @pytest.fixture
    def good(self) -> str:
        return "scale 2\nshift 1.0\n"

    @pytest.fixture
    def broken(self) -> str:
        return "scale 2\nshift by one\n"


# --- finding ------------------------------------------------------------------------------------


def test_languages_are_folders_and_entry_points(toy: Language) -> None:
    assert language_names() == ("cuda", "modelnew", "toy")


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(UserError, match=r"unknown language 'fortran'; known languages are cuda, modelnew$"):
        find_language("fortran")


@pytest.mark.parametrize(
    ("source", "suffix", "name"),
    [
        ("__global__ void k() {}\n", "", "cuda"),
        ("nothing in particular\n", "", "cuda"),
        ("nothing in particular\n", ".txt", "cuda"),
        ('class ModelNew: ...\nsource = "__global__ void k() {}"\n', "", "modelnew"),
        ('class Model: ...\nsource = "__global__ void k() {}"\n', "", "modelnew"),
        ("class Model: ...\n", "", "cuda"),
        ("class Model: ...\n", ".py", "modelnew"),
        ("class ModelNew: ...\n", ".cu", "cuda"),
    ],
)
def test_the_suffix_decides_and_then_the_text(source: str, suffix: str, name: str) -> None:
    assert detect_language(source, suffix).name == name


def test_a_kernel_keeps_the_options_of_its_language(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("class ModelNew: ...\n")
    (tmp_path / "k.cu").write_text("class ModelNew: ...\n")
    options = ("torch-ops",)
    assert read_kernel(tmp_path / "new.py", options=options).options == options
    assert read_kernel(tmp_path / "k.cu", options=options).options == ()


# --- digests ------------------------------------------------------------------------------------


def test_digests_of_cuda_kernels_never_change() -> None:
    """Proofs, caches and pools refer to them."""
    assert Kernel("text").digest == "5ba870851e63e001"
    assert Kernel("text", "run", "inputs[0]").digest == "7585837617add27a"


def test_a_language_and_its_options_make_another_kernel() -> None:
    kernels = Kernel("text"), Kernel("text", language="modelnew"), Kernel("text", language="modelnew", options=("a",))
    assert len({kernel.digest for kernel in kernels}) == 3


# --- the seam -----------------------------------------------------------------------------------


def test_nothing_but_a_language_knows_its_name() -> None:
    """A further language edits no other file, so no other file may ask which one a kernel is in."""
    asks = re.compile(r"""\.language\s*(?:==|!=|in\b)|["']modelnew["']|isinstance\([^)]*Language""")
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parent.name != "modelnew" and path != SOURCE / "records" / "kernel.py"
        for line in path.read_text().splitlines()
        if asks.search(line)
    ]
    assert found == []


def test_agents_write_in_the_language_of_the_kernel_at_hand(toy: Language) -> None:
    parent = replace(INDIVIDUAL, kernel=make_kernel("scale 2\n"))
    context = PromptContext(Brief(TASK, SPEC, parents=(parent,)), load_deck(), parent.kernel, parent.evaluation)
    request = build_request("translator_write", context, has_kernel=True, crossing=False)
    system, user = (message.text for message in request.messages)
    assert "Write nothing but steps." in system
    assert "CUDA C++17" not in system
    assert "applied in order to every element of x." in user
    assert "```toy\nscale 2\n```" in user
    assert parse_kernel("scale 3", "translate", context.language) == Kernel("scale 3\n", language="toy")
    failure = parse_kernel("scale three", "translate", context.language)
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("translate", "compile-error")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("class ModelNew(:\n", "syntax-error"),
        ("class ModelNew: ...\n", "no-kernel"),
        (GOOD_PYTHON.replace("ModelNew", "Solution"), "no-such-entry"),
        (GOOD_PYTHON.replace("__global__", '#include "/etc/passwd"\n__global__'), "forbidden-include"),
    ],
)
def test_mistakes_in_a_python_file_are_found_in_its_text(source: str, kind: str) -> None:
    failure = parse_kernel(source, "translate", "modelnew")
    assert isinstance(failure, Failure)
    assert failure.kind == kind


def test_lines_of_a_modelnew_file_are_shown_only_where_they_are_its_own() -> None:
    language, launch = find_language("modelnew"), INDIVIDUAL.evaluation.profile.launches[0]
    assert launch.kernel == "relu"
    literal = 'import torch\nsource = """__global__ void relu() {\n    x[i] = 0;\n}"""\nother = "relu"\n'
    shown = language.source_lines(Kernel(literal, language="modelnew"), launch)
    assert shown[2] == "    x[i] = 0;"
    assert (shown[0], shown[4]) == ("", "")
    put_together = "parts = ['__global__ void re', 'lu() {}']\nsource = ''.join(parts)\n"
    assert set(language.source_lines(Kernel(put_together, language="modelnew"), launch)) == {""}
