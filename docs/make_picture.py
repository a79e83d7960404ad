"""Make docs/images/optimize.svg from what ``cupilot optimize`` really prints.

Run from the project's folder: ``python docs/make_picture.py``.
"""

import io
import re
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
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(Text(printed.rstrip()))
    svg = console.export_svg(title="cupilot")
    # the reader's own monospace font: a picture in a README fetches nothing
    Path("docs/images/optimize.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))


if __name__ == "__main__":
    main()
