"""Control and data flow of one PTX function: basic blocks, post-dominators, liveness, divergence.

The analyses answer three questions of the code generator:

* which registers hold one value for the whole warp (*uniform*: kept as scalars),
* where lanes that took different ways meet again (immediate post-dominators; see `Flow.onward` for exits),
* which registers need storage between blocks, and which of them must be written under the mask.

A branch that may split a warp *protects* the registers that the waiting lanes will still read:
those live where the lanes meet again and, when both ways have code of their own, those live at the
start of either way.  A register that is protected by a branch and defined inside its region is
divergent and is written under the mask; every other register is written whole, and shares its slot
with no protected one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Address, Function, Imm, Instruction, Not, Operand, Pair, Reg, Symbol, Vector

EXIT = -1
# provided to device code by the CUDA runtime: bytes of their results and parameters
RUNTIME_FUNCTIONS = {
    "vprintf": ((4,), (8, 8)), "__assertfail": ((), (8, 8, 4, 8, 8)), "malloc": ((8,), (8,)), "free": ((), (8,)),
}  # fmt: skip
TERMINATORS = ("bra", "ret", "exit", "trap")


def is_barrier(instruction: Instruction) -> bool:
    """Whether a warp waits here for others of its block (``bar.warp.sync`` is within a warp)."""
    return instruction.opcode in ("bar", "barrier") and not any(map(instruction.has, ("warp", "arrive", "result")))


def is_call(instruction: Instruction) -> bool:
    """Whether another function of the module runs here; the runtime's own functions do not interrupt a block."""
    return (
        instruction.opcode == "call"
        and not instruction.has("result")
        and not any(
            isinstance(operand, Symbol) and operand.name in RUNTIME_FUNCTIONS for operand in instruction.operands
        )
    )


@dataclass
class Block:
    """Straight-line code; ``successors`` are block numbers, the taken branch first."""

    index: int
    code: list[Instruction] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    ends_in_barrier: bool = False
    ends_in_call: bool = False


@dataclass(frozen=True)
class Access:
    """Registers an instruction writes and reads."""

    writes: tuple[str, ...]
    reads: tuple[str, ...]


def registers(operand: Operand) -> Iterable[str]:
    """All registers that an operand names."""
    if isinstance(operand, Reg):
        yield operand.name
    elif isinstance(operand, Not):
        yield operand.register.name
    elif isinstance(operand, Address) and isinstance(operand.base, Reg):
        yield operand.base.name
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from registers(item)
    elif isinstance(operand, Pair):
        yield from registers(operand.first)
        yield from registers(operand.second)


def split_blocks(function: Function) -> list[Block]:
    """Cut the body at labels, after branches, and around barriers and calls.

    A barrier's block names its line; a call stands alone, because lanes that call something else come back to it.
    """
    blocks = [Block(0)]
    labels: dict[str, int] = {}
    closed = False
    for item in _without_guarded_traps(_without_tables(function)):
        if isinstance(item, str):
            if blocks[-1].code or closed:
                blocks.append(Block(len(blocks)))
            labels[item] = blocks[-1].index
            closed = False
            continue
        if closed or ((is_barrier(item) or is_call(item)) and blocks[-1].code):
            blocks.append(Block(len(blocks)))
        blocks[-1].code.append(item)
        closed = item.opcode in TERMINATORS or is_barrier(item)
        if is_call(item) or (is_barrier(item) and item.has("red")):
            # the result is there when the warp goes on
            blocks.append(Block(len(blocks)))
            operands = item.operands if item.opcode == "call" else item.operands[:2]
            blocks[-1].code.append(replace(item, mods=(*item.mods, "result"), operands=operands))
            closed = item.opcode == "call"
    if closed and blocks[-1].code and (is_barrier(blocks[-1].code[-1]) or blocks[-1].code[-1].opcode == "call"):
        blocks.append(Block(len(blocks)))
    _connect(function, blocks, labels)
    return blocks


