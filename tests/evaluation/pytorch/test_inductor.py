"""What ``torch.compile`` fuses, and what stays with the libraries."""

from __future__ import annotations

from cupilot.evaluation.baseline import baseline, compiled_baseline
from cupilot.evaluation.pytorch.eager import eager_run
from cupilot.evaluation.pytorch.inductor import compiled_run
from cupilot.gpu import load_spec
from cupilot.records import Argument, Op, Task, TensorSpec

A100 = load_spec("a100-80gb")


def chain(
    *targets: str, shape: tuple[int, ...] = (4096, 65536), attributes: tuple[tuple[str, object], ...] = ()
) -> Task:
    tensor, name, ops = TensorSpec(shape), "x", []
    for place, target in enumerate(targets):
        ops.append(Op(f"op{place}", target, (name,), attributes, tensor))  # type: ignore[arg-type]
        name = f"op{place}"
    return Task("task", "", (Argument("x", "input", tensor),), (tensor,), tuple(ops))


def test_pointwise_operators_become_one_kernel():
    task = chain("aten.relu.default", "aten.tanh.default", "aten.gelu.default")
    assert len(eager_run(task, A100).kernels) == 3
    assert len(compiled_run(task, A100).kernels) == 1
    assert compiled_run(task, A100).time_s < 0.4 * eager_run(task, A100).time_s


def test_one_operator_gains_nothing():
    task = chain("aten.relu.default")
    assert abs(compiled_run(task, A100).time_s / eager_run(task, A100).time_s - 1) < 0.01


def test_long_softmax_rows_are_read_twice():
    short, long = chain("aten.softmax.int", shape=(1 << 18, 1024)), chain("aten.softmax.int")
    assert len(compiled_run(short, A100).kernels) == 1
    assert len(compiled_run(long, A100).kernels) == 2


def linear(*after: str) -> Task:
    x, w, out = TensorSpec((4096, 4096)), TensorSpec((4096, 4096)), TensorSpec((4096, 4096))
    ops = [Op("product", "aten.linear.default", ("x", "w"), (), out)]
    for place, target in enumerate(after):
        ops.append(Op(f"op{place}", target, (ops[-1].name,), (), out))
    arguments = (Argument("x", "input", x), Argument("w", "parameter", w))
    return Task("task", "", arguments, (out,), tuple(ops))


def test_products_stay_with_the_library_and_what_follows_is_fused():
    found = compiled_run(linear("aten.relu.default", "aten.tanh.default"), A100).kernels
    assert [kernel.family for kernel in found] == ["product", "generated"]


def test_convolutions_are_channels_last_and_converted_back_only_at_the_end():
    image, weight, out = TensorSpec((16, 64, 128, 128)), TensorSpec((128, 64, 3, 3)), TensorSpec((16, 128, 126, 126))
    arguments = (Argument("x", "input", image), Argument("w", "parameter", weight))
    conv = Op("conv", "aten.conv2d.default", ("x", "w"), (("groups", 1),), out)
    relu = Op("relu", "aten.relu.default", ("conv",), (), out)
    alone = compiled_run(Task("task", "", arguments, (out,), (conv,)), A100).kernels
    followed = compiled_run(Task("task", "", arguments, (out,), (conv, relu)), A100).kernels
    assert [kernel.family for kernel in alone] == ["copy", "convolution 2d", "copy"]
    assert [kernel.family for kernel in followed] == ["copy", "convolution 2d", "generated"]


def test_both_baselines_say_what_they_are():
    task = chain("aten.relu.default", "aten.tanh.default")
    eager, compiled = baseline(task, A100, "d"), compiled_baseline(task, A100, "d")
    assert eager is not None
    assert compiled is not None
    assert eager.note == "PyTorch eager, modelled"
    assert compiled.note.startswith("torch.compile, modelled")
    assert compiled.uncertainty > eager.uncertainty
