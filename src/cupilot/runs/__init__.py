"""The library: open what a search needs, run it or resume it; the same for every client.

`session` has the whole wiring of a run.  The command line, the Python interface, benchmarks and the ablation fill in
`SearchOptions` and `Settings` and call it.
"""

from cupilot.runs.options import SearchOptions, Settings
from cupilot.runs.session import Observer, Session, open_session, optimize, resume, search

__all__ = [
    "Observer",
    "SearchOptions",
    "Session",
    "Settings",
    "open_session",
    "optimize",
    "read_kernel",
    "resume",
    "search",
]  # fmt: skip
