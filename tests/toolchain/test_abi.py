"""Wrappers called through the C interface, on memory of the stand-in runtime; PyTorch itself is the reference."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cupilot.records import ITEM_BYTES
from cupilot.toolchain.abi import DTYPE_CODES, Library, TensorValue, WrapperError


def value(tensor: torch.Tensor) -> TensorValue:
    return TensorValue(
        tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype).removeprefix("torch.")
    )


def content(result: TensorValue) -> torch.Tensor:
    """The memory behind a result, seen as the tensor it describes."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(result.shape, result.strides, strict=True))
    buffer = (ctypes.c_char * (span * ITEM_BYTES[result.dtype])).from_address(result.pointer)
    flat = torch.frombuffer(bytearray(buffer), dtype=getattr(torch, result.dtype))
    return flat.as_strided(result.shape, result.strides)


def test_the_element_types_are_those_of_the_records() -> None:
    assert set(DTYPE_CODES) == set(ITEM_BYTES)


def test_entries_have_signatures(library: Library) -> None:
    entries = dict(library.entries())
    assert entries["forward"] == "(Tensor) -> Tensor"
    assert entries["two_outputs"] == "(Tensor, int, float) -> (Tensor, Tensor)"
    assert entries["halves"] == "(Tensor) -> Tensor[]"
    assert entries["with_optional"] == "(Tensor, Tensor?, float, bool) -> Tensor"
    assert entries["reshaped"] == "(Tensor, str, int, int) -> Tensor"
    assert entries["add_row_sums"] == "(Tensor, Tensor) -> None"
    assert entries["lambda"] == "(Tensor, int) -> Tensor"


def test_a_launch_reaches_the_runtime(library: Library, runtime: ctypes.CDLL) -> None:
    before = runtime.standin_launches()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.ones(1000, dtype=dtype)
        (y,) = library.call("forward", [value(x)])
        assert (y.shape, y.strides, y.dtype) == ((1000,), (1,), value(x).dtype)
        assert runtime.standin_last_grid() == 4
    assert runtime.standin_launches() == before + 4


def test_results_live_until_release(library: Library, runtime: ctypes.CDLL) -> None:
    library.release()
    before = runtime.standin_live_blocks()
    library.call("two_outputs", [value(torch.ones(3, 4)), 3, 0.5])
    assert runtime.standin_live_blocks() == before + 2
    library.release()
    assert runtime.standin_live_blocks() == before


def test_several_results(library: Library) -> None:
    x = torch.arange(12.0).reshape(6, 2)
    sums, counts = library.call("two_outputs", [value(x), 6, 1])
    assert torch.equal(content(sums), torch.zeros(6))
    assert (counts.shape, counts.dtype) == ((6, 2), "int64")
    first, second = library.call("halves", [value(x)])
    assert (first.pointer, second.pointer) == (x.data_ptr(), x[3:].data_ptr())
    assert second.shape == (3, 2)


def test_arguments_in_place(library: Library) -> None:
    x, y = torch.arange(12.0).reshape(3, 4).t(), torch.ones(4)
    expected = y + x.sum(1)
    assert library.call("add_row_sums", [value(y), value(x)]) == ()
    assert torch.equal(y, expected)


def test_optional_and_default_arguments(library: Library) -> None:
    x, bias = torch.ones(2), torch.ones(3)
    assert library.call("with_optional", [value(x), value(bias), 1e-5, True])[0] == value(bias)
    assert library.call("with_optional", [value(x), None, 1, True])[0] == value(x)
    assert library.call("with_optional", [value(x)])[0] == value(x)
    with pytest.raises(WrapperError, match=r"^flag is off, eps is 0\.25$") as caught:
        library.call("with_optional", [value(x), None, 0.25, False])
    assert caught.value.kind == "wrapper-error"


def test_arguments_that_do_not_fit(library: Library) -> None:
    x = value(torch.ones(2))
    for arguments in ([x, None, "text"], [1], [x, x, 0.5, True, 3], [x, None, x]):
        with pytest.raises(WrapperError, match=r"with_optional\(Tensor, Tensor\?, float, bool\) -> Tensor") as caught:
            library.call("with_optional", arguments)
        assert caught.value.kind == "arguments"
    for number in (2**31, 0.5):  # the parameter is a C int
        with pytest.raises(WrapperError, match="argument 2"):
            library.call("two_outputs", [x, number, 0.5])
    with pytest.raises(WrapperError, match="forward") as caught:
        library.call("backward", [x])
    assert caught.value.kind == "no-such-entry"