def _without_guarded_traps(body: Iterable[Instruction | str]) -> Iterable[Instruction | str]:
    """``@p trap`` as a branch around a trap."""
    for number, item in enumerate(body):
        if isinstance(item, str) or item.opcode != "trap" or not item.guard:
            yield item
            continue
        label = f"after trap {number}"
        yield replace(item, opcode="bra", mods=(), guard_negated=not item.guard_negated, target=label)
        yield replace(item, guard="", guard_negated=False)
        yield label


def _without_tables(function: Function) -> Iterable[Instruction | str]:
    """``brx.idx`` as a chain of comparisons: few lanes of a warp agree on a long table anyway."""
    for item in function.body:
        if isinstance(item, str) or item.opcode != "brx":
            yield item
            continue
        function.registers.setdefault("%brx", "pred")
        for number, label in enumerate(function.branch_targets.get(item.target, ())):
            compared = (Reg("%brx"), item.operands[0], Imm(number))
            yield replace(item, opcode="setp", mods=("eq", "u32"), operands=compared, target="")
            yield replace(item, opcode="bra", mods=(), operands=(), guard="%brx", guard_negated=False, target=label)


def _connect(function: Function, blocks: list[Block], labels: dict[str, int]) -> None:
    for block in blocks:
        following = block.index + 1 if block.index + 1 < len(blocks) else EXIT
        last = block.code[-1] if block.code else None
        if last is None or last.opcode not in TERMINATORS:
            block.successors = [following]
            block.ends_in_barrier = last is not None and is_barrier(last)
            block.ends_in_call = last is not None and is_call(last)
        elif last.opcode == "bra":
            if last.target not in labels:
                raise PtxError(f"the label {last.target} in {function.name} does not exist")
            target = labels[last.target]
            block.successors = [target, following] if last.guard and target != following else [target]
        else:
            block.successors = [EXIT, following] if last.guard else [EXIT]
    # nvcc writes "return" as a branch to one last "ret": lanes that go there are done, and nobody waits for them
    for block in blocks:
        if not block.ends_in_barrier and not block.ends_in_call:
            block.successors = [
                EXIT if s != EXIT and _only_returns(blocks[s], function) else s for s in block.successors
            ]


def _only_returns(block: Block, function: Function) -> bool:
    ends = ("ret", "exit") if function.is_kernel else ("ret",)
    return len(block.code) == 1 and block.code[0].opcode in ends and not block.code[0].guard


def may_spin(blocks: list[Block]) -> bool:
    """Whether a loop may wait for what another lane of the same warp does: it looks at memory that others change."""
    for block in blocks:
        looks = any(
            (i.opcode == "atom" and (i.has("cas") or i.has("exch")))
            or (i.opcode == "ld" and any(map(i.has, ("volatile", "relaxed", "acquire"))))
            for i in block.code
        )
        if looks and block.index in Flow.reach(block.index, lambda b: blocks[b].successors, first=False):
            return True
    return False


