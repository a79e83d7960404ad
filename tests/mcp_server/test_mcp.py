"""The server over its protocol, with the official client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from cupilot.cli import main
from cupilot.cli.commands import mcp as command
from snippets import blocks

CODE = next(block.text for block in blocks("mcp.md") if block.language == "python")
NAMES: dict[str, Any] = {}
exec(CODE.partition("async def main")[0], NAMES)
TASK, WRONG = NAMES["TASK"], NAMES["KERNEL"]
RIGHT = WRONG.replace("i <= n", "i < n")
ENDLESS = RIGHT.replace("if (i < n)", "while (n > 0) { if (y[0] == 12345.0f) break; }\n    if (i < n)")


def with_client(use: Callable[[Client], Awaitable[None]]) -> None:
    """Start the server as the page's configuration says, and use it."""
    (text,) = (block.text for block in blocks("mcp.md") if block.language == "json")
    given = json.loads(text)["mcpServers"]["cupilot"]

    async def session() -> None:
        async with Client(stdio_client(StdioServerParameters(**given))) as client:
            await use(client)

    asyncio.run(session())


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    assert isinstance(found.structured_content, dict)
    return found.structured_content


async def mistake(client: Client, tool: str, **arguments: Any) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.is_error
    (content,) = found.content
    text: str = content.text  # type: ignore[union-attr]
    assert "\n" not in text
    return text


def test_the_page_runs(installed: Path) -> None:
    """A wrong kernel: started, asked and answered as an agent would do it."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        exec(compile(CODE, "docs/mcp.md", "exec"), {"__name__": "page"})
    assert written.getvalue() == "False out-of-bounds in line 5 thread [0, 0, 0]\n"


def test_tools_and_mistakes(installed: Path) -> None:
    """What needs no work done: descriptions, cards, and questions that cannot be answered."""
    (installed / "relu.py").write_text(TASK)
    (installed / "outside").symlink_to("/etc")

    async def use(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"evaluate", "profile", "roofline", "strategies", "run"}
        for tool in tools.values():
            assert tool.description
            assert tool.output_schema
            assert all("description" in each for each in tool.input_schema["properties"].values())
        assert tools["evaluate"].input_schema["required"] == ["kernel", "task"]
        listed = await answer(client, "strategies", limit="shared", zone="compute-bound")
        assert listed["cards"]
        assert all("shared" in card["relieves"] for card in listed["cards"])
        (card,) = (await answer(client, "strategies", card="vector-load"))["cards"]
        assert "16 or 8 bytes per instruction" in card["text"]
        assert "no card 'vektor-load'; did you mean vector-load" in await mistake(
            client, "strategies", card="vektor-load"
        )
        assert "unknown limit 'disk': there are dram" in await mistake(client, "strategies", limit="disk")
        for path in ("/etc/hostname", "../relu.cu", "outside/hostname", ""):
            assert "below the working folder" in await mistake(client, "evaluate", kernel=path, task="relu.py")
        assert "the kernel relu.cu cannot be read: No such file" in await mistake(
            client, "evaluate", kernel="relu.cu", task="relu.py"
        )
        assert "evaluate, argument task: field required" in await mistake(client, "evaluate", kernel=RIGHT)
        assert "has no argument 'gpu'" in await mistake(client, "evaluate", kernel=RIGHT, task=TASK, gpu="a100")

    with_client(use)


@pytest.mark.slow
def test_a_session(installed: Path) -> None:
    """From the roofline to a program of one's own."""
    (installed / "relu.py").write_text(TASK)
    (installed / "relu.cu").write_text(RIGHT)

    async def use(client: Client) -> None:
        bound = await answer(client, "roofline", task="relu.py", device="virtual:h100-sxm")
        assert bound["task_zone"] == "memory-bound"
        assert bound["time"] is None
        right = await answer(client, "evaluate", kernel="relu.cu", task="relu.py", device="virtual:h100-sxm")
        assert right["correct"]
        assert right["time"]["source"] == "modelled"
        assert right["time"]["time_ms"] >= bound["bound_ms"]
        steps: list[str] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            steps.append(str(message))

        found = await client.call_tool("profile", {"kernel": "relu.cu", "task": "relu.py"}, progress_callback=note)
        assert found.structured_content is not None
        assert found.structured_content["launches"][0]["hottest_lines"][0]["line"] == 5
        assert steps[0] == "loading the task"
        assert "compiling and running the kernel" in steps
        ran = await answer(client, "run", program="int main() { return 4; }\n\n// of no kernel\n")
        assert (ran["status"], ran["clean"]) == (4, False)
        assert "unknown GPU 'a1'" in await mistake(client, "profile", kernel=RIGHT, task=TASK, device="virtual:a1")
        assert "not a Python file (invalid syntax, line 2)" in await mistake(
            client, "profile", kernel=RIGHT, task="x = 1\ny =\n"
        )

    with_client(use)


@pytest.mark.slow
def test_a_call_is_cancelled_with_everything_it_started(installed: Path) -> None:
    async def use(client: Client) -> None:
        running = asyncio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            if candidates(installed):
                running.set()

        call = asyncio.create_task(
            client.call_tool("evaluate", {"kernel": ENDLESS, "task": TASK, "timeout_s": 300}, progress_callback=note)
        )
        await asyncio.wait_for(running.wait(), 120)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        deadline_s = time.monotonic() + 20
        while candidates(installed) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.1)
        assert candidates(installed) == []
        # and the server goes on
        assert (await answer(client, "evaluate", kernel=RIGHT, task=TASK))["correct"]

    with_client(use)


def candidates(folder: Path) -> list[str]:
    """Command lines of processes that run candidates' host code for this folder's server."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode()
            if "cupilot_host" in line and str(path.with_name("cwd").readlink()).startswith(str(folder)):
                found.append(line)
    return found


def test_without_the_package_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["mcp"]) == 2
    assert capsys.readouterr().err == "cupilot: cupilot mcp needs the package mcp: pip install 'cupilot[mcp]'\n"