def test_lists(library: Library) -> None:
    x = value(X)
    assert library.call("sized", ["a", x])[0].shape == (2, 3)
    assert library.call("sized", ["b", x])[0].shape == (5,)
    assert library.call("sized", ["b", x, (1, 2), [4], [0.5], [7], [True, True]])[0].shape == (4,)
    assert library.call("sized", ["a", x, [8, 9], 4, 0.5, 7])[0].shape == (8, 9)
    assert library.call("last_of", [[x, value(X[0])]]) == (value(X[0]),)
    assert library.call("last_of", [[x, value(X[0])], True]) == (x,)
    for wrong in ([1.5, 2], ["a", "b"], [[1], [2]], None, "ab"):
        with pytest.raises(WrapperError, match=r"argument 3 .* sized\(str, Tensor, int\[\], int\[\], float\[\],"):
            library.call("sized", ["a", x, wrong])
    with pytest.raises(WrapperError, match="argument 7"):
        library.call("sized", ["a", x, [8, 9], 4, 0.5, 7, [True] * 3])


def test_numbers_and_types(library: Library) -> None:
    x = value(X)
    assert library.call("typed", [x]) == (x,)
    assert library.call("typed", [x, DTYPE_CODES["float32"], 3, 1.5, None, "cuda", 255]) == (x,)
    with pytest.raises(WrapperError, match=r"^a tensor of Float, Float on cuda:0, not Half$"):
        library.call("typed", [x, DTYPE_CODES["float16"]])
    for number in (256, -1):
        with pytest.raises(WrapperError, match="argument 7"):
            library.call("typed", [x, 6, 3, 0.5, None, "cuda", number])


def test_results_of_several_kinds(library: Library) -> None:
    x = value(X)
    assert library.call("nested", [x]) == (x, value(X[0]), value(X[1]))
    assert library.call("paired", [value(X[0, 0])]) == (value(X[0, 0]), value(X[0, 0].t()))
    assert library.call("twice", [x, 1]) == (value(X[1]),)
    assert library.call("once", [x]) == (x,)


def test_functions_of_torch_libraries(library: Library) -> None:
    entries = dict(library.entries())
    assert entries["in_library"] == "(Tensor, int) -> Tensor"
    assert library.call("in_library", [value(X), 1]) == (value(X[1]),)
    assert len(library.call("for_cuda", [value(X[0, 0])])) == 2
    assert not entries.keys() & {"only_a_schema", "for_cpu"}


def test_functions_that_cannot_be_called_do_not_hinder_others(library: Library) -> None:
    with pytest.raises(WrapperError, match="returns something that is not a tensor"):
        library.call("version", [])
    with pytest.raises(WrapperError, match=r"argument 2 \(int\) does not fit knows\(str\[\], unsupported type\)"):
        library.call("knows", [["a"], 0])


def test_checks_made_in_host_code(library: Library) -> None:
    one = torch.tensor([1.5])
    library.call("host_checks", [value(one)])


def test_wrapper_errors(library: Library) -> None:
    x = value(torch.ones(2, dtype=torch.int32))
    with pytest.raises(WrapperError, match="\"double_it\" not implemented for 'Int'"):
        library.call("forward", [x])
    with pytest.raises(WrapperError, match=r"\.device\(torch::kCUDA\)"):
        library.call("on_host", [x])
    with pytest.raises(WrapperError, match="x must be contiguous"):
        library.call("forward", [value(torch.ones(3, 4).t())])


X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
SQUEEZABLE = torch.arange(12.0).reshape(3, 1, 4, 1)
VIEWS = [
    ("view", X, 10, 0, lambda x: x.view(-1, 10)),
    ("view", X[:, :, 1:3], 2, 0, None),
    ("view", X.unsqueeze(2), 15, 0, lambda x: x.view(-1, 15)),
    ("view", X[:, 1:2, :2], 5, 0, None),
    ("view", X[:, 1:2, :, :1], 4, 0, lambda x: x.view(-1, 4)),
    ("view", X[:, 1:2, :2], 10, 0, lambda x: x.view(-1, 10)),
    ("view", X[:, 1:2, :2], 20, 0, None),
    ("reshape", X, 8, 0, lambda x: x.reshape(8, -1)),
    ("reshape", X[0, 0, :2].expand(3, 2, 5), 3, 0, lambda x: x.reshape(3, -1)),
    ("flatten", X, 1, 2, lambda x: x.flatten(1, 2)),
    ("flatten", X, 0, -1, lambda x: x.flatten()),
    ("unsqueeze", X, 1, 0, lambda x: x.unsqueeze(1)),
    ("unsqueeze", X, -1, 0, lambda x: x.unsqueeze(-1)),
    ("squeeze", SQUEEZABLE, 0, 0, lambda x: x.squeeze()),
    ("squeeze_one", SQUEEZABLE, 1, 0, lambda x: x.squeeze(1)),
    ("squeeze_one", SQUEEZABLE, 0, 0, lambda x: x.squeeze(0)),
    ("transpose", X, -1, 1, lambda x: x.transpose(-1, 1)),
    ("t", X[0, 0], 0, 0, lambda x: x.t()),
    ("t", X, 0, 0, None),
    ("permute", X[0], 2, 1, lambda x: x.permute(2, 1, 0)),
    ("permute", X[0], 0, 1, None),
    ("select", X, 2, -1, lambda x: x.select(2, -1)),
    ("select", X, 2, 4, None),
    ("index", X, 1, 0, lambda x: x[1]),
    ("slice", X, 3, 2, lambda x: x[:, :, :, 1:-1:2]),
    ("slice", X, 1, 1, lambda x: x[:, 1:-1]),
    ("narrow", X, 2, 1, lambda x: x.narrow(2, 1, 2)),
    ("narrow", X, 1, 2, None),
    ("expand", torch.ones(3, 1), 2, 4, lambda x: x.unsqueeze(0).expand(2, -1, -1, 4)),
    ("expand", torch.ones(3, 2), 2, 4, None),
    ("expand", torch.ones(3, 2, 1), 2, 4, lambda x: x.unsqueeze(0).expand(2, -1, -1, 4)),
]


