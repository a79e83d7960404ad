"""The agents' roles played by language models: prompts, and records from their replies."""

from cupilot.agents.agents import LlmAgents

__all__ = ["LlmAgents"]
