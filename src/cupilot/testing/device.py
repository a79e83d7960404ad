"""The contract of a device."""

from __future__ import annotations

import time
from importlib.resources import files

import numpy as np
import pytest

from cupilot.arrays import Array
from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.records import Failure, Kernel, TensorSpec


def sample_kernel(name: str) -> Kernel:
    """One of the kernels in ``testing/kernels``: good, broken or endless."""
    return Kernel((files("cupilot.testing") / "kernels" / f"{name}.cu").read_text(encoding="utf-8"))


class DeviceContract:
    """Offer a fixture ``device``.

    ``good`` computes 2x + 1, ``broken`` does not compile, ``endless`` never ends; a device for
    another form of kernel may offer its own.  ``timeout_s`` bounds all runs.
    """

    good = sample_kernel("good")
    broken = sample_kernel("broken")
    endless = sample_kernel("endless")
    timeout_s = 60.0
    # what a time-out may take beyond the time given: killing and cleaning up
    grace_s = 20.0

    @staticmethod
    def call(elements: int) -> Call:
        values = np.linspace(-3.0, 3.0, elements, dtype=np.float32)
        return Call(f"{elements} elements", (values,), (TensorSpec((elements,)),))

    @staticmethod
    def expected(call: Call) -> Array:
        return 2 * np.asarray(call.arguments[0]) + 1

    def build(self, device: Device) -> Built:
        built = device.build(self.good)
        assert isinstance(built, Built), built
        return built

    def run(self, device: Device, calls: tuple[Call, ...]) -> tuple[Outcome, ...]:
        results = device.run(self.build(device), calls, self.timeout_s)
        outcomes = tuple(result for result in results if isinstance(result, Outcome))
        assert len(outcomes) == len(calls), results
        return outcomes

    def test_has_a_name_and_a_sane_spec(self, device: Device) -> None:
        assert device.name
        spec = device.spec
        for name in ("sms", "clock_hz", "registers_per_sm", "dram_bytes_per_s", "fp32_flop_per_s", "dram_bytes"):
            assert getattr(spec, name) > 0, name
        assert spec.dram_read_bytes_per_s <= spec.dram_bytes_per_s
        assert spec.warps_per_sm * 32 == spec.threads_per_sm

    def test_builds_a_good_kernel(self, device: Device) -> None:
        built = self.build(device)
        assert built.kernel == self.good
        assert built.resources
        assert all(resources.registers > 0 for _, resources in built.resources)

    def test_building_again_gives_the_same(self, device: Device) -> None:
        assert self.build(device) == self.build(device)

    def test_a_kernel_that_does_not_compile_is_a_failure(self, device: Device) -> None:
        failure = device.build(self.broken)
        assert isinstance(failure, Failure)
        assert failure.stage == "build"
        assert failure.message

    def test_runs_all_calls(self, device: Device) -> None:
        calls = (self.call(1000), self.call(256), self.call(1))
        for call, outcome in zip(calls, self.run(device, calls), strict=True):
            np.testing.assert_allclose(outcome.outputs[0].array, self.expected(call), rtol=1e-6)
            assert outcome.outputs[0].written.all(), "every element was stored to"

    def test_does_not_touch_the_arguments(self, device: Device) -> None:
        call = self.call(512)
        before = np.array(call.arguments[0])
        self.run(device, (call,))
        np.testing.assert_array_equal(call.arguments[0], before)

    def test_profiles_the_launch(self, device: Device) -> None:
        (outcome,) = self.run(device, (self.call(1000),))
        (launch,) = outcome.profile.launches
        assert outcome.profile.device == device.name
        assert (launch.grid, launch.block) == ((4, 1, 1), (256, 1, 1))

    def test_an_endless_kernel_is_a_time_out(self, device: Device) -> None:
        built = device.build(self.endless)
        assert isinstance(built, Built), built
        began = time.monotonic()
        results = device.run(built, (self.call(64), self.call(32)), 2.0)
        assert len(results) == 2, "the calls that are left carry the failure as well"
        for failure in results:
            assert isinstance(failure, Failure)
            assert (failure.stage, failure.kind) == ("run", "time-out")
        assert time.monotonic() - began < 2.0 + self.grace_s

    def test_times_a_profile(self, device: Device) -> None:
        (outcome,) = self.run(device, (self.call(4096),))
        timing = device.time(outcome.profile)
        assert timing.source in ("modelled", "measured")
        assert timing.device
        assert timing.time_s > 0
        assert sum(seconds for _, seconds in timing.breakdown) == pytest.approx(timing.time_s)
