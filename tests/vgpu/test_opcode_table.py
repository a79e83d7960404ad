"""A family of opcodes is one file: what its entries say holds everywhere, and no other file changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from ptxkit import module

from cupilot.vgpu.emit import Emitter
from cupilot.vgpu.emit.groups import find_groups
from cupilot.vgpu.lower import families, table
from cupilot.vgpu.lower.cost import class_of, pipe_of
from cupilot.vgpu.lower.coverage import instructions, page, unsupported
from cupilot.vgpu.lower.table import opcodes
from cupilot.vgpu.ptx.parse import PtxError, parse_module
from cupilot.vgpu.ptx.syntax import Instruction

COUNTERS = Path(__file__).parents[2] / "docs" / "counters.md"
TOYS = '''"""Toys, which no GPU has."""
from cupilot.vgpu.lower.families.floating import fma_float
from cupilot.vgpu.lower.table import Opcode

def _copy(e, i):
    e.put(i.operands[0], e.fetch(i.operands[1], "i32", False), "i32", False)

def _nothing(e, i):
    pass

ORDER = 75
OPCODES = {
    "toy": Opcode(
        fma_float,
        section="toy.sync",
        kind="special",
        flop=5,
        forms=("toy.{f32,f64}",),
        operands="%rd1, %rd2, %rd3, %rd4",
        missing=("toy.f16",),
        notes="for children",
    ),
    "toy.fetch": Opcode(
        _copy, kind="load", orders=("shared",), round_trip=lambda i: True, forms=("toy.fetch.u32",), operands="%r1, %r2"
    ),
    "toy.mma": Opcode(_nothing, writes=0, kind="matrix", tensor_flop=lambda i: ("fp16", 64), forms=("toy.mma",)),
    "cp.async.bulk.tensor": Opcode(
        _nothing, writes=0, kind="copy", pipe="tensor", forms=("cp.async.bulk.tensor.2d [%r1], [%rd1]",)
    ),
    "wgmma.fence": Opcode(_nothing, writes=0, kind="fence", forms=("wgmma.fence",)),
}
'''


class Folder:
    """A folder that is scanned for families too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: list[str] = []

    def add(self, name: str, text: str) -> None:
        (self.path / f"{name}.py").write_text(text)
        self.names.append(f"{families.__name__}.{name}")
        forget()


def forget() -> None:
    for known in (table.families, table.opcodes, table._entry):
        known.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    made = Folder(tmp_path)
    yield made
    for name in made.names:
        sys.modules.pop(name, None)
    forget()


def counters(body: str) -> dict[str, float]:
    """What the translated code counts, without its ``ret`` and without counters of single lines."""
    known = parse_module(module(f"{body} ret;", "k", ()))
    code = Emitter(known, known.functions["k"]).kernel()
    llvm.parse_assembly(code.ir).verify()
    counted = dict(code.blocks[0].counters)
    for name in ("instructions_control", "opcodes_branch", "warp_instructions"):
        counted[name] -= 1
    return {name: amount for name, amount in counted.items() if amount and "@" not in name}


def instruction(text: str) -> Instruction:
    found = parse_module(module(f"{text}; ret;", "k", ())).functions["k"].body[0]
    assert isinstance(found, Instruction)
    return found


def test_a_new_family_is_translated_and_counted(folder: Folder) -> None:
    code = "toy.f32 %f1, %f2, %f3, %f4;"
    with pytest.raises(PtxError, match=r"unsupported on the virtual GPU: opcode toy\.f32, kernel k, line"):
        counters(code)
    folder.add("toys", TOYS)
    assert counters(code) == {"instructions_sfu": 1, "opcodes_special": 1, "warp_instructions": 1, "flop_fp32": 5}


def test_the_longest_name_counts(folder: Folder) -> None:
    folder.add("toys", TOYS)
    assert counters("toy.mma;") == {
        "instructions_tensor": 1, "opcodes_matrix": 1, "warp_instructions": 1, "flop_tensor_fp16": 64,
    }  # fmt: skip
    assert counters("cp.async.bulk.tensor.2d [%r1], [%rd1]; cp.async.bulk.commit_group;") == {
        "instructions_tensor": 1, "instructions_lsu": 1, "opcodes_copy": 2, "warp_instructions": 2,
    }  # fmt: skip


def test_shared_loads_do_not_move_across_what_orders_them(folder: Folder) -> None:
    folder.add("toys", TOYS)
    first, second = (instruction(f"ld.shared.u32 %r{n}, [%r9+{4 * n}]") for n in (3, 4))
    assert len(find_groups([first, instruction("toy.mma"), second])) == 2
    assert find_groups([first, instruction("toy.fetch.u32 %r1, %r2"), second]) == {}


@pytest.mark.parametrize(("source", "trips"), [("%r1", 2), ("%r2", 1)])
def test_round_trips_of_a_new_family_are_counted(folder: Folder, source: str, trips: int) -> None:
    folder.add("toys", TOYS)
    assert counters(f"toy.fetch.u32 %r1, %r2; toy.fetch.u32 %r3, {source};")["load_groups"] == trips


def test_a_new_family_is_on_the_coverage_page(folder: Folder) -> None:
    before = page().splitlines()
    folder.add("toys", TOYS)
    after = page()
    assert "| `toy` | toy.sync | `toy.{f32,f64}` | not `toy.f16`; for children |" in after.splitlines()
    assert after.index("## Floating") < after.index("## Toys\n\nToys, which no GPU has.") < after.index("## Convert")
    assert [line for line in before if line not in after.splitlines()] == [
        "* copies through a tensor map: `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`",
        "* matrix products of a warp group: `wgmma`",
    ]
    assert unsupported()["copies through a tensor map"] == ["cp.reduce.async.bulk.tensor"]


def test_two_entries_of_one_name_are_an_error(folder: Folder) -> None:
    folder.add("toys", TOYS)
    folder.add(
        "more_toys", TOYS.replace('"toy.mma"', '"toy.cc"').replace('"wgmma.fence"', '"add"').replace("75", "180")
    )
    with pytest.raises(
        ValueError, match=r"more_toys has a second entry for add, cp\.async\.bulk\.tensor, toy, toy\.fetch"
    ):
        opcodes()


def documented(counter: str) -> set[str]:
    """The names that docs/counters.md lists for ``instructions_PIPE`` or ``opcodes_CLASS``."""
    row = next(line for line in COUNTERS.read_text().splitlines() if line.startswith(f"| `{counter}`"))
    return set(re.findall(r"`(\w+)`", row)) - {counter}


def test_pipes_and_kinds_are_those_of_the_documentation() -> None:
    texts = [text for entry in opcodes().values() for text in instructions(entry.forms, entry.operands)]
    found = [Instruction(opcode, tuple(mods), ()) for opcode, *mods in (text.split()[0].split(".") for text in texts)]
    assert {pipe_of(i) for i in found} == documented("instructions_PIPE")
    assert {class_of(i) for i in found} == documented("opcodes_CLASS")
