"""Byte offsets that translated code and the C++ runtime share (runtime/engine.h mirrors them)."""

from __future__ import annotations

# struct Warp
WARP_PC = 0
WARP_MASK = 4
WARP_EXITED = 8
WARP_LIVE = 12
WARP_RPC = 16
WARP_SP = 20
WARP_FUEL = 24
WARP_BARRIER = 28
WARP_INDEX = 32
WARP_BARRIER_THREADS = 36
WARP_VOTES = 40
WARP_FRAME = 44
WARP_SAVED = 48
WARP_TID = 64  # tid.x, tid.y, tid.z: 32 lanes of 4 bytes each
WARP_STACK = 512  # {pc, mask, rpc, frame, saved, ...} x depth; the slots follow
STACK_ENTRY = 32

# struct Context
CTX_PARAMS = 0
CTX_SHARED = 8
CTX_SHARED_BYTES = 16
CTX_CTAID = 24
CTX_NCTAID = 36
CTX_NTID = 48
CTX_COUNTS = 64
CTX_VARIABLES = 72
CTX_DYNAMIC_SHARED_BYTES = 80
CTX_SM = 84
CTX_SMS = 88
CTX_WORKSPACE = 96

# what a translated kernel returns to the scheduler
RETURN_EXIT = 0
RETURN_BARRIER = 1
RETURN_YIELD = 2
RETURN_TRAP = 3

NO_RECONVERGENCE = 0xFFFFFFFF
ASLEEP = -(1 << 20)  # fuel of a warp that sleeps

# generic addresses: windows far outside what a host pointer can be
SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 1 << 57
FUNCTION_WINDOW = 3 << 56
