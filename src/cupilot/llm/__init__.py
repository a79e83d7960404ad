"""Language models: `cupilot.contracts.Model`s for providers, scripts, recordings and transcripts.

Importing this package imports no SDK; `open_model` does, when a model is opened.
"""

from cupilot.llm.answer import Answer, OverBudget, Refused, Unavailable
from cupilot.llm.books import JsonLinesBook, SqliteBook
from cupilot.llm.capped import Capped
from cupilot.llm.cost import Estimate, Spent, Usage, estimate, price_usd
from cupilot.llm.opening import open_model
from cupilot.llm.providers import Provider, key_names, providers
from cupilot.llm.recording import Book, Call, Recorder, Replay, call_key
from cupilot.llm.role import role_of
from cupilot.llm.schema import code, meant, schema_of
from cupilot.llm.scripted import Scripted
from cupilot.llm.structured import Parsed, Unparsable, ask
from cupilot.llm.transcript import LabelledReplay

__all__ = [
    "Answer", "Book", "Call", "Capped", "Estimate", "JsonLinesBook", "LabelledReplay", "OverBudget", "Parsed",
    "Provider", "Recorder", "Refused", "Replay", "Scripted", "Spent", "SqliteBook", "Unavailable", "Unparsable",
    "Usage", "ask", "call_key", "code", "estimate", "key_names", "meant", "open_model", "price_usd", "providers",
    "role_of", "schema_of",
]  # fmt: skip
