"""What a kernel did that it must not do, or what a compiler found wrong: where, and by which threads."""

from __future__ import annotations

from dataclasses import dataclass

_REASONS = {
    "uninitialized": "nothing was written there",
    "left-over": "an earlier call wrote it, this one did not",
}


@dataclass(frozen=True)
class Access:
    """One thread's access to memory: ``kind`` is read, write or atomic, ``space`` global, shared or local.

    The buffer is the nearest one of global memory, the block's shared memory or the thread's local memory.  ``offset``
    is relative to its beginning: negative before it, ``buffer_bytes`` or more behind it.  In shared and local memory
    the ``address`` is that offset.
    """

    kind: str
    space: str
    bytes: int
    address: int
    buffer_bytes: int | None = None
    offset: int | None = None
    freed: bool = False

    def __str__(self) -> str:
        verb = "atomic update" if self.kind == "atomic" else self.kind
        space = "" if self.space == "global" else f" of {self.space} memory"
        return f"{verb} of {self.bytes} bytes at {self.address:#x}{space}{self._where()}"

    def _where(self) -> str:
        if self.buffer_bytes is None or self.offset is None:
            return ""
        if self.space != "global":
            outside = not 0 <= self.offset <= self.buffer_bytes - self.bytes
            owner = "the block" if self.space == "shared" else "a thread"
            return f"; {owner} has {self.buffer_bytes} bytes" if outside else ""
        buffer = f"a {'freed ' if self.freed else ''}{self.buffer_bytes}-byte buffer"
        if self.offset < 0:
            return f", {-self.offset} bytes before {buffer}"
        if self.offset < self.buffer_bytes:
            return f", {self.offset} bytes into {buffer}"
        return f", {self.offset - self.buffer_bytes} bytes after the end of {buffer}"


@dataclass(frozen=True)
class OtherAccess:
    """The earlier access of a race, as far as it is known: ``kind`` is read, write or copy (an asynchronous one).

    ``missing`` is what would have ordered the two: a barrier, a fence, or a wait for the copy.  ``line`` is 0 where it
    is not known.
    """

    kind: str
    missing: str
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    warp: int | None = None
    line: int = 0

    def __str__(self) -> str:
        at = f" at line {self.line}" if self.line else ""
        if self.kind == "copy":
            by = f" by thread {self.thread}" if self.thread is not None else ""
            return f"an asynchronous copy to it{by}{at} was not waited for"
        verb = "wrote" if self.kind == "write" else "read"
        if self.missing == "fence":
            who = f"block {self.block}" if self.block is not None else "another block"
            return f"{who} {verb} it{at} in this launch, with no fence in between"
        who = f"warp {self.warp}" if self.warp is not None else "another warp"
        return f"{who} {verb} it{at} since the last barrier"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: ``text`` says what, the other fields say where, and `str` gives both.

    ``kind`` is a slug such as ``out-of-bounds``, ``shared-race`` or ``compile-error``.  ``kernel`` is the name in the
    source; ``line`` is 0 where it is not known.  ``threads`` is how many threads did the same in this launch, as far as
    it ran; ``block`` and ``thread`` name the first.  ``other`` is the second access of a race.
    """

    kind: str
    text: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    threads: int = 0
    access: Access | None = None
    other: OtherAccess | None = None

    def __str__(self) -> str:
        if not self.kernel and self.file and self.line:
            return f"{self.file}:{self.line}: {self.text}"
        what = self.text if self.access is None else f"{self.kind} {self.text}"
        return ", ".join(part for part in (what, self.place) if part)

    @property
    def place(self) -> str:
        """Kernel, line, block and thread, as far as they are known."""
        more = self.threads - 1
        parts = (
            f"kernel {self.kernel}" if self.kernel else "",
            f"line {self.line}{f' of {self.file}' if self.file else ''}" if self.line else "",
            f"block {self.block}" if self.block is not None else "",
            f"thread {self.thread}" if self.thread is not None else "",
        )
        others = f" and {more} more thread{'s' * (more > 1)}" if more > 0 else ""
        return ", ".join(part for part in parts if part) + others


def access_text(kind: str, access: Access, other: OtherAccess | None, remark: str = "") -> str:
    """The text of a finding about an access."""
    reason = remark or (str(other) if other is not None else _REASONS.get(kind, ""))
    return f"{access}; {reason}" if reason else str(access)
