"""The seams of the program: what a plug-in has to offer, and nothing about how.

Every protocol here has a reusable test class in `cupilot.testing`; a new device, executor, store, model or set of
agents is right when that class passes on it.  `cupilot.languages.contract` has the seam of kernel languages.
"""

from cupilot.contracts.agents import ROLES, Agents, Brief, Revision
from cupilot.contracts.device import Built, Call, Device, Outcome, Output, Preparing
from cupilot.contracts.executor import Executor, ExecutorOptions
from cupilot.contracts.measuring import Measuring, Reference, Sample, Timed, TimedProcess
from cupilot.contracts.model import AgentModel, Message, Model, Reply, Request, works_alone
from cupilot.contracts.steps import DONE, REFERENCE, STAGES, Step, Watch
from cupilot.contracts.store import Store
from cupilot.contracts.tools import Tool, ToolAnswer, ToolCall, Tools, ToolSpec

__all__ = [
    "DONE", "REFERENCE", "ROLES", "STAGES", "AgentModel", "Agents", "Brief", "Built", "Call", "Device",
    "Executor", "ExecutorOptions", "Measuring", "Message", "Model", "Outcome", "Output", "Preparing", "Reference",
    "Reply", "Request", "Revision", "Sample", "Step", "Store", "Timed", "TimedProcess", "Tool", "ToolAnswer",
    "ToolCall", "ToolSpec", "Tools", "Watch", "works_alone",
]  # fmt: skip
