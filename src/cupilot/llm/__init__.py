"""Language models: one `cupilot.contracts.Model` per provider."""

from cupilot.llm.scripted import Scripted

__all__ = ["Scripted"]
