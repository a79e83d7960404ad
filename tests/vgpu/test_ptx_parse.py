"""PTX text to records."""

from __future__ import annotations

import pytest
from ptxkit import HEAD

from cupilot.vgpu.ptx.parse import PtxError, parse_module
from cupilot.vgpu.ptx.syntax import Address, Function, Imm, Instruction, Operand, Pair, Reg, Relocation, Symbol, Vector


def kernel(body: str, params: str = "", before: str = "") -> Function:
    return parse_module(f"{HEAD}{before}\n.visible .entry k({params})\n{{\n{body}\n}}\n").functions["k"]


def only(body: str, registers: str = ".reg .b32 %r<8>; .reg .pred %p<4>;") -> Instruction:
    (instruction,) = kernel(registers + body).body
    assert isinstance(instruction, Instruction)
    return instruction


def test_a_module_names_version_target_files_and_functions() -> None:
    files = '.file 1 "a.cu"\n.file 2 "b.h"\n'
    module = parse_module(f"{HEAD}{files}.visible .entry k() {{ ret; }}\n.func f() {{ ret; }}\n.extern .func g();\n")
    assert (module.version, module.target) == ("8.0", "sm_80")
    assert module.files == {1: "a.cu", 2: "b.h"}
    assert {name: f.is_kernel for name, f in module.functions.items()} == {"k": True, "f": False}


def test_several_statements_on_a_line_and_comments() -> None:
    function = kernel(".reg .b32 %r<3>; mov.u32 %r1, 1; /* add.u32; */ mov.u32 %r2, %r1; // ret;\n ret;")
    assert [i.opcode for i in function.body if isinstance(i, Instruction)] == ["mov", "mov", "ret"]


def test_labels_stand_where_they_are() -> None:
    function = kernel("$L1: $L2:\n bra.uni $L3;\n$L3: ret;")
    assert [i if isinstance(i, str) else (i.text, i.target) for i in function.body] == [
        "$L1", "$L2", ("bra.uni", "$L3"), "$L3", ("ret", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("%r1", Reg("%r1")),
        ("%tid.x", Reg("%tid.x")),
        ("_", Reg("_")),
        ("-7", Imm(-7)),
        ("0x1F", Imm(31)),
        ("0xFFFFFFFFU", Imm(0xFFFFFFFF)),
        ("017", Imm(15)),
        ("0b101", Imm(5)),
        ("0f3F800000", Imm(0x3F800000, 32)),
        ("0d3FF0000000000000", Imm(0x3FF0000000000000, 64)),
        ("1.5", Imm(0x3FF8000000000000, 64)),
        ("buffer", Symbol("buffer")),
        ("buffer+12", Symbol("buffer", 12)),
        ("{%r1, _, 3}", Vector((Reg("%r1"), Reg("_"), Imm(3)))),
        ("%p1|%p2", Pair(Reg("%p1"), Reg("%p2"))),
        ("[%r1]", Address(Reg("%r1"))),
        ("[%r1+16]", Address(Reg("%r1"), 16)),
        ("[%r1+-16]", Address(Reg("%r1"), -16)),
        ("[%r1-0x10]", Address(Reg("%r1"), -16)),
        ("[buffer+4]", Address(Symbol("buffer"), 4)),
        ("[64]", Address(None, 64)),
    ],
)
def test_operands(text: str, operand: Operand) -> None:
    assert only(f"op.b32 %r0, {text};").operands == (Reg("%r0"), operand)


def test_opcode_words_in_order() -> None:
    instruction = only("ld.volatile.global.v2.u32\t{%r1,%r2},[%r3+8];")
    assert (instruction.opcode, instruction.mods) == ("ld", ("volatile", "global", "v2", "u32"))
    assert instruction.text == "ld.volatile.global.v2.u32"


@pytest.mark.parametrize("space", [" ", "\t", "\n", " \t", "\n\t ", "\t\n"])
def test_any_space_ends_an_opcode(space: str) -> None:
    instruction = only(f"add.u32{space}%r1,{space}%r2,{space}%r3;")
    assert (instruction.text, instruction.operands) == ("add.u32", (Reg("%r1"), Reg("%r2"), Reg("%r3")))


