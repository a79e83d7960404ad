"""Opcodes that exist for integers and floating-point numbers: the type selects the lowering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower import half
from cupilot.vgpu.lower.families import floating, integer
from cupilot.vgpu.lower.lanes import FLOATS, HALVES
from cupilot.vgpu.lower.pipes import int_or_fp64
from cupilot.vgpu.lower.table import Lowering, Opcode
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def _no_such(e: Emitter, i: Instruction) -> None:
    raise e.unsupported("this type")


def _by_type(
    of_floats: Lowering = _no_such, of_halves: Lowering = _no_such, of_integers: Lowering = _no_such
) -> Lowering:
    def lower(e: Emitter, i: Instruction) -> None:
        if any(m in HALVES for m in i.mods):
            of_halves(e, i)
        elif any(m in FLOATS for m in i.mods):
            of_floats(e, i)
        else:
            of_integers(e, i)

    return lower


ORDER = 10
OPCODES = {
    "add": Opcode(
        _by_type(floating.add_float, half.add_half, integer.add_integer),
        flop=1,
        forms=(
            "add.{u16,s16,u32,s32,u64,s64,u16x2,s16x2}",
            "add.sat.s32",
            "add.cc.{u32,s32,u64,s64}",
            "add{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
            "add{,.rn,.rz,.rm,.rp}.f64",
            "add{,.rn}{,.ftz}{,.sat}.{f16,f16x2}",
            "add{,.rn}.{bf16,bf16x2}",
        ),
        operands="%rd1, %rd2, %rd3",
        missing=("add.rn.f32x2", "add.f32.f16"),
    ),
    "sub": Opcode(
        _by_type(floating.add_float, half.add_half, integer.add_integer),
        flop=1,
        forms=(
            "sub.{u16,s16,u32,s32,u64,s64}",
            "sub.sat.s32",
            "sub.cc.{u32,s32,u64,s64}",
            "sub{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
            "sub{,.rn,.rz,.rm,.rp}.f64",
            "sub{,.rn}{,.ftz}{,.sat}.{f16,f16x2}",
            "sub{,.rn}.{bf16,bf16x2}",
        ),
        operands="%rd1, %rd2, %rd3",
        missing=("sub.rn.f32x2", "sub.f32.f16"),
    ),
    "mul": Opcode(
        _by_type(floating.mul_float, half.mul_half, integer.multiply),
        flop=1,
        forms=(
            "mul.{lo,hi}.{u16,s16,u32,s32,u64,s64}",
            "mul.wide.{u16,s16,u32,s32}",
            "mul{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
            "mul{,.rn,.rz,.rm,.rp}.f64",
            "mul{,.rn}{,.ftz}{,.sat}.{f16,f16x2}",
            "mul{,.rn}.{bf16,bf16x2}",
        ),
        operands="%rd1, %rd2, %rd3",
        missing=("mul.rn.f32x2",),
    ),
    "mad": Opcode(
        _by_type(floating.fma_float, _no_such, integer.multiply),
        flop=2,
        forms=(
            "mad.{lo,hi}.{u16,s16,u32,s32,u64,s64}",
            "mad.wide.{u16,s16,u32,s32}",
            "mad.hi.sat.s32",
            "mad.{lo,hi}.cc.{u32,s32,u64,s64}",
            "mad{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
            "mad{.rn,.rz,.rm,.rp}.f64",
        ),
        operands="%rd1, %rd2, %rd3, %rd4",
    ),
    "fma": Opcode(
        _by_type(floating.fma_float, half.fma_half),
        flop=2,
        forms=(
            "fma{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
            "fma{.rn,.rz,.rm,.rp}.f64",
            "fma.rn{,.ftz}{,.sat,.relu}.{f16,f16x2}",
            "fma.rn{,.relu}.{bf16,bf16x2}",
        ),
        operands="%rd1, %rd2, %rd3, %rd4",
        missing=("fma.rn.f32x2", "fma.rn.oob.f16", "fma.rn.f32.f16"),
    ),
    "div": Opcode(
        _by_type(floating.div_float, _no_such, integer.divide),
        flop=1,
        forms=(
            "div.{u16,s16,u32,s32,u64,s64}",
            "div{.approx,.full,.rn,.rz,.rm,.rp}{,.ftz}.f32",
            "div{.rn,.rz,.rm,.rp}.f64",
        ),
        operands="%rd1, %rd2, %rd3",
    ),
    **{
        name: Opcode(
            _by_type(floating.minmax_float, half.minmax_half, integer.minmax_integer),
            forms=(
                name + "{,.relu}.{s16x2,s32}",
                name + ".{u16,s16,u32,u64,s64,u16x2}",
                name + "{,.ftz}{,.NaN}{,.xorsign.abs}.f32",
                name + ".f64",
                name + "{,.ftz}{,.NaN}{,.xorsign.abs}.{f16,f16x2}",
                name + "{,.NaN}{,.xorsign.abs}.{bf16,bf16x2}",
                name + "{,.ftz}{,.NaN}.f32 %f1, %f2, %f3, %f4",
            ),
            operands="%rd1, %rd2, %rd3",
        )
        for name in ("min", "max")
    },
    **{
        name: Opcode(
            _by_type(floating.sign_float, half.sign_half, integer.sign_integer),
            pipe=int_or_fp64,
            forms=(name + ".{s16,s32,s64}", name + "{,.ftz}.{f32,f16,f16x2}", name + ".{f64,bf16,bf16x2}"),
            operands="%rd1, %rd2",
        )
        for name in ("neg", "abs")
    },
    "ex2": Opcode(
        _by_type(floating.special_float, half.special_half),
        kind="special",
        flop=1,
        forms=("ex2.approx{,.ftz}.f32", "ex2.approx.{f16,f16x2}", "ex2.approx.ftz.{bf16,bf16x2}"),
        operands="%rd1, %rd2",
    ),
    "tanh": Opcode(
        _by_type(floating.special_float, half.special_half),
        kind="special",
        flop=1,
        forms=("tanh.approx.{f32,f16,f16x2,bf16,bf16x2}",),
        operands="%rd1, %rd2",
    ),
}
