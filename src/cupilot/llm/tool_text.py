"""Tools as a dialogue in plain text, for models and servers without tool calling.

The tools are described in the prompt, and a reply names one action in a fenced block of JSON::

    ```json
    {"tool": "compile", "arguments": {}}
    ```

Code may follow in a block of its own.  A reply without an action that has the whole file is a submission: a model that
takes no notice of the tools has answered as it would without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cupilot.contracts import Message, Request, ToolCall, ToolSpec
from cupilot.errors import DataError
from cupilot.llm.extract import find_data
from cupilot.llm.templates import render
from cupilot.llm.thinking import without_thinking

SUBMIT, GIVE_UP, CODE = "submit", "give_up", "code"
_NAMES = ("tool", "name", "action", "function")
_ACTION = re.compile(r"\"tool\"\s*:")
_ARGUMENTS = ("arguments", "parameters", "args", "input")


def without_tools(request: Request) -> Request:
    """The same request with its tools, and all calls and answers so far, as text."""
    if not request.tools:
        return request
    described = render("tools", tools=[_described(tool) for tool in request.tools])
    messages: list[Message] = []
    for message in request.messages:
        plain = _plain(message)
        if messages and messages[-1].role == plain.role == "user":
            messages[-1] = replace(messages[-1], text=f"{messages[-1].text}\n\n{plain.text}")
        else:
            messages.append(plain)
    place = 0 if messages[0].role == "system" else next(n for n, m in enumerate(messages) if m.role == "user")
    messages[place] = replace(messages[place], text=f"{messages[place].text}\n\n{described}")
    return replace(request, messages=tuple(messages), tools=())


def _described(tool: ToolSpec) -> dict[str, Any]:
    properties = json.loads(tool.parameters).get("properties", {})
    arguments = [(name, _meaning(value)) for name, value in properties.items()]
    return {"name": tool.name, "description": tool.description, "arguments": arguments}


def _meaning(schema: Mapping[str, Any]) -> str:
    """What an argument is; of an array of objects, their fields too."""
    text, fields = str(schema.get("description", "")), schema.get("items", {}).get("properties", {})
    if not fields:
        return text
    named = "".join(f"\n    - `{name}`: {value.get('description', '')}" for name, value in fields.items())
    return f"{text}; an array of objects with{named}"


def _plain(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", message.text)
    actions = "\n".join(_action(call) for call in message.calls)
    return Message(message.role, f"{message.text}\n\n{actions}".strip() if actions else message.text)


def _action(call: ToolCall) -> str:
    return f'```json\n{{"tool": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n```'


def calls_in(text: str, tools: Iterable[ToolSpec]) -> tuple[ToolCall, ...]:
    """The action in a reply, at most one: the first object that names a tool, or a whole file, which is submitted.

    Replies to the same prompts without tools are understood: ``code`` submits, and a ``verdict`` may give up.
    """
    text, names = without_thinking(text), [tool.name for tool in tools]
    try:
        data = find_data(text, CODE)
    except (DataError, RecursionError):
        return ()
    named = next((data[key] for key in _NAMES if isinstance(data.get(key), str)), None)
    if named is None:  # not what stands beside an action that is broken
        return () if _ACTION.search(text) else _untold(data, names)
    name = named.strip().lower().replace("-", "_")
    return (ToolCall(name, json.dumps(_arguments(data))),)


def _arguments(data: dict[str, Any]) -> dict[str, Any]:
    """What stands under ``arguments``, or beside the name; code may have come in a block of its own."""
    inner = next((data[key] for key in _ARGUMENTS if key in data), None)
    if isinstance(inner, str):
        try:
            inner = json.loads(inner, strict=False)
        except ValueError:
            inner = None
    rest = {key: value for key, value in data.items() if key not in (*_NAMES, *_ARGUMENTS)}
    if not isinstance(inner, dict):
        return rest
    return {**({CODE: data[CODE]} if data.get(CODE) else {}), **inner}


def _untold(data: dict[str, Any], names: Sequence[str]) -> tuple[ToolCall, ...]:
    code, reason = data.get(CODE), str(data.get("reason") or "")
    verdict = str(data.get("verdict") or "").strip().lower().replace(" ", "_").replace("-", "_")
    if verdict == GIVE_UP and GIVE_UP in names:
        return (ToolCall(GIVE_UP, json.dumps({"reason": reason})),)
    if isinstance(code, str) and code.strip() and SUBMIT in names:
        notes = str(data.get("notes") or reason)
        moves = {"moves": data["moves"]} if data.get("moves") else {}
        return (ToolCall(SUBMIT, json.dumps({CODE: code, "notes": notes, **moves})),)
    return ()
