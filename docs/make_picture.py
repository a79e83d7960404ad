"""Make docs/images/optimize.svg from what ``cupilot optimize`` really shows and prints.

Run from the project's folder: ``python docs/make_picture.py``.  The view is the live one at a moment with
several kernels under way; below it is what stays.
"""

import io
import re
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from rich.console import Console
from rich.text import Text

import cupilot.cli.commands.optimize
from cupilot.cli import main as cupilot_main
from cupilot.cli.search_view import search_view
from cupilot.cli.terminal_observer import TerminalObserver
from cupilot.contracts import Step
from cupilot.evolution.progress import Progress
from cupilot.evolution.run_state import RunState

COMMAND = "cupilot optimize examples/softmax.py"
WIDTH = 100
MOMENTS: list[tuple[float, RunState]] = []


class Remembering(TerminalObserver):
    """Keeps every state, with its time."""

    def __call__(self, event: Progress | Step) -> None:
        super().__call__(event)
        if self._state is not None:
            MOMENTS.append((self._clock(), self._state))


def main() -> None:
    cupilot.cli.commands.optimize.TerminalObserver = Remembering  # type: ignore[misc]
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(printed):
        status = cupilot_main([*COMMAND.split()[1:], "--no-pool", "--out", f"{folder}/run"])
        assert status == 0, "the search failed"
        text = printed.getvalue().replace(f"{folder}/run", "runs/softmax-1")
    # the virtual GPU's runtime, and whether there is a driver, are this machine's affairs
    text = re.sub(r" \(libcuda[^)]*\)", "", text)
    now_s, state = max(MOMENTS, key=lambda moment: (len(moment[1].work) > 1, len(moment[1].population), moment[0]))
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(search_view(state, now_s, WIDTH))
    console.print()
    console.print(Text(text.rstrip()))
    svg = console.export_svg(title="cupilot")
    # the reader's own monospace font: a picture in a README fetches nothing
    Path("docs/images/optimize.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))


if __name__ == "__main__":
    main()
