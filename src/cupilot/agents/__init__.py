"""Language models in the roles of the agents: prompts, replies, and what is made of them."""

from cupilot.agents.agents import LlmAgents

__all__ = ["LlmAgents"]
