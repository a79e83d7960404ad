"""What a kernel can reach: the device functions it calls, and which of them may call themselves again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cupilot.vgpu import layout
from cupilot.vgpu.ptx.declare import PtxError
from cupilot.vgpu.ptx.flow import is_call
from cupilot.vgpu.ptx.syntax import Function, Instruction, Module, Operand, Symbol, Vector


def function_value(module: Module, name: str) -> int:
    """What a pointer to a device function holds: no memory, only a number to call by."""
    return layout.FUNCTION_WINDOW | (list(module.functions).index(name) + 1) << 4


def called_name(instruction: Instruction) -> str:
    """The function a direct call names; nothing for a call through a register."""
    target = call_parts(instruction)[1]
    return target.name if isinstance(target, Symbol) else ""


def call_parts(instruction: Instruction) -> tuple[tuple[str, ...], Operand, tuple[str, ...], str]:
    """Result variables, target, argument variables and prototype of a call."""

    def names(operand: Operand) -> tuple[str, ...]:
        return tuple(i.name for i in operand.items if isinstance(i, Symbol)) if isinstance(operand, Vector) else ()

    operands = list(instruction.operands)
    results = names(operands.pop(0)) if operands and isinstance(operands[0], Vector) else ()
    target = operands.pop(0)
    arguments = names(operands.pop(0)) if operands and isinstance(operands[0], Vector) else ()
    prototype = operands[0].name if operands and isinstance(operands[0], Symbol) else ""
    return results, target, arguments, prototype


@dataclass(frozen=True)
class Program:
    """A kernel and the functions that are emitted with it, the kernel first."""

    functions: tuple[Function, ...]
    pointed_at: tuple[str, ...]  # may be called through a pointer
    edges: dict[str, frozenset[str]]

    def reenters(self, caller: str, callee: str) -> bool:
        """Whether the caller may run again before a call of it returns."""
        targets = [callee] if callee else self.pointed_at
        return any(caller == target or caller in self._reached(target) for target in targets)

    def recursive(self, name: str) -> bool:
        return name in self._reached(name)

    def _reached(self, name: str) -> set[str]:
        seen: set[str] = set()
        work = list(self.edges.get(name, ()))
        while work:
            current = work.pop()
            if current not in seen:
                seen.add(current)
                work.extend(self.edges.get(current, ()))
        return seen


def program_of(module: Module, kernel: Function) -> Program:
    """Follow calls from a kernel; a call through a pointer may reach any function whose address is taken."""
    pointed_at = tuple(name for name in module.functions if name in _pointed_at(module))
    edges: dict[str, frozenset[str]] = {}
    work, order = [kernel.name], []
    while work:
        name = work.pop(0)
        if name in edges:
            continue
        function = module.functions[name]
        order.append(function)
        targets: set[str] = set()
        for instruction in _calls(function):
            called = called_name(instruction)
            if called and called not in module.functions:
                what = f"unsupported on the virtual GPU: a call of {called}, which the module does not define"
                raise PtxError(what, kernel.name, instruction.line)
            targets.update([called] if called else pointed_at)
        edges[name] = frozenset(targets)
        work.extend(sorted(targets))
    return Program(tuple(order), pointed_at, edges)


def _calls(function: Function) -> Iterable[Instruction]:
    return (i for i in function.body if not isinstance(i, str) and is_call(i))


def _pointed_at(module: Module) -> set[str]:
    names = {r.symbol for v in module.variables.values() for r in v.relocations}
    for function in module.functions.values():
        for item in function.body:
            if not isinstance(item, str) and item.opcode != "call":
                names.update(operand.name for operand in item.operands if isinstance(operand, Symbol))
    return {name for name in names if name in module.functions and not module.functions[name].is_kernel}
