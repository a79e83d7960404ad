"""Run beside the installed package, which this folder's tests made: what the operator does where there is no GPU."""

import sys
from pathlib import Path

import pytest
import rows_kernel  # type: ignore[import-not-found]
import torch
from rows_kernel import operator  # type: ignore[import-not-found]
from rows_kernel.reference import Model  # type: ignore[import-not-found]
from torch._subclasses.fake_tensor import FakeTensorMode

installed = Path(rows_kernel.__file__)
assert installed.is_relative_to(sys.argv[1]), installed
assert installed.with_name("kernel.cu").is_file()

# the CPU has the reference, to the last bit, with its state_dict
torch.manual_seed(0)
reference, made = Model(160), rows_kernel.Rows(160)
made.load_state_dict(reference.state_dict())
x = torch.rand(24, 160)
assert torch.equal(made(x), reference(x))
weight, mean = made.inner[0].weight, made.mean
assert torch.equal(torch.ops.rows_kernel.rows(x, weight, mean), reference(x))
assert made.uses_operator
# a mode that changes nothing changes nothing; another constant is the reference's
assert torch.equal(made.eval()(x), reference(x))
other = rows_kernel.Rows(160, shift=2.0)
assert not other.uses_operator
assert torch.equal(other(x), (x - other.mean) * other.inner[0].weight + 2.0)

# what PyTorch itself checks of an operator: schema, autograd, fake tensors, the compiler with symbolic shapes
arguments = (x.clone().requires_grad_(), weight.detach().requires_grad_(), mean)
outcome = torch.library.opcheck(rows_kernel.rows, arguments)
assert set(outcome.values()) == {"SUCCESS"}, outcome
torch.autograd.gradcheck(
    rows_kernel.rows, tuple(v.detach()[..., :3].double().requires_grad_(v.requires_grad) for v in arguments)
)

with FakeTensorMode():
    fake = operator.rows(torch.empty(7, 160), torch.empty(160), torch.empty(160))
    assert fake.shape == (7, 160)
    # a kernel of CUDA tensors that nobody has: only the shape is asked for
    fake = operator.rows(*(torch.empty(shape, device="cuda") for shape in ((5, 160), (160,), (160,))))
    assert (fake.shape, fake.device.type) == ((5, 160), "cuda")
compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(x), reference(x))


class Extension:
    """In place of the kernel, to see what it is called with."""

    @staticmethod
    def forward(x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, shift: float) -> torch.Tensor:
        assert all(value.is_contiguous() and not value.requires_grad for value in (x, weight, mean))
        return (x - mean) * weight + shift


operator._extension = Extension
strided = torch.rand(160, 24).t()
assert torch.equal(operator._with_state(operator._kernel, (strided, weight, mean)), reference(strided))

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[2]]))
