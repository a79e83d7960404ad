"""Pool records to test with."""

from __future__ import annotations

from dataclasses import replace

from cupilot.records import Move, Strategy
from cupilot.records.pool import PoolRecord, Proof, Sizes
from cupilot.strategies.pool import Pool, PoolQuery

PROOF = Proof("ab" * 32, "cd" * 32, (("nvcc", "13.0.88"),), seed=0, checks=5, worst=0.25)
SOFTMAX = PoolRecord(
    task="softmax",
    operators=("softmax",),
    dtype="float32",
    precision="fp32",
    shapes="1024x4096:float32 -> 1024x4096:float32",
    sizes=Sizes(1 << 22, row=4096),
    zone="memory-bound",
    limit="dram",
    device="virtual:a100-80gb",
    strategy=Strategy((Move.of("block-per-row"), Move.of("unroll", "hides latency", factor=4)), "rows in blocks"),
    time_s=1e-5,
    gain=4.0,
    speedup=1.5,
    source="modelled",
    kernel="0123456789abcdef",
    proof=PROOF,
    version="0.1.0",
    text="rows in blocks",
)


def record(task: str = "softmax", *, move: Move | None = None, **changes: object) -> PoolRecord:
    """A softmax record with changes; another task has another text, another move another kernel."""
    made = replace(SOFTMAX, task=task, proof=replace(PROOF, task=task.encode().hex().ljust(64, "0")))
    if move is not None:
        made = replace(
            made, strategy=Strategy((move,)), kernel=f"{move.card}{dict(move.parameters)}".encode().hex()[:16]
        )
    return replace(made, **changes)  # type: ignore[arg-type]


def unroll(factor: int) -> Move:
    return Move.of("unroll", factor=factor)


QUERY = PoolQuery(("softmax",), "float32", "fp32", Sizes(1 << 22, row=4096), "memory-bound", "dram", SOFTMAX.device)


def fill(pool: Pool, *records: PoolRecord) -> None:
    for one in records:
        assert pool.add(one)


def found(pool: Pool, query: PoolQuery = QUERY, count: int = 10) -> list[str]:
    return [match.record.task for match in pool.similar(query, count)]
