"""The command line: what a person types, and the only place that reads the environment."""

from cupilot.cli.program import main

__all__ = ["main"]