class Flow:
    """The analyses of one function; `access` and `is_source` describe the opcodes.

    ``access(instruction)`` gives what it writes and reads; ``varies(instruction)`` is true when the
    result may differ between lanes even if all operands are uniform.  A reentrant function may run for some
    lanes while others wait inside it: no register of it is uniform, and all are written under the mask.
    """

    def __init__(
        self,
        function: Function,
        access: Callable[[Instruction], Access],
        varies: Callable[[Instruction], bool],
        *,
        reentrant: bool = False,
    ) -> None:
        self.function = function
        self.reentrant = reentrant
        self.blocks = split_blocks(function)
        self._access = {id(i): access(i) for b in self.blocks for i in b.code}
        self._varies = varies
        names = {name for a in self._access.values() for name in (*a.writes, *a.reads)}
        names |= {i.guard for b in self.blocks for i in b.code}
        self.names = sorted(name for name in names if name in function.registers)
        self.bit = {name: 1 << i for i, name in enumerate(self.names)}
        self.live_in, self.live_out = self._liveness()
        self.onward = self._onward()
        self.post_dominator = self._post_dominators()
        self.defined = [self._union(a for i in b.code for a in self.access(i).writes) for b in self.blocks]
        self._regions: dict[int, int] = {}
        self.divergent, self.splitting = self._divergence()

    def access(self, instruction: Instruction) -> Access:
        return self._access[id(instruction)]

    def uniform(self, name: str) -> bool:
        return name in self.bit and not self.divergent & self.bit[name]

    def members(self, bits: int) -> list[str]:
        found = []
        while bits:
            low = bits & -bits
            found.append(self.names[low.bit_length() - 1])
            bits ^= low
        return found

    def _union(self, names: Iterable[str]) -> int:
        bits = 0
        for name in names:
            bits |= self.bit.get(name, 0)
        return bits

    # --- liveness --------------------------------------------------------------------------

    def _liveness(self) -> tuple[list[int], list[int]]:
        used, killed = [], []
        for block in self.blocks:
            upward = dead = 0
            for instruction in block.code:
                access = self._access[id(instruction)]
                reads = self._union(access.reads) | self._union([instruction.guard])
                writes = self._union(access.writes)
                if instruction.guard:
                    reads |= writes  # a guarded write keeps the old value in other lanes
                upward |= reads & ~dead
                if not instruction.guard:
                    dead |= writes
            used.append(upward)
            killed.append(dead)
        live_in, live_out = [0] * len(self.blocks), [0] * len(self.blocks)
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                i = block.index
                out = 0
                for successor in block.successors:
                    if successor != EXIT:
                        out |= live_in[successor]
                new = used[i] | (out & ~killed[i])
                if new != live_in[i] or out != live_out[i]:
                    live_in[i], live_out[i], changed = new, out, True
        return live_in, live_out

    # --- post-dominators -------------------------------------------------------------------

    def _onward(self) -> list[list[int]]:
        """Successors without early ends: ways that only lead out of the kernel while others go on.

        Lanes that leave early are not waited for, so these ways do not count for where the others
        meet; they run first, and a barrier behind the branch is reached by all that are left.
        """
        onward = [list(dict.fromkeys(block.successors)) for block in self.blocks]
        sources: list[set[int]] = [set() for _ in self.blocks]
        for block in self.blocks:
            for successor in block.successors:
                if successor != EXIT:
                    sources[successor].add(block.index)
        candidates = []
        for block in self.blocks:
            for way in onward[block.index] if len(onward[block.index]) == 2 else ():
                inside = self._reach(way, self._successors, set())
                closed = all(sources[i] <= inside | {block.index} for i in inside)
                if closed and block.index not in inside:
                    waits = any(self.blocks[i].ends_in_barrier for i in inside)
                    candidates.append((waits, len(inside), block.index, way, inside))
        for _, _, index, way, inside in sorted(candidates, key=lambda c: c[:4]):
            others = [s for s in onward[index] if s != way]
            # what is left must still end, or the way is not early: it is how a loop ends
            if others and EXIT in self._reach(others[0], onward.__getitem__, inside | {index}, ends=True):
                onward[index] = others
        return onward

    def _successors(self, index: int) -> list[int]:
        return self.blocks[index].successors

    @staticmethod
    def reach(start: int, onward: Callable[[int], list[int]], *, first: bool = True) -> set[int]:
        """Blocks that can be reached from one; without ``first``, itself only if there is a way back."""
        if first:
            return Flow._reach(start, onward, set())
        return {b for s in onward(start) if s != EXIT for b in Flow._reach(s, onward, set())}

    @staticmethod
    def _reach(start: int, onward: Callable[[int], list[int]], without: set[int], *, ends: bool = False) -> set[int]:
        """Blocks that can be reached; with ``ends``, EXIT is among them."""
        seen: set[int] = set()
        work = [start]
        while work:
            block = work.pop()
            if block in seen or block in without or (block == EXIT and not ends):
                continue
            seen.add(block)
            if block != EXIT:
                work.extend(onward(block))
        return seen

    def _post_dominators(self) -> list[int]:
        """Immediate post-dominator of each block; EXIT where only the end of the thread is common."""
        count = len(self.blocks)
        everything = (1 << (count + 1)) - 1
        end = 1 << count
        sets = [everything] * count
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                meet = everything
                for successor in self.onward[block.index]:
                    meet &= end if successor == EXIT else sets[successor]
                new = meet | (1 << block.index)
                if new != sets[block.index]:
                    sets[block.index], changed = new, True
        result = []
        for block in self.blocks:
            strict = sets[block.index] & ~(1 << block.index) & ~end
            # the nearest one is post-dominated by all the others
            nearest = EXIT
            while strict:
                low = strict & -strict
                candidate = low.bit_length() - 1
                strict ^= low
                others = sets[block.index] & ~(1 << block.index)
                if sets[candidate] & others == others:
                    nearest = candidate
                    break
            result.append(nearest)
        return result

    def region(self, index: int) -> int:
        """Blocks between a branch and the place where its ways meet again, as a bit set."""
        if index not in self._regions:
            stop = self.post_dominator[index]
            seen, work = 0, [s for s in self.blocks[index].successors if s not in (EXIT, stop)]
            while work:
                block = work.pop()
                if seen >> block & 1:
                    continue
                seen |= 1 << block
                work.extend(s for s in self.blocks[block].successors if s not in (EXIT, stop))
            self._regions[index] = seen
        return self._regions[index]

    def protected(self, index: int) -> int:
        """Registers that lanes waiting for this branch's other way, or behind it, still need."""
        stop = self.post_dominator[index]
        bits = self.live_in[stop] if stop != EXIT else 0
        ways = [s for s in self.blocks[index].successors if s not in (EXIT, stop)]
        if len(ways) > 1:
            for way in ways:
                bits |= self.live_in[way]
        return bits

    def defined_in(self, region: int) -> int:
        bits = 0
        for index, defined in enumerate(self.defined):
            if region >> index & 1:
                bits |= defined
        return bits

    # --- divergence ------------------------------------------------------------------------

    def _divergence(self) -> tuple[int, set[int]]:
        """Divergent registers, and the blocks whose branch may split the warp."""
        divergent, splitting = (1 << len(self.names)) - 1 if self.reentrant else 0, set()
        changed = True
        while changed:
            changed = False
            for block in self.blocks:
                for instruction in block.code:
                    access = self._access[id(instruction)]
                    reads = self._union(access.reads) | self._union([instruction.guard])
                    if self._varies(instruction) or reads & divergent:
                        new = divergent | self._union(access.writes)
                        if new != divergent:
                            divergent, changed = new, True
                if block.index not in splitting and self._splits(block, divergent):
                    splitting.add(block.index)
                    changed = True
            for index in splitting:
                new = divergent | (self.protected(index) & self.defined_in(self.region(index)))
                if new != divergent:
                    divergent, changed = new, True
        return divergent, splitting

    def _splits(self, block: Block, divergent: int) -> bool:
        last = block.code[-1] if block.code else None
        return bool(
            last is not None
            and last.opcode in TERMINATORS
            and len(block.successors) > 1
            and self._union([last.guard]) & divergent
        )

    def masked(self) -> list[int]:
        """For each block, the registers it must write under the mask."""
        if self.reentrant:
            return list(self.defined)
        result = [0] * len(self.blocks)
        for index in self.splitting:
            protected, region = self.protected(index), self.region(index)
            for block in self.blocks:
                if region >> block.index & 1:
                    result[block.index] |= protected & self.defined[block.index]
        return result

    def conflicts(self) -> dict[str, int]:
        """Registers that may not share a slot."""
        result = dict.fromkeys(self.names, 0)
        groups = [*self.live_in, *self.live_out]
        for group in groups:
            for name in self.members(group):
                result[name] |= group
        for index in self.splitting:
            protected, inner = self.protected(index), self.defined_in(self.region(index))
            for name in self.members(inner):
                result[name] |= protected
            for name in self.members(protected):
                result[name] |= inner
        return result
