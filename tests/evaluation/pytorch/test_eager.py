"""Which kernels eager mode launches, and what the host's time does."""

from __future__ import annotations

import pytest

from cupilot.evaluation.pytorch.boards import board
from cupilot.evaluation.pytorch.eager import eager_run
from cupilot.evaluation.pytorch.kernels import Kernel
from cupilot.evaluation.pytorch.run import GAP_S, Step, timeline
from cupilot.evaluation.pytorch.uncertainty import uncertainty
from cupilot.gpu import load_spec, spec_names
from cupilot.records import Argument, Op, Task, TensorSpec

A100 = load_spec("a100-80gb")
T4 = load_spec("t4")
Attributes = tuple[tuple[str, object], ...]


def one(target: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], *attributes: tuple[str, object]) -> Task:
    arguments = tuple(Argument(f"x{n}", "input", TensorSpec(shape)) for n, shape in enumerate(shapes))
    operands = tuple(argument.name for argument in arguments)
    op = Op("op", target, operands, attributes, TensorSpec(out))  # type: ignore[arg-type]
    return Task("task", "", arguments, (op.output,), (op,))


def families(task: Task) -> list[str]:
    return [kernel.family for kernel in eager_run(task, A100).kernels]


IMAGE, WEIGHT, CHANNELS = (16, 64, 128, 128), (128, 64, 3, 3), (128,)


def test_a_convolution_adds_its_bias_in_a_pass_of_its_own():
    plain = one("aten.conv2d.default", [IMAGE, WEIGHT], (16, 128, 126, 126))
    biased = one("aten.conv2d.default", [IMAGE, WEIGHT, CHANNELS], (16, 128, 126, 126))
    assert families(plain) == ["convolution 2d"]
    assert families(biased) == ["convolution 2d", "pointwise"]
    assert eager_run(biased, A100).time_s > 1.2 * eager_run(plain, A100).time_s


def test_batch_norm_reads_twice_in_training_and_once_in_evaluation():
    trained = one("aten.batch_norm.default", [IMAGE], IMAGE, ("training", True))
    used = one("aten.batch_norm.default", [IMAGE], IMAGE, ("training", False))
    assert families(trained) == ["statistics", "pointwise"]
    assert families(used) == ["pointwise"]


def test_max_pooling_stores_places_as_well():
    window = ("kernel_size", (2, 2))
    largest = one("aten.max_pool2d.default", [IMAGE], (16, 64, 64, 64), window)
    mean = one("aten.avg_pool2d.default", [IMAGE], (16, 64, 64, 64), window)
    assert eager_run(largest, A100).time_s > eager_run(mean, A100).time_s


def test_layer_norm_of_few_long_rows_waits_in_few_blocks():
    few = one("aten.layer_norm.default", [(16, 1 << 22)], (16, 1 << 22), ("normalized_shape", (1 << 22,)))
    many = one("aten.layer_norm.default", [(1 << 16, 1 << 10)], (1 << 16, 1 << 10), ("normalized_shape", (1 << 10,)))
    assert eager_run(few, A100).time_s == pytest.approx(10.2e-3, rel=0.25)
    assert eager_run(few, A100).time_s > 20 * eager_run(many, A100).time_s


def test_convolutions_without_tensor_cores_take_the_plain_way():
    task = one("aten.conv2d.default", [IMAGE, WEIGHT], (16, 128, 126, 126))
    assert T4.tf32_tensor_flop_per_s == 0
    assert eager_run(task, T4).time_s > 5 * eager_run(task, A100).time_s


def kernel(name: str, time_s: float) -> Kernel:
    return Kernel(name, "pointwise", time_s, "dram")


def test_short_kernels_wait_for_the_host_and_long_ones_hide_it():
    short = [Step(1e-5, (kernel(str(n), 2e-6),)) for n in range(4)]
    run = timeline(short, 2e-5, A100)
    assert run.time_s == pytest.approx(3e-5 + 2e-6)
    assert run.call_s == pytest.approx(2e-5 + 4e-5 + 2e-6)
    long = [Step(1e-5, (kernel(str(n), 1e-3),)) for n in range(4)]
    assert timeline(long, 2e-5, A100).time_s == pytest.approx(4e-3 + 3 * GAP_S)


@pytest.mark.parametrize("name", spec_names())
def test_every_gpu_has_constants(name):
    spec = load_spec(name)
    task = one("aten.conv3d.default", [(4, 16, 16, 32, 32), (32, 16, 3, 3, 3)], (4, 32, 14, 30, 30))
    run = eager_run(task, spec)
    assert 0 < run.time_s <= run.call_s
    assert 0.1 < uncertainty(run, board(spec)) < 40


def test_a_board_that_repeats_itself_less_is_less_sure():
    task = one("aten.relu.default", [(1 << 26,)], (1 << 26,))
    steady, unsteady = load_spec("a6000"), load_spec("rtx-3090-ti")
    assert uncertainty(eager_run(task, unsteady), board(unsteady)) > uncertainty(eager_run(task, steady), board(steady))


def test_results_that_fit_are_read_from_the_l2():
    def chain(elements: int) -> float:
        tensor = TensorSpec((elements,))
        x = Argument("x", "input", tensor)
        first = Op("a", "aten.relu.default", ("x",), (), tensor)
        second = Op("b", "aten.tanh.default", ("a",), (), tensor)
        found = eager_run(Task("task", "", (x,), (tensor,), (first, second)), load_spec("l40s")).kernels
        return found[1].time_s / found[0].time_s

    assert chain(1 << 22) < 0.7
    assert chain(1 << 28) == pytest.approx(1.0, rel=0.01)
