"""What workers announce, and whom they fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cupilot.executors import _offer, executor_names
from cupilot.executors._offer import Offer, difference, make_offers, resource_of, stamp, summary, versions
from cupilot.executors._worker import renamed
from cupilot.records import to_plain
from cupilot.testing.samples import EVALUATION, SPEC

OFFER = Offer(cache=Path("cache"), sandbox="auto")


def test_executors_are_found_by_scanning() -> None:
    assert executor_names() == ("dask", "local", "ray")


@pytest.mark.parametrize(
    ("device", "gpu", "resource"),
    [("virtual:a100-80gb", "a100-80gb", "virtual"), ("cuda:3", "h100-sxm", "cuda h100-sxm"), ("cuda:3", "", "cuda")],
)
def test_devices_need_slots_of_their_kind(device: str, gpu: str, resource: str) -> None:
    assert resource_of(device, gpu) == resource


def test_builds_of_one_release_are_the_same_and_releases_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_offer, "tool_versions", lambda: (("cupilot", "0.1.0"), ("torch", "2.13.0+cpu")))
    assert versions() == {"cupilot": "0.1.0", "torch": "2.13.0"}
    assert stamp(versions()) == stamp({"torch": "2.13.0", "cupilot": "0.1.0"})
    assert stamp(versions()) != stamp({"torch": "2.13.1", "cupilot": "0.1.0"})


def test_differences_are_named() -> None:
    ours = {"versions": {"cupilot": "0.1.0", "torch": "2.13.0"}, "resource": "cuda toy", "model": "Toy with 10 SMs"}
    assert difference(ours, ours) == ""
    assert difference({**ours, "resource": "cuda other", "model": "Other"}, ours) == ""
    assert difference({**ours, "model": "Toy with 9 SMs"}, ours) == "the GPU Toy with 9 SMs instead of Toy with 10 SMs"
    assert difference({**ours, "versions": {"cupilot": "0.2.0"}}, ours) == "cupilot 0.2.0 instead of 0.1.0"
    assert difference({**ours, "versions": {"cupilot": "0.1.0"}}, ours).startswith("torch of no known version instead")


def test_a_gpu_is_offered_by_its_model_and_shown_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [SimpleNamespace(index=index, uuid=f"GPU-{index}") for index in range(2)]
    monkeypatch.setattr(_offer, "find_gpus", lambda: SimpleNamespace(gpus=gpus))
    monkeypatch.setattr(_offer, "open_device", lambda name, cache, sandbox: SimpleNamespace(spec=SPEC))
    virtual, real = make_offers(1, ["cuda:1"], cache=OFFER.cache, sandbox="auto")
    assert virtual == OFFER
    assert set(virtual.resources) == {"virtual", stamp(versions())}
    assert (real.device, real.visible) == ("cuda:1", "GPU-1")
    assert set(real.resources) == {"cuda", "cuda sample", stamp(versions())}
    assert summary([virtual, virtual, real]) == "2 virtual slots, cuda:1 (Sample GPU with 100 SMs and 75 GB)"
    assert summary([replace(OFFER)]) == "1 virtual slot"


def test_a_device_is_renamed_wherever_it_stands() -> None:
    old = EVALUATION.device
    there = renamed(EVALUATION, old, "cuda:3")
    assert there.device == there.timing.device == there.profile.device == "cuda:3"
    assert str(to_plain(there)).count(old) < str(to_plain(EVALUATION)).count(old)
    assert renamed(there, "cuda:3", old) == EVALUATION
