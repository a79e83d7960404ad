"""Memory that host code and kernels both see, and what kernels do beside computing: counted, and told apart by call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ptxkit import Bench

from cupilot.contracts import Built, Device
from cupilot.records import Kernel, Profile
from cupilot.toolchain.abi import Library, TensorValue

COUNT = 1000
BYTES = -(-4 * COUNT // 32) * 32
PINNED, MANAGED = 0, 1
WRITES, HOST_CHANGES, READS = 1, 2, 4


class Host:
    """The wrappers in this process, called as the worker calls them."""

    def __init__(self, bench: Bench, built: Built) -> None:
        self.machine = bench.machine
        self.library = Library(built.library)
        self.x = self.machine.upload(np.arange(COUNT, dtype=np.float32))

    def call(self, entry: str, *numbers: int) -> Profile:
        self.machine.begin(None, 20.0)
        self.library.call(entry, [TensorValue(self.x, (COUNT,), (1,), "float32"), *numbers])
        self.machine.end()
        assert self.machine.last_error() == ""
        return self.machine.profile()

    @property
    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.machine.findings()]


@pytest.fixture(scope="module")
def host(bench: Bench, device: Device) -> Iterator[Host]:
    built = device.build(Kernel(Path(__file__).with_name("host_memory.cu").read_text(), "called_back"))
    assert isinstance(built, Built), built
    host = Host(bench, built)
    yield host
    host.library.release()
    host.machine.begin(None, 20.0)


def test_what_kernels_write_to_pinned_memory_goes_to_the_host(host: Host) -> None:
    profile = host.call("through", PINNED, WRITES)
    assert profile.total("to_host_bytes") == BYTES
    assert profile.total("host_write_bytes") == BYTES
    assert profile.total("from_host_bytes") == 0


def test_what_the_host_wrote_comes_from_the_host(host: Host) -> None:
    profile = host.call("through", PINNED, WRITES | HOST_CHANGES | READS)
    assert host.kinds == []
    assert profile.total("from_host_bytes") == 96 * 4
    assert profile.total("host_read_bytes") == BYTES


@pytest.mark.parametrize("memory", [PINNED, MANAGED])
def test_what_this_calls_kernels_wrote_does_not(host: Host, memory: int) -> None:
    profile = host.call("through", memory, WRITES | READS)
    assert profile.total("from_host_bytes") == 0
    assert host.kinds == []


@pytest.mark.parametrize("memory", [PINNED, MANAGED])
def test_what_an_earlier_call_left_may_not_be_read(host: Host, memory: int) -> None:
    host.call("through", memory, WRITES)
    host.call("through", memory, READS)
    assert host.kinds == ["left-over"]
    host.call("through", memory, WRITES | READS)
    assert host.kinds == []


def test_managed_pages_come_once_in_a_call_and_again_after_the_host_wrote(host: Host) -> None:
    size = 4 * COUNT
    for _ in range(2):
        first, second = host.call("through", MANAGED, WRITES | READS).launches
        assert (first.counter("migrated_bytes"), second.counter("migrated_bytes")) == (size, 0)
    first, second = host.call("through", MANAGED, WRITES | HOST_CHANGES | READS).launches
    assert (first.counter("migrated_bytes"), second.counter("migrated_bytes")) == (size, size)
    assert second.counter("from_host_bytes") == 96 * 4
    assert second.counter("host_read_bytes") == 0


def test_waits_and_host_functions_are_put_down(host: Host) -> None:
    assert [o.kind for o in host.call("through", PINNED, WRITES).operations] == ["synchronize"]
    assert [o.kind for o in host.call("called_back").operations] == ["host-function"]  # the last wait delays nothing


@pytest.mark.parametrize(("step", "passes", "lines"), [(0, 1, 1), (1, 32, 2), (16, 32, 32), (64, 16, 16)])
def test_each_address_in_constant_memory_is_a_pass(host: Host, step: int, passes: int, lines: int) -> None:
    (launch,) = host.call("asides", 0, step).launches
    assert launch.counter("const_requests") == 1
    assert launch.counter("const_passes") == passes
    assert launch.counter("const_misses") == lines


def test_prints_heap_sleep_and_clocks_are_counted(host: Host) -> None:
    (launch,) = host.call("asides", 1, 0).launches
    assert launch.counter("prints") == 3
    assert launch.counter("heap_calls") == 4
    assert launch.counter("sleep_ns") == 2 * 500
    assert launch.counter("longest_sleep_ns") == 500
    assert 6400 <= launch.counter("longest_clock_cycles") < 2 * 6400
