"""``import cupilot``: what it offers, what it costs, and that its documentation runs."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import cupilot
from cupilot import api
from cupilot.errors import UserError
from snippets import blocks, write_files

TASK = """
Model = Swish
ROWS = 1024
COLUMNS = 4096


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page shows, in a folder to work in."""
    write_files("python.md", tmp_path)
    (tmp_path / "swish.py").write_text((tmp_path / "my_model.py").read_text() + TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # not the user's own pool
    monkeypatch.setattr("cupilot.runs.session.pool_path", lambda *arguments: tmp_path / "pool.sqlite")
    sys.modules.pop("my_model", None)
    return tmp_path


def test_importing_costs_next_to_nothing() -> None:
    code = "import sys, cupilot; print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'numpy', 'rich'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_three_functions_are_offered() -> None:
    assert {"optimize", "evaluate", "profile"} <= set(dir(cupilot))
    assert (cupilot.optimize, cupilot.evaluate, cupilot.profile) == (api.optimize, api.evaluate, api.profile)
    with pytest.raises(AttributeError, match="has no attribute 'optimise'"):
        cupilot.optimise  # type: ignore[attr-defined]  # noqa: B018


def test_docstrings_say_what_is_so(folder: Path) -> None:
    outcome = doctest.testmod(importlib.reload(api), globs={"cupilot": cupilot}, raise_on_error=False)
    assert outcome.attempted >= 10
    assert outcome.failed == 0


def test_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(block.text for block in blocks("python.md") if not block.title)
    exec(compile(code, "docs/python.md", "exec"), {"__name__": "page"})
    found, kernel, right, wrong, limit, launch, mistake = capsys.readouterr().out.splitlines()
    assert "x by " in found
    assert found.endswith(", modelled")
    assert Path(kernel.split()[0]).parts[0] == "runs"
    assert "modelled, virtual:a100-80gb" in right
    assert wrong.startswith("run out-of-bounds out-of-bounds read of 4 bytes")
    assert ", line 5 of kernel.cu, block (390, 0, 0), thread (160, 0, 0)" in wrong
    assert limit.startswith("latency memory-bound")
    assert launch.endswith("registers, line 5")
    assert mistake.startswith("unknown GPU 'a1000'; did you mean")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": "swish.py", "inputs": []}, "a task file has its own inputs"),
        ({"model": "none.py"}, "none.py: there is no such task file"),
        ({"model": "swish.py", "precision": "fp8"}, "precision 'fp8' is not one of"),
        ({"model": "swish.py", "agents": "gpt"}, "'gpt' is neither 'expert' nor a model"),
        ({"model": "swish.py", "out": "held"}, "already holds a run"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, given: dict[str, object], says: str) -> None:
    (folder / "held").mkdir()
    (folder / "held" / "run.sqlite").write_text("")
    with pytest.raises(UserError, match=says):
        cupilot.optimize(**given)  # type: ignore[arg-type]


@pytest.mark.slow
def test_type_checkers_see_the_functions(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(
        "import cupilot\nreveal_type(cupilot.evaluate)\ncupilot.evaluate(1, 'task.py').timing\n"
        "cupilot.optimise\nresult = cupilot.optimize('task.py')\nreveal_type(result.speedup)\n"
    )
    line = [sys.executable, "-m", "mypy", "--config-file", "", "--follow-imports", "silent", "use.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    says = [text.partition(": ")[2] for text in done.stdout.splitlines()]
    assert says[0].startswith('note: Revealed type is "def (kernel: ')
    assert says[1].startswith('error: Argument 1 to "evaluate" has incompatible type "int"')
    assert 'error: Module has no attribute "optimise"' in says[2]
    assert says[3] == 'note: Revealed type is "float | None"'
