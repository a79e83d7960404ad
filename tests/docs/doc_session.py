"""A copy of the project in which the blocks of one page run, one after the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from doc_blocks import ROOT, Block

from cupilot.cli.environment import cache_folder

TIMEOUT_S = 1800
FOLDERS = ("src", "tests", "examples", "benchmarks", "docs", "kernels")
FILES = ("pyproject.toml", "constraints.txt", "README.md", "mkdocs.yml")
# what a user has installed, and stand-ins for what must not happen in a test
PROGRAMS = {
    "cupilot": """
words=sys.argv[1:]
if os.environ.get("DOC_ESTIMATE") and words[:1] == ["optimize"]:
    words.append("--estimate")
from cupilot.cli import main
sys.exit(main(words))
""",
    "python": "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
    "pytest": "os.execv(sys.executable, [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', *sys.argv[1:]])",
    "pip": """
import re, tomllib
from pathlib import Path
extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
words = sys.argv[1:]
assert words.pop(0) == "install", words
while words:
    word = words.pop(0)
    if word == "-c":
        assert Path(words.pop(0)).is_file()
    elif not word.startswith("-"):
        wanted = re.fullmatch(r"(?:\\.|cupilot)(?:\\[([\\w,-]+)\\])?", word)
        assert wanted, f"only this project is installed here, not {word}"
        assert not set(filter(None, (wanted[1] or "").split(","))) - set(extras), f"{word}: no such extra"
""",
}
# blocks of Python are sent here one by one; the names that they make stay
DRIVER = """
import json, sys, traceback
names = {"__name__": "__main__"}
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    place, text = json.loads(line)
    try:
        exec(compile(text, place, "exec"), names)
        problem = ""
    except BaseException:
        problem = traceback.format_exc()
    print(json.dumps(problem), file=answers, flush=True)
"""


class Session:
    """One page's folder; Python blocks have one process, started with the first of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.folder / name)  # with bytecode, which spares compiling it for each page
        for name in FILES:
            shutil.copy(ROOT / name, self.folder / name)
        self._environment = self._make_environment(folder)
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._python is not None:
            self._python.kill()
            self._python.communicate()

    def take(self, block: Block) -> None:
        """Write a block's file, or run it; what goes wrong is an assertion that names the block."""
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            self._shell(block)
        else:
            self._execute(block)

    def _shell(self, block: Block) -> None:
        text, environment = block.text, dict(self._environment)
        if "without installing" in block.words:
            text = text.replace("python3 -m venv .venv", "true").replace(". .venv/bin/activate", "true")
            text = text.replace(".venv/bin/", "")
        if "estimate" in block.words:
            environment["DOC_ESTIMATE"] = "1"
        if "git " in text:
            self._make_repository()
        done = subprocess.run(
            ["sh", "-e", "-c", text], cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_S,
        )  # fmt: skip
        wanted = block.mark("status") == "not 0"
        assert (done.returncode != 0) == wanted, f"{block}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, f"{block}\n{done.stderr}"

    def _execute(self, block: Block) -> None:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", DRIVER], cwd=self.folder, env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps([str(block), block.text]) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        assert answer, f"{block}: Python ended"
        problem = json.loads(answer)
        assert not problem, f"{block}\n{problem}"

    def _make_repository(self) -> None:
        name = ("-c", "user.name=docs", "-c", "user.email=docs@example.invalid")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "as it was")):
            subprocess.run(["git", *name, *words], cwd=self.folder, check=True, capture_output=True)

    def _make_environment(self, folder: Path) -> dict[str, str]:
        programs = folder / "bin"
        programs.mkdir()
        for name, text in PROGRAMS.items():
            (programs / name).write_text(f"#!{sys.executable}\nimport os, sys\n{text}")
            (programs / name).chmod(0o755)
        (programs / "python3").symlink_to(programs / "python")
        # builds are the user's, the pool is not
        cache = folder / "cache"
        cache.mkdir()
        for name in ("kernels", "runtime", "sass", "programs", "modelnew"):
            (cache_folder() / name).mkdir(parents=True, exist_ok=True)
            (cache / name).symlink_to(cache_folder() / name)
        kept = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        return kept | {
            "PATH": f"{programs}:{kept.get('PATH', '')}",
            "PYTHONPATH": str(self.folder / "src"),
            "CUPILOT_CACHE": str(cache),
        }
