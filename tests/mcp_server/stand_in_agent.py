"""A coding agent in miniature, with a script instead of a model; it speaks MCP for real with the server it is given.

Arguments: what to do, words separated by commas.  The configuration of the MCP server is ``mcp.json`` beside it, the
work is in ``BRIEF.md``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

KERNEL = "__global__ void k() {}\ntorch::Tensor forward(torch::Tensor x) { return x; }\n// version "
MOVES = [{"move": "straight-copy", "quote": "{ return x; }"}]


async def use(does: list[str]) -> list[str]:
    given = json.loads(Path("mcp.json").read_text())["mcpServers"]["cupilot"]
    said: list[str] = []
    async with Client(stdio_client(StdioServerParameters(**given))) as client:

        async def call(tool: str, **arguments: Any) -> None:
            found = await client.call_tool(tool, arguments)
            said.append(found.content[0].text)  # type: ignore[union-attr]

        said.append(" ".join(tool.name for tool in (await client.list_tools()).tools))
        for step in does:
            if step.startswith(("compile", "check", "submit")):
                name, _, number = step.partition(" ")
                await call(name, **({"code": f"{KERNEL}{number}\n"} if number else {}))
            elif step == "report":
                await call("submit", moves=["straight-copy"])
                await call("submit", moves=MOVES, notes="it returns x")
            elif step == "give_up":
                await call("give_up", reason="it cannot work")
            elif step == "loop":
                for _ in range(100):
                    await call("check")
            elif step == "die":
                os._exit(3)
    return said


def try_out(what: str, act: Any) -> str:
    try:
        act()
    except OSError as error:
        return f"{what}: {type(error).__name__}"
    return f"{what}: allowed"


def pry(user: str) -> list[str]:
    """What an agent should not be able to do, and what it should."""
    return [
        try_out("write outside", lambda: (Path(user) / "made").write_text("x")),
        try_out("read the user's file", (Path(user) / "private").read_text),
        try_out("read its login", (Path.home() / ".stand-in" / "login").read_text),
        try_out("change its login", lambda: (Path.home() / ".stand-in" / "login").write_text("changed")),
        try_out("write its folder", lambda: Path("notes.md").write_text("x")),
        try_out("write its home", lambda: (Path.home() / "history").write_text("x")),
        try_out("use the network", lambda: socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 5).close()),
    ]


def main() -> None:
    assert Path("BRIEF.md").read_text().startswith("# The work"), "the brief is there"
    does = sys.argv[1].split(",")
    said = [f"key {os.environ.get('STAND_IN_KEY')}"]
    if "hang" in does:
        time.sleep(600)
    if "talk" not in does:
        said += asyncio.run(use(does))
    if "pry" in does:
        said += pry(sys.argv[2])
    if "fail" in does:
        sys.exit(f"the account {os.environ.get('STAND_IN_KEY')} is out of credit")
    print("starting up")
    print(json.dumps({"result": "\n".join(said), "usage": {"input_tokens": 700, "output_tokens": 50}}))


if __name__ == "__main__":
    main()
