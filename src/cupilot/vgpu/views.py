"""The runtime's records, callbacks and functions as ctypes sees them (runtime/cudart_control.cpp mirrors them)."""

from __future__ import annotations

import ctypes

TRANSLATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint32)
RESIDENT = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64)
ELAPSED = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
LOCATE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p)
REGISTERS = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p)
RARE_BLOCKS = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32), ctypes.c_void_p,
    ctypes.c_uint64,
)  # fmt: skip


class DeviceView(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 64),
        *((n, ctypes.c_int32) for n in ("major", "minor", "sms", "clock_khz", "threads_per_block", "threads_per_sm",
                                        "blocks_per_sm", "registers_per_sm")),
        *((n, ctypes.c_uint64) for n in ("shared_per_block", "shared_per_block_optin", "shared_per_sm", "l1_bytes",
                                         "l2_bytes", "dram_bytes", "dram_bytes_per_s")),
    ]  # fmt: skip


class TrafficView(ctypes.Structure):
    _fields_ = [
        (n, ctypes.c_uint64) for n in ("l2_read", "l2_write", "miss_read", "miss_write", "unique_read", "unique_write")
    ]


class LaunchView(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared", ctypes.c_uint32),
        ("resident", ctypes.c_uint32),
        ("id", ctypes.c_uint64),
        ("blocks_run", ctypes.c_uint64),
        ("heaviest", ctypes.c_uint64),
        ("incomplete", ctypes.c_uint64),
        ("counts", ctypes.POINTER(ctypes.c_uint64)),
        ("basic_blocks", ctypes.c_uint64),
        ("sites", ctypes.c_uint64),
        ("allocations", ctypes.c_uint64),
        ("critical", ctypes.POINTER(ctypes.c_uint64)),
        ("scale", ctypes.c_double),
        ("chain_cycles", ctypes.c_uint64),
        ("chain_hops", ctypes.c_uint64),
    ]


class CostView(ctypes.Structure):  # engine.h: BlockCost
    _fields_ = [
        *((n, ctypes.c_uint64) for n in ("block", "blocks", "work", "most_work", "path", "longest_path",
                                         "wavefronts", "most_wavefronts", "sectors", "most_sectors", "stored_bytes")),
        ("stands_for", ctypes.c_double),
    ]  # fmt: skip


def declare(lib: ctypes.CDLL) -> None:
    """What the runtime's functions take and give, where it is not an int."""
    for name in ("vgc_launches", "vgc_findings", "vgc_operations", "vgc_image", "vgc_variable", "vgc_map_file",
                 "vgc_stored_runs", "vgc_operation", "vgc_launch_traffic",
                 "vgc_launch_extents", "vgc_launch_costs", "vgc_allocate"):  # fmt: skip
        getattr(lib, name).restype = ctypes.c_uint64
    lib.vgc_settings.argtypes = [ctypes.c_uint64, ctypes.c_double, ctypes.c_uint32]
    u64 = ctypes.c_uint64
    lib.vgc_allocate.argtypes = [u64]
    lib.vgc_map_file.argtypes = [ctypes.c_char_p, u64]
    lib.vgc_upload.argtypes = lib.vgc_first.argtypes = [u64, ctypes.c_void_p, u64]
    lib.vgc_order.argtypes = lib.vgc_sample_seed.argtypes = lib.vgc_handover.argtypes = [u64]
    lib.vgc_stored.argtypes = [u64]
    lib.vgc_store_launches.argtypes = [u64]
    lib.vgc_stored_runs.argtypes = [u64, u64, u64, u64, ctypes.c_void_p]
    lib.vgc_launch_traffic.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
    lib.vgc_launch_place.argtypes = [u64, u64]
    lib.vgc_launch_extents.argtypes = [u64, u64, u64, ctypes.c_void_p]
    lib.vgc_launch_costs.argtypes = [u64, u64, ctypes.c_void_p]
    lib.vgc_launch.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    lib.vgc_finding.argtypes, lib.vgc_finding.restype = [u64], ctypes.c_char_p
    lib.vgc_operation.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    lib.vgc_variable.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p]
    lib.vgc_host_seconds.restype = ctypes.c_double
    lib.cudaGetErrorString.restype = ctypes.c_char_p
    lib.cudaFree.argtypes = [ctypes.c_void_p]