@pytest.mark.parametrize(("text", "negated"), [("@%p1", False), ("@!%p1", True)])
def test_guards(text: str, negated: bool) -> None:
    instruction = only(f"{text} mov.u32 %r1, 0;")
    assert (instruction.guard, instruction.guard_negated) == ("%p1", negated)


def test_a_scope_has_registers_of_its_own() -> None:
    function = kernel(
        ".reg .b32 %r<3>; .reg .b32 t; mov.u32 t, 1;\n{ .reg .f32 t; mov.f32 t, 0f00000000;\n"
        "{ .reg .b64 t; mov.u64 t, 2; }\n .reg .b16 u; mov.u16 u, 3; mov.f32 t, t; }\n{ .reg .b64 u; mov.u64 u, 4; }\n"
        "mov.u32 %r1, t;"
    )
    used = [i.operands[0] for i in function.body if isinstance(i, Instruction)]
    names = [o.name for o in used if isinstance(o, Reg)]
    assert [function.registers[name] for name in names] == ["b32", "f32", "b64", "b16", "f32", "b64", "b32"]
    assert names[0] == "t"
    assert names[1] == names[4]
    assert len(set(names)) == 6


def test_a_guard_of_an_inner_scope() -> None:
    function = kernel("{ .reg .pred p; setp.eq.u32 p, 0, 0; @p trap; }")
    test, trap = (i for i in function.body if isinstance(i, Instruction))
    assert test.operands[0] == Reg(trap.guard)
    assert function.registers[trap.guard] == "pred"


def test_source_lines_and_inlined_code() -> None:
    text = (
        "\t.loc\t1 10 5\n ret;\n\t.loc\t2 77 3, function_name $L__info0, inlined_at 1 12 7\n ret;\n"
        "\t.loc 1 0 0\n ret;\n.loc 3 5 1, function_name x, inlined_at 2 80 3, function_name y, inlined_at 1 20 9\n ret;"
    )
    # code of a header counts for the line that called it; line 0 says nothing new
    assert [i.line for i in kernel(text).body if isinstance(i, Instruction)] == [10, 12, 12, 20]


def lines(text: str, name: str = "k") -> list[tuple[str, int]]:
    """Opcodes and lines of the text, of a kernel in a whole PTX file."""
    return [(i.opcode, i.ptx_line) for i in parse_module(text).functions[name].body if isinstance(i, Instruction)]


BODY = """.reg .b32 %r<3>;
 .loc 1 10 3
 mov.u32 %r1, 1; add.u32 %r1, %r1, 1; // ret;

$L1: { .reg .b32 t; sub.u32 t, %r1, 1; }
$L2:
 /* mul.u32
 %r1; */ and.b32 %r1, %r1, 1; .pragma "nounroll";
 call.uni (retval0),
 f,
 (
 param0
 );
 @!%p1
 bra $L1; ret;
}
"""
LINES = [("mov", 3), ("add", 3), ("sub", 5), ("and", 8), ("call", 13), ("bra", 15), ("ret", 15)]


def test_lines_of_the_text_are_those_on_which_instructions_end() -> None:
    start = f"{HEAD}.visible .entry k() {{ "
    assert lines(start + BODY) == [(opcode, line + 3) for opcode, line in LINES]


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ("// a comment\n//\n\n", 3),
        ("/* over\n\n lines */\n", 3),
        ('.file 1 "a;b.cu"\n.file 2 "b.h", 1, 2\n', 2),
        ("\t.section\t.debug_abbrev\n{\n.b8 1,2\n$L9: .b8 3;\n}\n", 5),
        (".global .align 4 .b8 x[4] = {1,\n 2};\n", 2),
        (".extern .func (.param .b32 r) g\n(\n.param .b32 a\n)\n;\n", 5),
        (".visible .entry first(\n.param .u32 n\n)\n{ ret;\n}\n", 5),
        (".func (.param .b32 r) first() {\n st.param.b32 [r], 0;\n ret; }\n", 3),
    ],
)
def test_lines_of_the_text_do_not_depend_on_what_is_before(before: str, more: int) -> None:
    text = f"{HEAD}{before}.visible .entry k() {{ {BODY}"
    assert lines(text) == [(opcode, line + 3 + more) for opcode, line in LINES]
    # nor on what comes behind
    assert lines(f"{text}\t.section\t.debug_str\n{{\n.b8 1\n}}\n.visible .entry l() {{ ret; }}\n") == lines(text)


