"""What several test folders share: one virtual GPU, with the user's own content-addressed cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from cupilot.cli.environment import cache_folder
from cupilot.contracts import Device
from cupilot.devices import open_device

# hundreds of tests start a Python process; where this is set, each of them compiles all that it imports
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# the same examples every time, however slow the machine is
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def cache() -> Path:
    """The runtime takes seconds to compile, so all test processes and runs share it."""
    return cache_folder()


@pytest.fixture(scope="session")
def device(cache: Path) -> Device:
    return open_device("virtual:a100-80gb", cache)
