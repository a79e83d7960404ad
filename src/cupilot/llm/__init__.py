"""Language models: `cupilot.contracts.Model`s for providers, scripts, recordings and transcripts.

Importing this package imports no SDK; `open_model` does, when a model is opened.
"""

from cupilot.llm.agent_commands import agent_keys, coding_agents, open_agent
from cupilot.llm.call_log import JsonLinesCallLog, SqliteCallLog
from cupilot.llm.cost import Spent, Usage, estimate_tokens, price_usd
from cupilot.llm.errors import OverBudget, RequestRejected, Unavailable
from cupilot.llm.factory import open_model
from cupilot.llm.providers import Provider, key_names, providers, without_address
from cupilot.llm.recording import CallLog, RecordedCall, Recorder, Replay, call_key, is_agent
from cupilot.llm.role import role_of
from cupilot.llm.schema import described, schema_of, source_code
from cupilot.llm.scripted import Scripted
from cupilot.llm.spending_cap import CappedModel
from cupilot.llm.structured import Parsed, Unparsable, ask
from cupilot.llm.tool_text import calls_in
from cupilot.llm.transcript import LabelledReplay

__all__ = [
    "CallLog", "CappedModel", "JsonLinesCallLog", "LabelledReplay", "OverBudget", "Parsed", "Provider",
    "RecordedCall", "Recorder", "Replay", "RequestRejected", "Scripted", "Spent", "SqliteCallLog", "Unavailable",
    "Unparsable", "Usage", "agent_keys", "ask", "call_key", "calls_in", "coding_agents", "described",
    "estimate_tokens", "is_agent", "key_names", "open_agent", "open_model", "price_usd", "providers", "role_of",
    "schema_of", "source_code", "without_address",
]  # fmt: skip