def test_parameters_are_placed_by_their_alignment() -> None:
    function = kernel("ret;", ".param .u32 a, .param .u64 b, .param .align 16 .b8 c[20], .param .b8 d, .param .f64 e")
    assert [(p.name, p.offset, p.bytes) for p in function.params] == [
        ("a", 0, 4), ("b", 8, 8), ("c", 16, 20), ("d", 36, 1), ("e", 40, 8),
    ]  # fmt: skip
    assert function.param_bytes == 48


def test_limits_of_a_block() -> None:
    text = f"{HEAD}.visible .entry k()\n.maxntid 16, 4, 2\n.minnctapersm 2\n{{ ret; }}"
    assert parse_module(text).functions["k"].max_threads == 128


@pytest.mark.parametrize(
    ("declaration", "space", "align", "size", "initial"),
    [
        (".shared .align 16 .b8 x[64];", "shared", 16, 64, b""),
        (".extern .shared .align 4 .b8 x[];", "shared", 4, 0, b""),
        (".shared .f32 x[4][8];", "shared", 4, 128, b""),
        (".global .u32 x;", "global", 4, 4, b""),
        (".visible .const .align 4 .b8 x[4] = {1, 2, 255};", "const", 4, 4, b"\1\2\xff"),
        (".visible .global .f32 x[2] = {0f3F800000, 0fBF800000};", "global", 4, 8, b"\0\0\x80\x3f\0\0\x80\xbf"),
        (".const .s16 x[2] = {-1, 0x102};", "const", 2, 4, b"\xff\xff\2\1"),
        (".global .align 8 .u64 x = 258;", "global", 8, 8, b"\2\1\0\0\0\0\0\0"),
    ],
)
def test_variables(declaration: str, space: str, align: int, size: int, initial: bytes) -> None:
    text = f"{HEAD}{declaration}\n.global .u32 next;\n.visible .entry k() {{ ret; }}"
    module = parse_module(text)
    found = module.variables["x"]
    assert (found.space, found.align, found.bytes, found.initial) == (space, align, size, initial)
    assert "next" in module.variables
    assert "k" in module.functions


def test_debugging_sections_are_passed_over() -> None:
    text = (
        f"{HEAD}.visible .entry k() {{ ret; "
        f"}}\n.section .debug_str\n{{\n.b8 1,2;\n$L: .b8 3\n}}\n.visible .entry l() {{ ret; }}"
    )
    assert list(parse_module(text).functions) == ["k", "l"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (".branchtargets $L1;", "branchtargets"),
        ("ld.u32 %r1, [%r1*4];", r"\[%r1\*4\]"),
    ],
)
def test_errors_name_what_is_wrong(body: str, said: str) -> None:
    with pytest.raises(PtxError, match=said):
        kernel(body)


def test_initial_values_may_hold_addresses() -> None:
    text = f"{HEAD}.global .align 8 .u64 x[4] = {{1, other+8, generic(third), -1}};\n"
    x = parse_module(text).variables["x"]
    assert x.initial == (1).to_bytes(8, "little") + bytes(16) + b"\xff" * 8
    assert x.relocations == (Relocation(8, "other", 8), Relocation(16, "third", 0, generic=True))
    with pytest.raises(PtxError, match=r"1\*2"):
        parse_module(f"{HEAD}.global .u64 x = 1*2;\n")


def test_registers_without_a_space() -> None:
    function = kernel(".reg.b16 h,r; mov.b16 h, r;")
    assert function.registers["h"] == function.registers["r"] == "b16"


def test_calls_with_prototypes_and_scopes() -> None:
    body = """.reg .b64 %rd<3>; .param .b32 param0; { .param .b64 param0; st.param.b64 [param0+0], %rd1;
    .param .b32 retval0; P : .callprototype (.param .b32 _) _ (.param .b64 _);
    call (retval0), %rd2, (param0), P; } st.param.b32 [param0], 1;"""
    function = kernel(body)
    assert [v.name for v in function.variables] == ["param0", "param0@1", "retval0@1"]
    assert [p.bytes for p in function.prototypes["P"].params] == [8]
    assert [i.operands[0].base.name for i in function.body if not isinstance(i, str) and i.opcode == "st"] == [
        "param0@1", "param0",
    ]  # fmt: skip
