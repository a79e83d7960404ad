"""The tools of who writes a kernel (`cupilot.runs.kernel_tools`), served over the Model Context Protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from cupilot import __version__
from cupilot.contracts import ToolSpec
from cupilot.errors import MachineError
from cupilot.llm.tool_socket import ToolClient

Call = Callable[[str, Mapping[str, Any]], str]


def serve(specs: Sequence[ToolSpec], call: Call) -> None:
    """Serve the tools on standard input and output until the client leaves; one call at a time."""
    listed = [
        types.Tool(name=spec.name, description=spec.description, input_schema=json.loads(spec.parameters))
        for spec in specs
    ]
    lock = anyio.Lock()

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        failed = False
        async with lock:
            try:
                text = await anyio.to_thread.run_sync(call, params.name, params.arguments or {}, abandon_on_cancel=True)
            except MachineError as error:
                text, failed = str(error), True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    server: Server[Any] = Server("cupilot", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


def serve_socket(path: Path) -> int:
    """Serve the tools that a run offers at this socket."""
    client = ToolClient(path)
    try:
        serve(client.list(), client.call)
    finally:
        client.close()
    return 0
