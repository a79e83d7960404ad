"""What a worker has, what it announces when it joins a cluster, and whom it fits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from cupilot.contracts import ExecutorOptions
from cupilot.devices import open_device
from cupilot.devices.cuda_probe import find_gpus
from cupilot.evaluation.proof import tool_versions

VIRTUAL, CUDA = "virtual", "cuda"


def resource_of(device: str, gpu: str) -> str:
    """The name of the slots that a device is, or needs: ``virtual``, ``cuda``, or ``cuda`` and the GPU's model."""
    kind = device.partition(":")[0]
    return f"{kind} {gpu}" if kind == CUDA and gpu else kind


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What one worker process has: a virtual slot, or the real GPU ``device``.

    ``model`` describes that GPU; ``visible`` is its value for CUDA_VISIBLE_DEVICES, so in its process it is ``cuda:0``.
    """

    evaluator: str = ExecutorOptions.evaluator
    cache: Path
    sandbox: str
    device: str = VIRTUAL
    gpu: str = ""
    model: str = ""
    visible: str = ""

    @property
    def resource(self) -> str:
        return resource_of(self.device, self.gpu)

    @property
    def resources(self) -> dict[str, float]:
        return dict.fromkeys((self.resource, resource_of(self.device, ""), stamp(versions())), 1.0)

    @property
    def announcement(self) -> dict[str, Any]:
        """What the others see of it."""
        return {"versions": versions(), "resource": self.resource, "model": self.model}


def make_offers(slots: int, devices: Sequence[str], *, cache: Path, sandbox: str) -> tuple[Offer, ...]:
    """So many virtual slots, and a worker of its own for each real GPU that is named."""
    virtual = Offer(cache=cache, sandbox=sandbox)
    visible = {f"{CUDA}:{gpu.index}": gpu.uuid for gpu in find_gpus().gpus} if devices else {}
    real = []
    for name in devices:
        spec = open_device(name, cache, sandbox).spec
        model = f"{spec.title} with {spec.sms} SMs and {spec.dram_bytes / 2**30:.0f} GB"
        real.append(replace(virtual, device=name, gpu=spec.name, model=model, visible=visible[name]))
    return (*[virtual] * slots, *real)


def summary(offers: Sequence[Offer]) -> str:
    """What is offered, in words."""
    slots = sum(offer.device == VIRTUAL for offer in offers)
    real = [f"{offer.device} ({offer.model})" for offer in offers if offer.device != VIRTUAL]
    return ", ".join(([f"{slots} virtual slot{'s' if slots > 1 else ''}"] if slots else []) + real)


def versions() -> dict[str, str]:
    """What results depend on.  Builds of one release, such as torch for CPUs and for CUDA, count as the same."""
    return {name: version.partition("+")[0] for name, version in tool_versions()}


def stamp(found: Mapping[str, str]) -> str:
    """A resource that only workers of these versions have; so others get no work, whatever else they announce."""
    return f"cupilot {found['cupilot']} {sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:8]}"


def difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """What they have that keeps the two from working in one cluster, or nothing; both are announcements."""
    for name, version in ours["versions"].items():
        other = theirs["versions"].get(name, "of no known version")
        if other != version:
            return f"{name} {other} instead of {version}"
    if theirs["resource"] == ours["resource"] and theirs["model"] != ours["model"]:
        return f"the GPU {theirs['model']} instead of {ours['model']}"
    return ""
