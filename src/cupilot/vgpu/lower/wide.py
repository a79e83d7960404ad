"""Integer products of twice the width."""

from __future__ import annotations

from cupilot.vgpu.lower.lanes import Lanes

WIDER = {"i16": "i32", "i32": "i64", "i64": "i128"}


def product(o: Lanes, a: str, b: str, kind: str, *, signed: bool, high: bool) -> str:
    """The low or high half of a product."""
    if not high:
        return o.op("mul", kind, a, b)
    wide = WIDER[kind]
    full = o.op("mul", wide, *(o.extend(v, kind, wide, signed) for v in (a, b)))
    bits = int(kind[1:])
    shift = f"splat ({wide} {bits})" if o.vector else str(bits)
    return o.convert("trunc", o.op("lshr", wide, full, shift), wide, kind)
