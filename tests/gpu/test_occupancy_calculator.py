"""Occupancy against CUDA's own calculator: the header ``cuda_occupancy.h`` of the toolkit, compiled for the CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from cupilot.gpu import GpuSpec, load_spec, occupancy
from cupilot.gpu.occupancy import allocated_shared_bytes, shared_carveout
from cupilot.records import Resources
from cupilot.toolchain.cuda import find_cuda

# one GPU for each capability
GPUS = ("v100", "t4", "a100-80gb", "a6000", "l40s", "h100-sxm", "b200")

# reads one question per line, writes blocks per SM, and the carve-out for as many bytes of shared memory
ASK = r"""
#include <cstdio>
#include <cuda_occupancy.h>

int main() {
    int major, minor, threads_per_sm, threads, registers, barriers;
    size_t shared_per_sm, optin, reserved, fixed, dynamic, carve;
    while (std::scanf("%d %d %d %zu %zu %zu %d %d %zu %zu %d %zu", &major, &minor, &threads_per_sm, &shared_per_sm,
                      &optin, &reserved, &threads, &registers, &fixed, &dynamic, &barriers, &carve) == 12) {
        cudaOccDeviceProp gpu;
        gpu.computeMajor = major, gpu.computeMinor = minor, gpu.maxThreadsPerBlock = 1024, gpu.warpSize = 32;
        gpu.maxThreadsPerMultiprocessor = threads_per_sm, gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536;
        gpu.sharedMemPerBlock = 49152, gpu.sharedMemPerMultiprocessor = shared_per_sm, gpu.numSms = 1;
        gpu.sharedMemPerBlockOptin = optin, gpu.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024, kernel.numRegs = registers, kernel.sharedSizeBytes = fixed;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN, kernel.maxDynamicSharedSizeBytes = dynamic;
        kernel.numBlockBarriers = barriers;
        cudaOccDeviceState state;
        cudaOccResult result;
        int failed = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &gpu, &kernel, &state, threads, dynamic);
        failed += cudaOccAlignUpShmemSizeVoltaPlus(&carve, &gpu);
        if (failed) return 1;
        std::printf("%d %zu\n", result.activeBlocksPerMultiprocessor, carve);
    }
}
"""
Question = tuple[int, Resources, int, int]


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Callable[[GpuSpec, list[Question]], list[tuple[int, int]]]:
    folder: Path = tmp_path_factory.mktemp("calculator")
    (folder / "ask.cpp").write_text(ASK)
    include = [f"-I{path}" for path in find_cuda().include]
    subprocess.run(["c++", "-o", "ask", *include, "ask.cpp"], cwd=folder, check=True, capture_output=True)

    def ask(spec: GpuSpec, questions: list[Question]) -> list[tuple[int, int]]:
        version = f"{int(spec.capability)} {round(spec.capability * 10) % 10}"
        shared = f"{spec.shared_bytes_per_sm} {spec.shared_bytes_per_block_optin} {1024 if spec.capability >= 8 else 0}"
        gpu = f"{version} {spec.threads_per_sm} {shared}"
        lines = [
            f"{gpu} {threads} {kernel.registers} {kernel.static_shared_bytes} {dynamic} {kernel.barriers} {carve}"
            for threads, kernel, dynamic, carve in questions
        ]
        done = subprocess.run([folder / "ask"], input="\n".join(lines), capture_output=True, text=True, check=True)
        answers = [line.split() for line in done.stdout.splitlines()]
        return [(int(blocks), int(carve)) for blocks, carve in answers]

    return ask


def questions(spec: GpuSpec) -> Iterator[Question]:
    """Kernels at random, many of them at the edges of what fits, and bytes to carve out."""
    rng = Random(6)
    for _ in range(3000):
        threads = rng.choice((rng.randint(1, 1024), 32 * rng.randint(1, 32)))
        fixed = rng.choice((0, rng.randint(0, 48 * 1024)))
        room = spec.shared_bytes_per_sm // rng.randint(1, 24)
        dynamic = max(
            0, rng.choice((0, rng.randint(0, spec.shared_bytes_per_sm), room - fixed + rng.randint(-1300, 300)))
        )
        kernel = Resources(rng.randint(1, 255), fixed, barriers=rng.choice((0, 1, 1, rng.randint(2, 16))))
        yield threads, kernel, dynamic, rng.randint(0, spec.shared_bytes_per_sm)


@pytest.mark.parametrize("name", GPUS)
def test_blocks_are_those_of_the_calculator(name: str, calculator: Callable[..., list[tuple[int, int]]]) -> None:
    spec = load_spec(name)
    asked = list(questions(spec))
    answers = calculator(spec, asked)
    assert len(answers) == len(asked)
    different = []
    for (threads, kernel, dynamic, _), (blocks, _) in zip(asked, answers, strict=True):
        found = occupancy(spec, threads, kernel, dynamic)
        if found.blocks_per_sm != blocks:
            different.append((threads, kernel, dynamic, found, blocks))
    assert different == []
    assert len({blocks for blocks, _ in answers}) > 8, "the questions are of many kinds"


@pytest.mark.parametrize("name", GPUS)
def test_carveouts_are_those_of_the_calculator(name: str, calculator: Callable[..., list[tuple[int, int]]]) -> None:
    spec = load_spec(name)
    edges = [size + step for size in spec.shared_carveouts for step in (-1, 0, 1)]
    sizes = [size for size in edges if 0 <= size <= spec.shared_bytes_per_sm]
    answers = calculator(spec, [(32, Resources(1), 0, size) for size in sizes])
    assert [next(carve for carve in spec.shared_carveouts if carve >= size) for size in sizes] == [
        c for _, c in answers
    ]
    # and through the function, for one block of each size that can be
    blocks = range(0, spec.shared_bytes_per_block_optin + 1, 100)
    answers = calculator(spec, [(32, Resources(1), 0, allocated_shared_bytes(spec, size)) for size in blocks])
    assert [shared_carveout(spec, size, 1) for size in blocks] == [carve for _, carve in answers]
