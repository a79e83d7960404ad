"""The tools for one kernel as an agent gets them from ``cupilot mcp --task``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mcp import Client, StdioServerParameters, stdio_client
from test_mcp import RIGHT, TASK, WRONG

from cupilot.runs.kernel_tools import NAMES


def test_an_agent_compiles_checks_compares_and_submits(installed: Path) -> None:
    Path("task.py").write_text(TASK)
    Path("first.cu").write_text(RIGHT)
    said: dict[str, str] = {}

    async def session() -> None:
        arguments = [
            "mcp",
            "--task",
            "task.py",
            "--kernel",
            "first.cu",
            "--out",
            "mine.cu",
            "--device",
            "virtual:a100-80gb",
        ]
        async with Client(stdio_client(StdioServerParameters(command="cupilot", args=arguments))) as client:
            listed = (await client.list_tools()).tools
            said["tools"] = " ".join(tool.name for tool in listed)
            assert all(tool.description and tool.input_schema for tool in listed)
            for name, given in (
                ("compile", {}),
                ("check", {"code": WRONG}),
                ("compare", {"code": RIGHT}),
                ("submit", {}),
            ):
                found = await client.call_tool(name, given)
                assert not found.is_error
                said[name] = found.content[0].text  # type: ignore[union-attr]

    asyncio.run(session())
    assert said["tools"] == " ".join(name for name in NAMES if name != "give_up")
    assert said["compile"].startswith("It compiles (not run yet).\nrelu: ")
    assert "out-of-bounds" in said["check"]
    assert "as fast as its parent" in said["compare"]
    assert said["submit"].startswith("RIGHT: ")
    assert said["submit"].endswith("written to mine.cu")
    assert Path("mine.cu").read_text() == RIGHT.lstrip("\n")
