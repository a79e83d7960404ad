"""cupilot: a PyTorch module in, a verified and faster CUDA kernel out.

From Python: `optimize`, `evaluate` and `profile` (see `cupilot.api`), which are imported when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cupilot.api import Settings as Settings
    from cupilot.api import evaluate as evaluate
    from cupilot.api import optimize as optimize
    from cupilot.api import profile as profile

__version__ = "0.1.0"
__all__ = ["Settings", "__version__", "evaluate", "optimize", "profile"]

if not TYPE_CHECKING:  # type checkers would believe that every name exists

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from cupilot import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
