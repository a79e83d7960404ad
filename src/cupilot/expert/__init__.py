"""The built-in expert: strategy cards and kernel recipes in the roles of the agents."""

from cupilot.expert.agents import Expert

__all__ = ["Expert"]
