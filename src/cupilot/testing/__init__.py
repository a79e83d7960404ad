"""The contracts as reusable test classes, for our own parts and for plug-ins.

Subclass one in a test module and offer the fixture it names::

    class TestMyDevice(DeviceContract):
        @pytest.fixture
        def device(self, tmp_path):
            return MyDevice(tmp_path)

Needs pytest; nothing outside tests imports this package.
"""

import pytest

# before the modules are imported: failed assertions then show their values
pytest.register_assert_rewrite(
    "cupilot.testing.agents",
    "cupilot.testing.device",
    "cupilot.testing.executor",
    "cupilot.testing.language",
    "cupilot.testing.model",
    "cupilot.testing.record",
    "cupilot.testing.store",
    "cupilot.testing.tools",
)

from cupilot.testing.agents import AgentsContract  # noqa: E402
from cupilot.testing.device import DeviceContract  # noqa: E402
from cupilot.testing.executor import ExecutorContract  # noqa: E402
from cupilot.testing.language import LanguageContract  # noqa: E402
from cupilot.testing.model import ModelContract  # noqa: E402
from cupilot.testing.record import RecordContract  # noqa: E402
from cupilot.testing.store import StoreContract  # noqa: E402
from cupilot.testing.tools import ToolsContract  # noqa: E402

__all__ = [
    "AgentsContract",
    "DeviceContract",
    "ExecutorContract",
    "LanguageContract",
    "ModelContract",
    "RecordContract",
    "StoreContract",
    "ToolsContract",
]
