"""The library: open what a search needs, run it or resume it; the same for every client.

`session` has the whole wiring of a run.  The command line, the Python interface, benchmarks and the ablation fill in
`SearchOptions` and `Settings` and call it.
"""

from cupilot.runs.options import SearchOptions, Settings
from cupilot.runs.session import Observer, Session, evaluate, open_device, open_session, optimize, resume, search

__all__ = [
    "Observer", "SearchOptions", "Session", "Settings", "evaluate", "open_device", "open_session", "optimize", "resume",
    "search",
]  # fmt: skip
