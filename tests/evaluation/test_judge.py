"""Right for the task, and what else a kernel holds for: each rule of the judge, on kernels that differ in one thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.contracts import Device
from cupilot.records import Evaluation, Kernel
from cupilot.records.scope import EVERY_SHAPE, ONE_SHAPE
from cupilot.tasks import load_task
from evaluating import evaluator_on

TASK = """
import torch

ROWS, COLUMNS = 2048, 512

class Model(torch.nn.Module):
    def forward(self, x):
        return {formula}

def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]
"""
SMALL = TASK.replace("2048, 512", "64, 256")
HEAD = "#include <torch/extension.h>\n"
KERNEL = """
__global__ void scale(const float* x, float* y, int rows, int cols) {
    int n = rows * cols, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1), n = rows * cols;
    auto y = torch::empty_like(x);
    scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
    return y;
}
"""
SOFTMAX = """
__global__ void softmax(const float* x, float* y, int rows, int cols) {
    __shared__ float sum;
    const float* row = x + (size_t)blockIdx.x * cols;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    float own = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) own += expf(row[c]);
    atomicAdd(&sum, own);
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[(size_t)blockIdx.x * cols + c] = expf(row[c]) / sum;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    softmax<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    return y;
}
"""
CHECK = "int rows = x.size(0)"


@pytest.fixture(autouse=True)
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of a million elements are sampled."""
    monkeypatch.setattr("cupilot.evaluation.judge.SAMPLE_BUDGET", 1_000_000)