@pytest.mark.parametrize("case", VIEWS)
def test_views_are_those_of_pytorch(library: Library, case: tuple) -> None:
    op, x, a, b, reference = case
    if reference is None:
        with pytest.raises(WrapperError):
            library.call("reshaped", [value(x), op, a, b])
        return
    assert library.call("reshaped", [value(x), op, a, b]) == (value(reference(x)),)


COPIES = [X, X[:, 1], X[:, :, :, 2], X[:, :, 1:3], X[1:, :, :, 1:3].flatten(0, 2), X[0, 0, 0, 0]]


@pytest.mark.parametrize("op", ["contiguous", "clone", "copy_"])
@pytest.mark.parametrize("x", COPIES)
def test_copies_have_the_same_elements(library: Library, op: str, x: torch.Tensor) -> None:
    (result,) = library.call("reshaped", [value(x), op, 0, 0])
    assert (result.shape, result.strides) == (x.shape, x.contiguous().stride())
    assert torch.equal(content(result), x)
    assert (result.pointer == x.data_ptr()) == (op == "contiguous" and x.is_contiguous())


def test_copies_of_nothing(library: Library) -> None:
    (result,) = library.call("reshaped", [value(X[:, :0]), "clone", 0, 0])
    assert result.shape == (2, 0, 4, 5)


@pytest.mark.parametrize("x", [X.transpose(1, 3), X[:, :, :, ::2], X[0, 0, :1].expand(4, 5)])
def test_copies_that_need_a_kernel_launch_one(library: Library, runtime: ctypes.CDLL, x: torch.Tensor) -> None:
    before = runtime.standin_launches()
    (result,) = library.call("reshaped", [value(x), "contiguous", 0, 0])
    assert (result.shape, result.strides) == (x.shape, x.contiguous().stride())
    (wide,) = library.call("converts", [value(x)])
    assert (wide.shape, wide.strides, wide.dtype) == (x.shape, x.double().stride(), "float64")
    assert runtime.standin_launches() == before + 2


def test_a_clone_keeps_the_order_of_dimensions(library: Library) -> None:
    x = X.transpose(1, 3)
    (result,) = library.call("reshaped", [value(x), "clone", 0, 0])
    assert result.strides == x.clone().stride()
    assert torch.equal(content(result), x)


@pytest.mark.parametrize("x", [X, X.permute(0, 2, 3, 1), X[:, 1], X.transpose(1, 3)[:, ::2], X[0, 0].expand(3, 4, 5)])
def test_new_tensors_are_laid_out_as_pytorch_does(library: Library, x: torch.Tensor) -> None:
    (empty,) = library.call("reshaped", [value(x), "empty_like", 0, 0])
    (zeros,) = library.call("reshaped", [value(x), "zeros_like", 0, 0])
    assert empty.strides == zeros.strides == torch.empty_like(x).stride()
    assert torch.equal(content(zeros), torch.zeros_like(x))
    assert (content(empty).view(torch.int32) == -0x54545455).all()  # untouched: as the stand-in's cudaMalloc left it


def test_a_library_that_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(WrapperError) as caught:
        Library(tmp_path / "absent.so")
    assert caught.value.kind == "load"


def test_the_module_is_light() -> None:
    code = "import sys, cupilot.toolchain.abi; print([m for m in ('numpy', 'torch', 'jinja2') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "[]\n"
