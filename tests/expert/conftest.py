from __future__ import annotations

import pytest
from expert_tasks import FAMILIES

from cupilot.records import Guidance, Task


@pytest.fixture(params=sorted(FAMILIES))
def task(request: pytest.FixtureRequest) -> Task:
    return FAMILIES[request.param]()


@pytest.fixture
def guidance() -> Guidance:
    return Guidance("memory-bound", "dram", 3.0, "")
