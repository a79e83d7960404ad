"""Make docs/images/optimize.svg from what ``cupilot optimize`` really prints.

Run from the project's folder: ``python docs/make_picture.py``.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = "cupilot optimize examples/softmax.py"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", *COMMAND.split(), "--out", f"{folder}/run"]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        printed = printed.replace(f"{folder}/run", "runs/softmax-1")
    console = Console(record=True, width=100, file=Path("/dev/null").open("w"))
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(Text(printed.rstrip()))
    console.save_svg("docs/images/optimize.svg", title="cupilot")


if __name__ == "__main__":
    main()
