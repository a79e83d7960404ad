"""An estimate of tokens, for servers that do not count them and for prompts before they are sent."""

from __future__ import annotations


def estimate_tokens(text: str) -> int:
    """Four characters to a token, rounded up: rather too many than too few."""
    return -(-len(text) // 4)