@pytest.fixture(scope="module")
def judge(device: Device, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("judge")

    def evaluate(source: str, formula: str = "2 * x", text: str = TASK) -> Evaluation:
        (folder / "task.py").write_text(text.replace("{formula}", formula))
        return evaluator_on(device)(load_task(folder / "task.py"), Kernel(HEAD + source))

    return evaluate


def test_a_general_kernel_holds_for_any_shape_and_all_values(judge) -> None:
    found = judge(KERNEL)
    assert found.correct
    assert found.scope.shapes == EVERY_SHAPE
    assert found.scope.values == ()
    assert "sampled blocks" in found.scope.basis


@pytest.mark.parametrize("text", [TASK, SMALL])
def test_a_kernel_that_refuses_all_other_shapes_meets_every_kind_of_input_at_its_own(judge, text: str) -> None:
    rows, columns = (2048, 512) if text is TASK else (64, 256)
    checked = KERNEL.replace(CHECK, f"TORCH_CHECK(x.size(0) == {rows} && x.size(1) == {columns}, 'fixed'); " + CHECK)
    found = judge(checked.replace("'", '"'), text=text)
    assert found.correct
    assert found.scope.shapes == ONE_SHAPE
    assert "refused: fixed" in found.scope.other_shapes[0].evidence
    kinds = {check.inputs for check in found.checks}
    assert {"own", "permuted", "large", "planted", "one-hot", "nan", "infinity", "wide", "denormal"} <= kinds


def test_a_kernel_that_faults_at_other_shapes_is_right_for_its_own(judge) -> None:
    found = judge(KERNEL.replace("if (i < n) ", ""))
    assert found.correct
    assert found.scope.shapes == "shapes such as 512x128, ROWS a multiple of 4"
    assert "out-of-bounds" in found.scope.other_shapes[0].evidence


def test_a_kernel_with_sizes_written_into_it_is_right_for_this_shape_only(judge) -> None:
    found = judge(
        KERNEL.replace("int n = rows * cols, i", "int n = 2048 * 512, i").replace("<<<(n + 255) / 256", "<<<4096")
    )
    assert found.correct
    assert found.scope.shapes == ONE_SHAPE


def test_a_refusal_at_the_task_shape_is_a_failure(judge) -> None:
    found = judge(KERNEL.replace(CHECK, 'TORCH_CHECK(x.size(0) < 1000, "small ones only"); ' + CHECK))
    assert found.failure.kind == "wrapper-error"


def test_a_refusal_that_counts_calls_is_a_failure(judge) -> None:
    counting = 'static int calls = 0; TORCH_CHECK(++calls % 3, "not now"); '
    assert judge(KERNEL.replace(CHECK, counting + CHECK)).failure.kind in ("refuses-values", "wrapper-error")


def test_a_refusal_of_the_first_calls_is_a_failure(judge) -> None:
    counting = 'static int calls = 0; TORCH_CHECK(++calls > 13, "not yet"); '
    assert not judge(KERNEL.replace(CHECK, counting + CHECK)).correct


def test_nan_that_becomes_zero_is_a_difference_of_values_and_a_failure_when_required(judge, device, tmp_path) -> None:
    silent = KERNEL.replace("y[i] = 2 * x[i]", "y[i] = x[i] == x[i] ? 2 * x[i] : 0")
    found = judge(silent)
    assert found.correct
    assert [difference.what for difference in found.scope.values] == ["nan"]
    (tmp_path / "task.py").write_text(TASK.replace("{formula}", "2 * x"))
    required = evaluator_on(device, require=("task", "values"))(load_task(tmp_path / "task.py"), Kernel(HEAD + silent))
    assert (required.failure.stage, required.failure.kind) == ("verify", "values")
    assert required.scope is not None


def test_nan_that_becomes_zero_is_seen_behind_a_refusal_too(judge) -> None:
    fixed = KERNEL.replace(CHECK, 'TORCH_CHECK(x.size(0) == 2048, "fixed"); ' + CHECK)
    found = judge(fixed.replace("y[i] = 2 * x[i]", "y[i] = x[i] == x[i] ? 2 * x[i] : 0"))
    assert [difference.what for difference in found.scope.values] == ["nan"]


@pytest.mark.parametrize("check", ["", 'TORCH_CHECK(x.size(1) == 512, "fixed");'])
def test_a_softmax_without_its_maximum_is_wrong(judge, check: str) -> None:
    source = SOFTMAX.replace("auto y", f"{check} auto y")
    assert judge(source, "torch.softmax(x, 1)").failure.kind == "wrong-result"


def test_what_the_task_shape_alone_leaves_unwritten_is_noticed(judge) -> None:
    skipping = KERNEL.replace("if (i < n)", "if (i < n && (rows < 2048 || i % cols != cols - 1))")
    found = judge(skipping)
    assert found.failure.kind == "unwritten"
    assert "0.998" in found.failure.message


def test_code_that_runs_at_the_task_shape_alone_meets_every_kind_of_input_there(judge) -> None:
    other = KERNEL.replace(
        "if (i < n) y[i] = 2 * x[i];",
        "if (rows < 2048) { if (i < n) y[i] = 2 * x[i]; return; }\n    if (i < n) y[i] = x[i] > 100 ? 0 : 2 * x[i];",
    )
    found = judge(other)
    assert found.failure.kind == "wrong-result"
    assert "inputs: mixed, shape 2048x512" in found.failure.message


LONG = """
import torch

ROWS, INNER, COLUMNS = 2048, 8192, 2048

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.rand(ROWS, INNER), torch.rand(INNER, COLUMNS)]
"""
TWO_LAUNCHES = """
__global__ void part(const float* a, const float* b, float* c, int m, int n, int k, int from, int to, int add) {
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = add ? c[row * n + column] : 0;
    for (int i = from; i < to; i++) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = sum;
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1), half = k / 2;
    auto c = torch::empty({m, n}, a.options());
    dim3 grid((n + 15) / 16, (m + 15) / 16), block(16, 16);
    part<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k, 0, half, 0);
    part<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k, half, END, 1);
    return c;
}
"""


@pytest.mark.slow
def test_half_of_a_long_sum_that_only_long_sums_skip_is_noticed(judge) -> None:
    found = judge(TWO_LAUNCHES.replace("END", "k > 4096 ? half : k"), text=LONG)
    assert found.failure.kind == "wrong-result"
    honest = judge(TWO_LAUNCHES.replace("END", "k"), text=LONG)
    assert honest.correct
    assert "stand in for it" in honest.scope.basis


TWO_STEPS = """
__global__ void first(const float* x, float* t, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) t[i] = x[i] * FACTOR;
}
__global__ void second(const float* t, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = t[FROM] + t[FROM];
}
torch::Tensor forward(torch::Tensor x) {
    int n = x.numel();
    auto t = torch::empty_like(x), y = torch::empty_like(x);
    first<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), t.data_ptr<float>(), n);
    second<<<(n + 255) / 256, 256>>>(t.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""


@pytest.fixture
def unaffordable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's shape cannot be run in full."""
    monkeypatch.setattr("cupilot.evaluation.judge.FULL_INSTRUCTIONS", 0.0)


def test_what_sampled_blocks_of_several_launches_store_is_compared(judge, unaffordable) -> None:
    found = judge(TWO_STEPS.replace("FACTOR", "1").replace("FROM", "i"))
    assert found.correct
    assert "sampled blocks of the task's shape" in found.scope.basis
    assert "stand in for it" in found.scope.basis


def test_several_launches_that_are_wrong_at_the_task_shape_only_are_found_out(judge, unaffordable) -> None:
    found = judge(TWO_STEPS.replace("FACTOR", "(n == 2048 * 512 ? 1.5f : 1.0f)").replace("FROM", "i"))
    assert found.failure.kind == "wrong-result"
    assert "2048x512" in found.failure.message


def test_blocks_that_read_what_was_not_computed_say_nothing(judge, unaffordable) -> None:
    found = judge(TWO_STEPS.replace("FACTOR", "1").replace("FROM", "n - 1 - i"), "2 * x.flip(0, 1)")
    assert found.correct, found.failure
