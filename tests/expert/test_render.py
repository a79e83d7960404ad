"""Generated source: golden plain kernels, and what must hold of every kernel's text."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from expert_tasks import FAMILIES, brief, elementwise_task, matmul_task, softmax_task

from cupilot.contracts import Built
from cupilot.expert import Expert
from cupilot.expert.render import render
from cupilot.records import Kernel, Move, Strategy, Task
from cupilot.strategies import load_deck, move_text, parse
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.nvcc import build_kernel

GOLDEN = Path(__file__).parent / "golden"
DECK = load_deck()
EXPERT = Expert()

TUNED = """
coalesce
shared-tile(block_k=16, block_m=128, block_n=128)
register-block(thread_m=8, thread_n=8)
vector-load(bytes=16)
transposed-a-tile
shared-padding(floats=4)
double-buffer(buffers=2)
launch-bounds(blocks=2)
"""


def translate(task: Task, text: str) -> Kernel:
    kernel = EXPERT.translate(brief(task), parse(text, DECK))
    assert isinstance(kernel, Kernel), kernel
    return kernel


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_plain_kernels_are_as_agreed(family: str) -> None:
    source = EXPERT.generate(brief(FAMILIES[family]())).source
    assert source == (GOLDEN / f"{family}.cu").read_text()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_kernel_is_well_formed_and_names_its_strategy(family: str) -> None:
    space = EXPERT.space(FAMILIES[family]())
    rng = Random(11)
    singles = [space.repair(Strategy((space.default(card),)), frozenset({card})) for card in space.cards]
    for strategy in [*singles, *(space.draw(rng, lambda card: 0.5) for _ in range(25))]:
        kernel = render(space, strategy)
        source = kernel.source
        assert all(f"\n//   {move_text(move)}\n" in source for move in strategy.moves)
        assert source.count("{") == source.count("}")
        assert source.count("(") == source.count(")")
        assert "{{" not in source.replace("Running{{", "")
        assert not re.search(r"[^\n]#pragma|;;|[ \t]\n|\n\n\n", source)
        assert max(map(len, source.splitlines())) <= 140
        for needed in (
            "#include <torch/extension.h>",
            "#include <cuda_runtime.h>",
            "torch::Tensor forward(torch::Tensor ",
            "is_contiguous()",
            "at::cuda::getCurrentCUDAStream()",
            "C10_CUDA_KERNEL_LAUNCH_CHECK();",
            "#ifdef TORCH_EXTENSION_NAME",
        ):
            assert needed in source


def test_reasons_do_not_change_the_kernel() -> None:
    task = elementwise_task()
    one = EXPERT.translate(brief(task), Strategy((Move.of("unroll", "because", factor=2),)))
    other = EXPERT.translate(brief(task), Strategy((Move.of("unroll", "why not", factor=2),), "text"))
    assert one == other


@pytest.mark.parametrize(
    ("task", "text", "has", "lacks"),
    [
        (elementwise_task(), "vector-load(bytes=16)", "Pack<kWidth> v", "__stcs"),
        (elementwise_task(), "streaming-store", "__stcs(&y[i], apply(x[i]))", "Pack"),
        (elementwise_task(), "grid-stride(blocks_per_sm=8)", "cudaDevAttrMultiProcessorCount", "kUnroll"),
        (softmax_task(), "block-per-row", "parts[threadIdx.x + half]", "__shfl"),
        (softmax_task(), "block-per-row\nwarp-shuffle", "__shfl_xor_sync", "half"),
        (softmax_task(), "warp-per-row\nwarp-shuffle\nonline-softmax", "Running", "__syncthreads"),
        (softmax_task(), "block-per-row\nshared-cache", "row_cache", "kSlots"),
        (softmax_task(), "block-per-row\nregister-cache", "constexpr int kSlots = 16;", "row_cache"),
        (matmul_task(), "coalesce", "walks the columns", "__shared__"),
        (matmul_task(), TUNED, "kThreads, 2", "const int tiles_m"),
    ],
)
def test_moves_show_in_the_code(task: Task, text: str, has: str, lacks: str) -> None:
    source = translate(task, text).source
    assert has in source
    assert lacks not in source


def test_coalesce_swaps_the_roles_of_the_thread_indices() -> None:
    assert "const int row = blockIdx.x" in EXPERT.generate(brief(matmul_task())).source
    assert "const int row = blockIdx.y" in translate(matmul_task(), "coalesce").source


def test_pointwise_operators_after_a_product_are_fused() -> None:
    source = EXPERT.generate(brief(matmul_task(64, 64, 64, ("aten.relu.default", ())))).source
    assert "= apply(sum);" in source
    assert "then relu" in source


def test_arguments_keep_the_order_of_the_task() -> None:
    task = matmul_task()
    swapped = Task(task.name, "", tuple(reversed(task.arguments)), task.outputs, task.graph)
    assert "forward(torch::Tensor b, torch::Tensor a)" in EXPERT.generate(brief(swapped)).source


@pytest.mark.parametrize(
    ("task", "text", "registers"),
    [
        (
            elementwise_task(),
            "vector-load(bytes=16)\nunroll(factor=4)\ngrid-stride(blocks_per_sm=8)\nstreaming-store",
            64,
        ),
        (
            softmax_task(),
            "block-per-row\nwarp-shuffle\nonline-softmax\nregister-cache\nvector-load(bytes=16)\nblock-size(threads=512)",
            64,
        ),
        (softmax_task(64, 1000), "block-per-row\nshared-cache\nvector-load(bytes=8)\nunroll(factor=2)", 64),
        (matmul_task(), TUNED, 128),
    ],
)
def test_the_compiler_is_content_and_nothing_spills(task: Task, text: str, registers: int, tmp_path: Path) -> None:
    built = build_kernel(translate(task, text), "sm_80", tmp_path, find_cuda())
    assert isinstance(built, Built), built
    assert built.resources
    for name, resources in built.resources:
        assert resources.spill_bytes == 0, name
        assert resources.registers <= registers, name
