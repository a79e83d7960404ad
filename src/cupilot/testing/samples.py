"""Small, plausible records to test with."""

from __future__ import annotations

from cupilot.gpu.spec import GpuSpec
from cupilot.records import (
    Argument,
    Check,
    Counter,
    Evaluation,
    EvaluationRequest,
    Failure,
    Individual,
    Kernel,
    Launch,
    LineCost,
    MemoryOperation,
    Move,
    Op,
    Profile,
    Proof,
    Resources,
    RunInfo,
    RunResult,
    Strategy,
    Task,
    TaskSource,
    TensorSpec,
    Timing,
)

TASK = Task(
    name="relu",
    source="import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
    arguments=(Argument("x", "input", TensorSpec((1024, 1024))),),
    outputs=(TensorSpec((1024, 1024)),),
    graph=(Op("relu", "aten.relu.default", ("x",), (), TensorSpec((1024, 1024))),),
)

# rounded figures of a data-centre GPU; for tests only, the real specs are data files
SPEC = GpuSpec(
    name="sample",
    title="Sample GPU",
    architecture="sm_80",
    capability=8.0,
    sms=100,
    clock_hz=1.4e9,
    sustained_clock_hz=1.4e9,
    schedulers_per_sm=4,
    fp32_lanes_per_sm=64,
    fp64_lanes_per_sm=32,
    fp16_lanes_per_sm=128,
    int32_lanes_per_sm=64,
    sfu_lanes_per_sm=16,
    lsu_lanes_per_sm=32,
    fp16_tensor_flop_per_s=3e14,
    bf16_tensor_flop_per_s=3e14,
    tf32_tensor_flop_per_s=1.5e14,
    fp8_tensor_flop_per_s=0.0,
    fp64_tensor_flop_per_s=1.8e13,
    int8_tensor_op_per_s=6e14,
    mma_share=0.8,
    sgemm_flop_per_s=1.6e13,
    registers_per_sm=65536,
    registers_per_thread=255,
    threads_per_sm=2048,
    warps_per_sm=64,
    blocks_per_sm=32,
    threads_per_block=1024,
    shared_bytes_per_sm=160 * 1024,
    shared_bytes_per_block=48 * 1024,
    shared_bytes_per_block_optin=160 * 1024,
    shared_carveouts=(0, 64 * 1024, 160 * 1024),
    l1_bytes_per_sm=192 * 1024,
    l1_kept_bytes_per_sm=150 * 1024,
    l2_bytes=40 * 1024 * 1024,
    l2_near_bytes=20 * 1024 * 1024,
    l2_bytes_per_s=4e12,
    dram_bytes=80 * 10**9,
    dram_bytes_per_s=2e12,
    dram_read_bytes_per_s=1.8e12,
    dram_copy_bytes_per_s=1.7e12,
    pcie_bytes_per_s=25e9,
    l1_latency_cycles=33.0,
    l2_latency_cycles=200.0,
    l2_far_latency_cycles=400.0,
    dram_latency_cycles=470.0,
    launch_overhead_s=3e-6,
)

STRATEGY = Strategy(
    (
        Move.of("vector-access", "fewer requests for the same bytes", width=4),
        Move.of("unroll", factor=2, tail=True),
    ),
    "wide loads, a little unrolled",
)
KERNEL = Kernel("// a kernel\n", "forward")
FAILURE = Failure("verify", "wrong-result", "element 7 is 1.5, the reference has 2.5", "a log")
TIMING = Timing(5e-6, "modelled", "sample", "dram", (("dram", 4e-6), ("launch", 1e-6)))
LAUNCH = Launch(
    kernel="relu",
    grid=(4096, 1, 1),
    block=(256, 1, 1),
    dynamic_shared_bytes=0,
    resources=Resources(16),
    blocks_run=64,
    counters=(
        Counter("warp_instructions", 5e5, "PTX"),
        Counter("dram_read_bytes", 4194304.0, "model"),
        Counter("dram_write_bytes", 4194304.0, "model"),
    ),
    lines=(LineCost(5, 1e5, 2.6e5),),
)
PROFILE = Profile("sample", (LAUNCH,), (MemoryOperation("fill", 4096),), sampled=True)
EVALUATION = Evaluation(
    kernel=KERNEL.digest,
    task="relu",
    device="sample",
    timing=TIMING,
    baseline=Timing(1e-5, "modelled", "sample", "dram"),
    profile=PROFILE,
    checks=(Check("normal", "1024x1024", 0.0, 1e-6),),
    proof=Proof("0" * 64, "1" * 64, (("nvcc", "1"),), 3, 1, 0.0, "2" * 64, "PyTorch eager, modelled"),
)
FAILED = Evaluation(KERNEL.digest, "relu", "sample", FAILURE)
INFO = RunInfo("relu", TASK.source, "sample", "fake", 1, 4, 2, "0.0.0")
INDIVIDUAL = Individual(0, 0, "plain", Strategy(), KERNEL, EVALUATION, reason="to start from")
RESULT = RunResult(INFO, INDIVIDUAL, INDIVIDUAL, 1, 0, "generations", "runs/relu-1")
REQUEST = EvaluationRequest(
    task=TaskSource.of(TASK), kernel=KERNEL, device="sample", gpu=SPEC.name, seed=7, timeout_s=30.0
)
