"""Parameters of wrappers, bound to what a task has; wrappers as people write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from cupilot.errors import UserError
from cupilot.tasks.bind import Binding, bind, evaluate_expressions
from cupilot.toolchain.signature import signature_of


class One(nn.Module):
    """A module around one part, as most tasks are."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Pair(One):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return predictions + targets


class Attention(One):
    def forward(  # type: ignore[override]
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
    ) -> torch.Tensor:
        return q + k + v + mask * scale


X = torch.zeros(2, 3)


def bound(
    wrapper: str, model: nn.Module, inputs: Sequence[Any] = (X,), init: Mapping[str, Any] | None = None
) -> Binding:
    """The binding of ``forward(...)`` with these C++ parameters; every expression of it can be evaluated."""
    parameters = signature_of(f"torch::Tensor forward({wrapper}) {{ return x; }}", "forward")
    assert parameters is not None
    found = bind(parameters, inputs, model, init or {})
    values = evaluate_expressions(found.text, inputs, model, init)
    assert len(values) == len(found.expressions)
    return found


def refusal(wrapper: str, model: nn.Module, inputs: Sequence[Any] = (X,), init: Mapping[str, Any] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        bound(wrapper, model, inputs, init)
    message = str(caught.value)
    assert "\n" not in message
    assert "--args" in message
    return message


# --- tensors -------------------------------------------------------------------------------------

LINEAR = One(fc=nn.Linear(3, 4))
TWO_LAYERS = One(fc1=nn.Linear(3, 4), fc2=nn.Linear(4, 3))
SEQUENCE = One(net=nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
NORM = One(bn=nn.BatchNorm2d(4))
BLOCK = One(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4))
BARE_BLOCK = One(conv=nn.Conv2d(3, 4, 3, bias=False), bn=nn.BatchNorm2d(4))
BACKWARDS = One(norm=nn.LayerNorm(3), fc=nn.Linear(3, 4))
FC = "model.fc.weight, model.fc.bias"
T = "torch::Tensor"


@pytest.mark.parametrize(
    ("model", "names", "expected"),
    [
        (LINEAR, "x weight bias", f"inputs[0], {FC}"),
        (LINEAR, "x w b", f"inputs[0], {FC}"),
        (LINEAR, "x bias weight", "inputs[0], model.fc.bias, model.fc.weight"),
        (LINEAR, "weight bias x", f"{FC}, inputs[0]"),
        (LINEAR, "A B C", f"inputs[0], {FC}"),
        (LINEAR, "input fc_weight fc_bias", f"inputs[0], {FC}"),
        (LINEAR, "inp linearWeight linearBias", f"inputs[0], {FC}"),
        (LINEAR, "weight_tensor input_tensor", "model.fc.weight, inputs[0]"),
        (NORM, "x gamma beta mean var",
         "inputs[0], model.bn.weight, model.bn.bias, model.bn.running_mean, model.bn.running_var"),
        (NORM, "x running_mean running_var weight bias",
         "inputs[0], model.bn.running_mean, model.bn.running_var, model.bn.weight, model.bn.bias"),
        (NORM, "x p0 p1 p2 p3",
         "inputs[0], model.bn.weight, model.bn.bias, model.bn.running_mean, model.bn.running_var"),
        (TWO_LAYERS, "x w1 b1 w2 b2",
         "inputs[0], model.fc1.weight, model.fc1.bias, model.fc2.weight, model.fc2.bias"),
        (TWO_LAYERS, "x W2 W1 b2 b1",
         "inputs[0], model.fc2.weight, model.fc1.weight, model.fc2.bias, model.fc1.bias"),
        (TWO_LAYERS, "x weight bias weight_2 bias_2",
         "inputs[0], model.fc1.weight, model.fc1.bias, model.fc2.weight, model.fc2.bias"),
        (TWO_LAYERS, "x a b c d",
         "inputs[0], model.fc1.weight, model.fc1.bias, model.fc2.weight, model.fc2.bias"),
        (SEQUENCE, "x w0 w1 w2 b0 b1 b2",
         "inputs[0], model.net[0].weight, model.net[2].weight, model.net[4].weight, "
         "model.net[0].bias, model.net[2].bias, model.net[4].bias"),
        (BLOCK, "x conv_w conv_b bn_w bn_b bn_mean bn_var",
         "inputs[0], model.conv.weight, model.conv.bias, model.bn.weight, model.bn.bias, "
         "model.bn.running_mean, model.bn.running_var"),
        (BLOCK, "x weight bias gamma beta",
         "inputs[0], model.conv.weight, model.conv.bias, model.bn.weight, model.bn.bias"),
        (BACKWARDS, "x weight bias gamma beta",
         "inputs[0], model.fc.weight, model.fc.bias, model.norm.weight, model.norm.bias"),
        (BACKWARDS, "x ln_weight ln_bias fc_w fc_b",
         "inputs[0], model.norm.weight, model.norm.bias, model.fc.weight, model.fc.bias"),
    ],
)  # fmt: skip
def test_tensors_of_the_module(model: nn.Module, names: str, expected: str) -> None:
    assert bound(", ".join(f"{T} {name}" for name in names.split()), model).text == expected


def test_inputs_by_name_only_when_all_are_named() -> None:
    assert bound(f"{T} targets, {T} predictions", Pair(), (X, X)).text == "inputs[1], inputs[0]"
    assert bound(f"{T} targets, {T} logits", Pair(), (X, X)).text == "inputs[0], inputs[1]"
    model = Pair(bias=nn.Parameter(torch.zeros(3)))
    assert bound(f"{T} a, {T} b, {T} bias", model, (X, X)).text == "inputs[0], inputs[1], model.bias"
    weighted = Pair(weight=nn.Parameter(torch.zeros(3)))
    assert bound(f"{T} logits, {T} weight", weighted, (X, X)).text == "inputs[0], inputs[1]"
    assert bound(f"{T} a, {T} b", model, (X, X)) == Binding(("inputs[0]", "inputs[1]"), ("model.bias",))
    wrapper = f"{T} x, const {T}& w, const {T}& b, {T} mask"
    assert bound(wrapper, Pair(fc=nn.Linear(3, 4)), (X, X)).text == f"inputs[0], {FC}, inputs[1]"


def test_optional_tensors() -> None:
    optional = "c10::optional<torch::Tensor>"
    bare = One(fc=nn.Linear(3, 4, bias=False))
    assert bound(f"{T} x, {T} w, {optional} bias", LINEAR).text == f"inputs[0], {FC}"
    assert bound(f"{T} x, {T} w, {optional} bias", bare).text == "inputs[0], model.fc.weight, None"
    assert bound(f"{T} x, {T} w, {T} b = {{}}", bare).text == "inputs[0], model.fc.weight, None"
    assert bound(f"{T} x, {optional} bias, {T} mask", Pair(), (X, X)).text == "inputs[0], None, inputs[1]"
    assert bound(f"{T} x, {optional} mask", Pair(), (X, X)).text == "inputs[0], inputs[1]"
    wrapper = f"{T} x, {T} conv_weight, {optional} conv_bias, {T} gamma, {T} beta"
    assert bound(wrapper, BARE_BLOCK).text == "inputs[0], model.conv.weight, None, model.bn.weight, model.bn.bias"


def test_a_tensor_that_the_module_was_made_without_is_undefined() -> None:
    wrapper = f"{T} x, {T} weight, {T} bias"
    found = bound(wrapper, One(fc=nn.Linear(3, 4, bias=False)))
    assert found.text == f"inputs[0], {FC}"
    assert evaluate_expressions(found.expressions[2], (X,), One(fc=nn.Linear(3, 4, bias=False))) == (None,)
    wrapper = f"{T} x, {T} conv_weight, {T} conv_bias, {T} gamma, {T} beta"
    assert bound(wrapper, BARE_BLOCK).expressions[2] == "model.conv.bias"
    # nobody wants the norm's bias, but a convolution's bias it is not
    assert bound(f"{T} x, {T} conv_weight, {T} conv_bias", BARE_BLOCK).expressions[2] == "model.conv.bias"


def test_a_bias_is_no_weight() -> None:
    model = One(scale=nn.Parameter(torch.ones(3)), running=nn.BatchNorm1d(3, affine=False))
    message = refusal(f"{T} x, {T} weight, {T} bias", One(weight=nn.Parameter(torch.ones(3)), bn=model.running))
    assert "bias cannot be bound" in message
    assert bound(f"{T} x, {T} gamma", model).text == "inputs[0], model.scale"


def test_left_over_tensors_of_the_module_are_named() -> None:
    found = bound(f"{T} x, {T} weight, {T} bias", NORM)
    assert found.unused == ("model.bn.running_mean", "model.bn.running_var", "model.bn.num_batches_tracked")


def test_lists_of_tensors() -> None:
    assert bound("std::vector<torch::Tensor> xs", Pair(), (X, X)).text == "[inputs[0], inputs[1]]"
    assert bound(f"{T} x, at::TensorList others", Pair(), (X, X)).text == "inputs[0], [inputs[1]]"
    wrapper = f"{T} x, std::vector<at::Tensor> weights, std::vector<at::Tensor> biases"
    assert bound(wrapper, TWO_LAYERS).text == (
        "inputs[0], [model.fc1.weight, model.fc2.weight], [model.fc1.bias, model.fc2.bias]"
    )
    assert bound(f"{T} x, at::TensorList params", LINEAR).text == f"inputs[0], [{FC}]"


def test_odd_paths_are_python() -> None:
    model = One(
        layers=nn.ModuleList([nn.Linear(3, 3, bias=False)]),
        named=nn.ModuleDict({"a-b": nn.Linear(3, 3, bias=False)}),
        many=nn.ParameterList([nn.Parameter(torch.ones(2))]),
        table=nn.ParameterDict({"k": nn.Parameter(torch.ones(5))}),
    )
    model.add_module("7", nn.Linear(3, 2, bias=False))
    found = bind(None, (X,), model, {})
    assert found.text == (
        "inputs[0], model.layers[0].weight, model.named['a-b'].weight, model.many[0], model.table['k'], "
        "getattr(model, '7').weight"
    )
    values = evaluate_expressions(found.text, (X,), model)
    state = (X, *model.parameters())
    assert all(value.data_ptr() == tensor.data_ptr() for value, tensor in zip(values, state, strict=True))


def test_an_unknown_signature_takes_everything_in_order() -> None:
    found = bind(None, (X, 2.0), NORM, {})
    assert found.expressions == (
        "inputs[0]", "inputs[1]", "model.bn.weight", "model.bn.bias", "model.bn.running_mean", "model.bn.running_var",
        "model.bn.num_batches_tracked",
    )  # fmt: skip
    assert bind((), (), NORM, {}).expressions == ()


# --- numbers -------------------------------------------------------------------------------------

CONV = One(conv=nn.Conv2d(4, 8, 3, stride=2, padding=1, dilation=1, groups=2))
UNEVEN = One(conv=nn.Conv2d(4, 8, (3, 5), stride=(1, 2), padding=(0, 2), bias=False))
DEEP = One(conv3d=nn.Conv3d(4, 8, (2, 3, 5), bias=False))
CONV_TENSORS = f"{T} x, {T} w"


@pytest.mark.parametrize(
    ("model", "wrapper", "expected"),
    [
        (CONV, "int stride, int padding, int dilation, int groups",
         "model.conv.stride[0], model.conv.padding[0], model.conv.dilation[0], model.conv.groups"),
        (CONV, "std::vector<int64_t> stride, at::IntArrayRef padding, std::array<int, 2> dilation, int64_t groups",
         "model.conv.stride, model.conv.padding, model.conv.dilation, model.conv.groups"),
        (CONV, "int stride_h, int stride_w, int pad_h, int pad_w, int kH, int kW",
         "model.conv.stride[0], model.conv.stride[1], model.conv.padding[0], model.conv.padding[1], "
         "model.conv.kernel_size[0], model.conv.kernel_size[1]"),
        (CONV, "int conv_stride, int convPadding, int conv2d_groups, int k",
         "model.conv.stride[0], model.conv.padding[0], model.conv.groups, model.conv.kernel_size[0]"),
        (CONV, "int in_channels, int c_out", "model.conv.in_channels, model.conv.out_channels"),
        (UNEVEN, "int kh, int kw, int sh, int padW",
         "model.conv.kernel_size[0], model.conv.kernel_size[1], model.conv.stride[0], model.conv.padding[1]"),
        (UNEVEN, "int stride_0, int kernel_size1", "model.conv.stride[0], model.conv.kernel_size[1]"),
        (DEEP, "int kernel_d, int kernel_size_h, int kernel_width, int stride",
         "model.conv3d.kernel_size[0], model.conv3d.kernel_size[1], model.conv3d.kernel_size[2], "
         "model.conv3d.stride[0]"),
    ],
)  # fmt: skip
def test_convolutions(model: nn.Module, wrapper: str, expected: str) -> None:
    assert bound(f"{CONV_TENSORS}, {wrapper}", model).text == f"inputs[0], model.{_only(model)}.weight, {expected}"


def _only(model: nn.Module) -> str:
    return next(name for name, _ in model.named_children())


@pytest.mark.parametrize(
    ("part", "wrapper", "expected"),
    [
        (nn.LayerNorm((3,), elementwise_affine=False), "double eps", "model.part.eps"),
        (nn.LayerNorm((3,), elementwise_affine=False), "int normalized_shape, float epsilon",
         "model.part.normalized_shape[0], model.part.eps"),
        (nn.GroupNorm(2, 4, affine=False), "int groups, float eps", "model.part.num_groups, model.part.eps"),
        (nn.BatchNorm2d(3, affine=False), "double momentum, double bn_eps", "model.part.momentum, model.part.eps"),
        (nn.MaxPool2d(3, 2, 1), "int kernel_size, int stride, int padding, int dilation",
         "model.part.kernel_size, model.part.stride, model.part.padding, model.part.dilation"),
        (nn.MaxPool2d(3, 2, 1), "int pool_size, int stride_w, bool ceil_mode",
         "model.part.kernel_size, model.part.stride, model.part.ceil_mode"),
        (nn.MaxPool2d(3), "std::vector<int64_t> kernel_size", "[model.part.kernel_size] * 2"),
        (nn.AvgPool3d(3), "at::IntArrayRef stride", "[model.part.stride] * 3"),
        (nn.AdaptiveAvgPool2d((1, 2)), "std::vector<int64_t> output_size", "model.part.output_size"),
        (nn.Softmax(dim=1), "int64_t dim", "model.part.dim"),
        (nn.Softmax(dim=1), "int axis", "model.part.dim"),
        (nn.LeakyReLU(0.2), "float negative_slope", "model.part.negative_slope"),
        (nn.LeakyReLU(0.2), "float alpha", "model.part.negative_slope"),
        (nn.ELU(1.5), "double alpha", "model.part.alpha"),
        (nn.Hardtanh(-1.0, 2.0), "float min_val, float max_value", "model.part.min_val, model.part.max_val"),
        (nn.Upsample(scale_factor=2.0, mode="bilinear"), "double scale_factor, std::string mode",
         "model.part.scale_factor, model.part.mode"),
    ],
)  # fmt: skip
def test_parts(part: nn.Module, wrapper: str, expected: str) -> None:
    assert bound(f"{T} x, {wrapper}", One(part=part)).text == f"inputs[0], {expected}"


def test_losses() -> None:
    model = Pair(loss=nn.TripletMarginLoss(margin=1.5), beta=2.0)
    wrapper = f"{T} predictions, {T} targets, float margin, double beta, std::string reduction"
    assert bound(wrapper, model, (X, X)).text == (
        "inputs[0], inputs[1], model.loss.margin, model.beta, model.loss.reduction"
    )
    model = Pair(loss=nn.SmoothL1Loss(beta=0.5))
    assert bound(f"{T} p, {T} t, float delta", model, (X, X)).text == "inputs[0], inputs[1], model.loss.beta"


def test_inputs_that_are_numbers() -> None:
    inputs = (X, X, X, X, 0.5)
    tensors = "inputs[0], inputs[1], inputs[2], inputs[3]"
    four = ", ".join(f"{T} {name}" for name in ("q", "k", "v", "mask"))
    model = Attention(scale=7.0)
    assert bound(f"{four}, float scale", model, inputs).text == f"{tensors}, inputs[4]"
    assert bound(f"{four}, float factor", model, inputs).text == f"{tensors}, inputs[4]"
    assert (
        bound(f"{four}, bool flag = false, float factor = 1.0f", model, inputs).text == f"{tensors}, False, inputs[4]"
    )
    assert "inputs[4] would not be used" in refusal(four, model, inputs)
    assert "inputs[4] would not be used" in refusal(f"{four}, int heads", Attention(num_heads=8), inputs)


def test_arguments_of_the_constructor() -> None:
    init = {"margin": 0.3, "kernel_size": 3, "stride": (1, 2), "mode": "same", "flag": True}
    wrapper = f"{T} x, float margin, int k, int stride_w, std::string mode, bool flag"
    assert bound(wrapper, One(), init=init).text == (
        "inputs[0], init['margin'], init['kernel_size'], init['stride'][1], init['mode'], init['flag']"
    )
    # said as the model's where the model keeps it
    kept = One(margin=0.3, pool=nn.MaxPool2d(3, (1, 2)))
    assert bound(f"{T} x, float margin, int kernel_size, int stride_w", kept, init=init).text == (
        "inputs[0], model.margin, model.pool.kernel_size, model.pool.stride[1]"
    )
    # a part with another value is another thing
    other = One(margin=0.4)
    assert bound(f"{T} x, float margin", other, init=init).text == "inputs[0], init['margin']"


def test_an_int_fits_a_list_where_the_module_has_a_tuple() -> None:
    wrapper = f"{CONV_TENSORS}, std::vector<int64_t> stride"
    assert bound(wrapper, CONV, init={"stride": 2}).text == "inputs[0], model.conv.weight, model.conv.stride"
    assert "stride cannot be bound" in refusal(f"{T} x, std::vector<int64_t> stride", One(), init={"stride": 2})


def test_a_learned_number_goes_before_what_it_was_made_from() -> None:
    model = One(scale=nn.Parameter(torch.tensor(2.0)))
    found = bound(f"{T} x, float scale", model, init={"scale": 2.0})
    assert found == Binding(("inputs[0]", "model.scale.item()"))
    assert bound(f"{T} x, {T} scale", model, init={"scale": 2.0}).text == "inputs[0], model.scale"


def test_types_decide_too() -> None:
    model = One(alpha=0.5, dim=(1,), flag=True, part=nn.Softmax(dim=0))
    assert bound(f"{T} x, bool flag, int dim", model).text == "inputs[0], model.flag, model.dim[0]"
    assert "alpha cannot be bound" in refusal(f"{T} x, int alpha", model)
    assert "alpha1 cannot be bound" in refusal(f"{T} x, float alpha1", model)
    assert "flag cannot be bound" in refusal(f"{T} x, float flag", model)
    assert "padding cannot be bound" in refusal(
        f"{CONV_TENSORS}, int padding", One(conv=nn.Conv2d(3, 3, 3, padding="same", bias=False))
    )


def test_what_the_class_says_counts() -> None:
    class Fixed(One):
        eps = 1e-3

    assert bound(f"{T} x, double eps", Fixed()).text == "inputs[0], model.eps"
    assert bound(f"{T} x, bool training", Fixed()).text == "inputs[0], model.training"


# --- ambiguity, defaults, refusals -----------------------------------------------------------------


def test_different_values_of_one_name_are_ambiguous() -> None:
    model = One(conv=nn.Conv2d(3, 4, 3, stride=2, bias=False), pool=nn.MaxPool2d(2, 3))
    message = refusal(f"{CONV_TENSORS}, int stride = 1, int conv_stride, int pool_stride", model)
    assert "stride is ambiguous (model.conv.stride[0] is 2, model.pool.stride is 3)" in message
    assert (
        'complete --args "inputs[0], model.conv.weight, <stride>, model.conv.stride[0], model.pool.stride"' in message
    )
    found = bound(f"{CONV_TENSORS}, int conv_stride, int pool_stride", model)
    assert found.expressions[2:] == ("model.conv.stride[0]", "model.pool.stride")
    same = One(first=nn.BatchNorm1d(3, affine=False), second=nn.BatchNorm1d(3, affine=False))
    assert bound(f"{T} x, double eps", same).text == "inputs[0], model.first.eps"


def test_a_tuple_of_different_elements_is_no_number() -> None:
    message = refusal(f"{CONV_TENSORS}, int stride", UNEVEN)
    assert "stride is ambiguous (model.conv.stride is (1, 2))" in message


NUMBERED = One(conv1=nn.Conv1d(3, 4, 3, stride=1, bias=False), conv2=nn.Conv1d(4, 4, 3, stride=2, bias=False))


def test_numbered_parts() -> None:
    model = NUMBERED
    wrapper = f"{T} x, {T} conv2_weight, {T} conv1_weight, int conv1_stride, int conv2_stride"
    assert bound(wrapper, model).text == (
        "inputs[0], model.conv2.weight, model.conv1.weight, model.conv1.stride[0], model.conv2.stride[0]"
    )
    assert bound(f"{T} x, {T} w1, {T} w2, int stride1, int stride2", model).expressions[3:] == (
        "model.conv1.stride[0]", "model.conv2.stride[0]",
    )  # fmt: skip
    norms = One(ln1=nn.LayerNorm(3, eps=0.1, bias=False), ln2=nn.LayerNorm(3, eps=0.2, bias=False))
    wrapper = f"{T} x, {T} gamma2, {T} gamma1, float eps1, float ln2_eps"
    assert bound(wrapper, norms).text == ("inputs[0], model.ln2.weight, model.ln1.weight, model.ln1.eps, model.ln2.eps")
    # the 2d of a name is no number
    model = One(conv2d=nn.Conv2d(3, 4, 3, bias=False), extra=nn.Conv2d(3, 4, 3, stride=2, bias=False))
    wrapper = f"{T} x, {T} conv1_weight, {T} conv2_weight, int conv2d_stride"
    assert bound(wrapper, model).text == "inputs[0], model.conv2d.weight, model.extra.weight, model.conv2d.stride[0]"
    assert "conv3_stride cannot be bound" in refusal(f"{T} x, {T} w, {T} v, int conv3_stride", NUMBERED)


def test_defaults_stand_in_for_what_is_not_there() -> None:
    wrapper = f'{T} x, double eps = 1e-6, int block = 256, c10::optional<double> cap, std::string mode = "fast"'
    assert bound(wrapper, One()).text == "inputs[0], 1e-06, 256, None, 'fast'"
    assert bound(wrapper, One(eps=0.5)).text == "inputs[0], model.eps, 256, None, 'fast'"
    assert bound(f"{T} x, int block = 256, double eps", One(eps=0.5)).text == "inputs[0], 256, model.eps"


def test_defaults_that_are_no_literals_are_left_to_the_function() -> None:
    wrapper = f"{T} x, at::ScalarType type = torch::kFloat32, int block = 256"
    assert bound(wrapper, One()).text == "inputs[0]"
    message = refusal(f"{T} x, int block = kBlock, double eps", One(eps=0.5))
    assert "the default of block cannot be written before eps" in message


def test_a_refusal_says_all() -> None:
    message = refusal(f"{T} x, {T} w, int rows, double eps, float limit", One(ln=nn.LayerNorm(3, bias=False)))
    assert message == (
        "the task does not fit forward(Tensor x, Tensor w, int rows, float eps, float limit): rows cannot be bound, "
        "limit cannot be bound; bound: x = inputs[0], w = model.ln.weight, eps = model.ln.eps; "
        'complete --args "inputs[0], model.ln.weight, <rows>, model.ln.eps, <limit>"'
    )
    assert "inputs[1] would not be used" in refusal(f"{T} x", Pair(), (X, X))
    assert "parameter 2 cannot be bound" in refusal(f"{T} x, int", One())
    assert "y cannot be bound" in refusal(f"{T} x, {T} y", One())
    assert "bound: nothing" in refusal("float* x", One(), ())


def test_several_functions_in_one_file() -> None:
    source = """
    torch::Tensor scale(torch::Tensor x, double factor) { return x; }
    torch::Tensor norm(torch::Tensor x, torch::Tensor gamma, double eps) { return scale(x, eps); }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("rms", &norm, py::arg("x"), py::arg("w"), py::arg("eps") = 1e-8); }
    """
    model = One(weight=nn.Parameter(torch.ones(3)), eps=1e-5, factor=2.0)
    for entry, expected in (("scale", "model.factor"), ("rms", "model.weight, model.eps")):
        assert bind(signature_of(source, entry), (X,), model, {}).text == f"inputs[0], {expected}"
