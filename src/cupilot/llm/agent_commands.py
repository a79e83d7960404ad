"""Coding agents as models: a command of the user's, run in an empty folder with a brief and our tools.

`agents.toml` has a table for each; `agent/FILE.toml` reads one from a file of the user's, in the same form.  An agent
is confined to its folder and has a home of its own: it logs in with what its user has, and changes nothing there.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any

from cupilot.contracts import Reply, Request, ToolCall, Tools
from cupilot.errors import ModelError, UserError
from cupilot.files import read_text
from cupilot.llm.chat import request_tokens
from cupilot.llm.cost import estimate_tokens
from cupilot.llm.recording import AGENT
from cupilot.llm.role import role_of
from cupilot.llm.templates import render
from cupilot.llm.tool_socket import ToolSocket
from cupilot.llm.tool_text import SUBMIT
from cupilot.records import Turn, from_plain
from cupilot.sandbox.agent_process import find_program, installation, run_agent
from cupilot.sandbox.process import Ended

TIMEOUT_S = 1800.0
CALLS_PER_TURN = 6
BRIEF = "BRIEF.md"
ASKED = f"Read {BRIEF} in this folder and do what it says."
QUOTED_CHARACTERS = 300
WHEN = ("always", "tools", "no-tools")


@dataclass(frozen=True)
class AgentFile:
    """A file that is written before the agent starts."""

    path: str
    text: str
    when: str = "always"


@dataclass(frozen=True)
class CodingAgent:
    """One table of `agents.toml`, where the keys are explained."""

    title: str
    documented: str
    command: tuple[str, ...]
    checked: str = ""
    model: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    prompt_last: bool = False
    files: tuple[AgentFile, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()
    login: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    network: bool = True
    reply: str = ""
    reply_file: str = ""
    input_tokens: str = ""
    output_tokens: str = ""


@cache
def coding_agents() -> Mapping[str, CodingAgent]:
    """All agents by name."""
    tables = tomllib.loads(resources.files("cupilot.llm").joinpath("agents.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: _decoded(table, f"agents.{name}") for name, table in tables.items()})


def agent_keys() -> tuple[str, ...]:
    """The variables that agents may log in with."""
    return tuple(dict.fromkeys(key for agent in coding_agents().values() for key in agent.keys))


def _decoded(table: Any, where: str) -> CodingAgent:
    agent = from_plain(CodingAgent, table, where)
    for file in agent.files:
        if file.when not in WHEN:
            raise UserError(f"{where}: `when` is {', '.join(WHEN)}, not {file.when!r}")
    return agent


def open_agent(
    name: str, *, keys: Mapping[str, str], home: Path | None = None, timeout_s: float = TIMEOUT_S
) -> CodingAgentModel:
    """The agent of ``agent/NAME``, ``agent/NAME/MODEL`` or ``agent/FILE.toml``; ``home`` is where the user logs in."""
    rest = name.removeprefix(AGENT)
    if rest.endswith(".toml"):
        path = Path(rest)
        try:
            agent = _decoded(tomllib.loads(read_text(path, "the agent's file")), str(path))
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{path} is no TOML: {error}") from error
        model = ""
    else:
        short, _, model = rest.partition("/")
        if short not in coding_agents():
            raise UserError(f"unknown agent {short!r} in {name!r}; known are {', '.join(coding_agents())}")
        agent = coding_agents()[short]
    program = find_program(agent.command[0])
    if program is None:
        raise UserError(f"{name}: the program {agent.command[0]!r} is not installed")
    return CodingAgentModel(name, agent, model, program, keys, home or Path.home(), timeout_s)


class CodingAgentModel:
    """See `cupilot.contracts.AgentModel`; several may work at a time, each in a folder of its own."""

    works_alone = True

    def __init__(
        self, name: str, agent: CodingAgent, model: str, program: Path, keys: Mapping[str, str], home: Path,
        timeout_s: float,
    ) -> None:  # fmt: skip
        self.name = name
        self._agent, self._model, self._program = agent, model, program
        self._keys = {key: keys[key] for key in agent.keys if keys.get(key)}
        self._home, self._timeout_s = home, timeout_s

    def complete(self, request: Request) -> Reply:
        """A question without tools: what the agent prints is the reply."""
        with tempfile.TemporaryDirectory(prefix="cupilot-agent-", ignore_cleanup_errors=True) as outer:
            run = _Run(Path(outer).resolve(), self)
            ended = run(self._brief(request, ()), calls=0)
            text, counts = self._answer(run, ended)
        if not text.strip():
            raise ModelError(self._why(ended, "gave no answer"))
        return self._reply(request, text, counts)

    def work(self, request: Request, tools: Tools) -> Reply:
        """The reply calls what ended the work, or submits the best kernel that there was when the time was up."""
        calls = tools.budget.turns * CALLS_PER_TURN
        role = role_of(request)
        with tempfile.TemporaryDirectory(prefix="cupilot-agent-", ignore_cleanup_errors=True) as outer:
            run = _Run(Path(outer).resolve(), self)
            with ToolSocket(tools, run.socket, role, calls) as socket:
                ended = run(self._brief(request, [tool.name for tool in tools.specs], calls), calls=calls)
            text, counts = self._answer(run, ended)
        reply = self._reply(request, text, counts)
        call, note = socket.closing_call, ""
        if call is None:
            note = self._why(ended, "ended without a submission")
            if (best := tools.best()) is not None:
                call = ToolCall(SUBMIT, json.dumps({"code": best.source}))
                note += "; its best kernel is handed in"
            elif not socket.turns and (ended.status or ended.timed_out):
                raise ModelError(note)
        last = Turn(role, (), reply.input_tokens, reply.output_tokens, note)
        text = "" if call is not None else reply.text
        return Reply(
            text, reply.input_tokens, reply.output_tokens, self.name, estimated=reply.estimated,
            calls=() if call is None else (call,), turns=(*socket.turns, last),
        )  # fmt: skip

    def _brief(self, request: Request, tools: Sequence[str], calls: int = 0) -> str:
        messages = [(message.role, message.text) for message in request.messages]
        return render("agent_brief", messages=messages, tools=tools, calls=calls, schema=request.schema)

    def _answer(self, run: _Run, ended: Ended) -> tuple[str, tuple[int | None, int | None]]:
        agent = self._agent
        if agent.reply_file:
            path = Path(run.filled(agent.reply_file))
            text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            return text, (None, None)
        if not agent.reply:
            return ended.output, (None, None)
        data = _printed_object(ended.output, agent.reply)
        counts = _number(data, agent.input_tokens), _number(data, agent.output_tokens)
        text = _at(data, agent.reply)
        return (text if isinstance(text, str) else ""), counts

    def _reply(self, request: Request, text: str, counts: tuple[int | None, int | None]) -> Reply:
        sent, made = counts
        return Reply(
            text, sent or request_tokens(request), made or estimate_tokens(text) or 1, self.name,
            estimated=sent is None or made is None,
        )  # fmt: skip

    def _why(self, ended: Ended, otherwise: str) -> str:
        """What became of the process, without keys that it may have printed."""
        if ended.timed_out:
            return f"{self.name}: it did not end within {self._timeout_s:g} s"
        if ended.excess:
            return f"{self.name}: it {ended.excess}"
        last = re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]+", " ", self._last_words(ended.output))[:QUOTED_CHARACTERS]
        for key in self._keys.values():
            last = last.replace(key, "[key]")
        if ended.status:
            return f"{self.name}: it ended with status {ended.status}" + (f": {last}" if last else "")
        return f"{self.name}: it {otherwise}"

    def _last_words(self, output: str) -> str:
        """What it says itself in its JSON, or else its last line."""
        for path in filter(None, (self._agent.reply, "error.message")):
            said = _at(_printed_object(output, path), path)
            if isinstance(said, str) and said.strip():
                return said.strip()
        lines = output.strip().splitlines()
        return lines[-1] if lines else ""


class _Run:
    """One run in a folder: ``work`` is where the agent starts, ``home`` its home; it can write both."""

    def __init__(self, outer: Path, model: CodingAgentModel) -> None:
        self._model = model
        self.folder, self.home, self.socket = outer / "work", outer / "home", outer / "tools.sock"
        self.folder.mkdir()
        self.home.mkdir()
        self._values: dict[str, str] = {}

    def __call__(self, brief: str, calls: int) -> Ended:
        model, agent = self._model, self._model._agent
        server = ["-P", "-m", "cupilot", "mcp", "--connect", str(self.socket)]
        self._values = {
            "folder": str(self.folder), "home": str(self.home), "prompt": ASKED, "model": model._model,
            "turns": str(max(1, calls)), "program": sys.executable, "arguments": json.dumps(server),
            "whole": json.dumps([sys.executable, *server]),
        }  # fmt: skip
        (self.folder / BRIEF).write_text(brief, encoding="utf-8")
        self._write_files("tools" if calls else "no-tools")
        readable = [*installation(model._program), *self._link_login(), *map(Path, agent.readable)]
        command = [str(model._program), *map(self.filled, agent.command[1:])]
        command += map(self.filled, agent.tools if calls else ())
        command += map(self.filled, agent.model if model._model else ())
        command += [ASKED] if agent.prompt_last else []
        environment = {name: self.filled(text) for name, text in agent.environment}
        return run_agent(
            command, self.folder, model._timeout_s, readable=readable, network=agent.network,
            environment={"HOME": str(self.home), **model._keys, **environment},
        )  # fmt: skip

    def filled(self, text: str) -> str:
        return Template(text).safe_substitute(self._values)

    def _write_files(self, case: str) -> None:
        for file in self._model._agent.files:
            if file.when in ("always", case):
                path = Path(self.filled(file.path))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.filled(file.text), encoding="utf-8")

    def _link_login(self) -> list[Path]:
        """Links in its home to what the user logs in with; what it writes there replaces a link, not the file."""
        found = []
        for name in self._model._agent.login:
            real = self._model._home / name
            if real.is_file():
                link = self.home / name
                link.parent.mkdir(parents=True, exist_ok=True)
                os.symlink(real, link)
                found.append(real)
        return found


def _printed_object(output: str, key: str) -> Any:
    """The JSON object with this key in what was printed, among whatever else was."""
    decoder = json.JSONDecoder(strict=False)
    for start in [match.start() for match in re.finditer(r"^\s*\{", output, re.MULTILINE)]:
        try:
            data, _ = decoder.raw_decode(output[start:].lstrip())
        except (ValueError, RecursionError):
            continue
        if _at(data, key) is not None:
            return data
    return {}


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _number(data: Any, path: str) -> int | None:
    value = _at(data, path) if path else None
    return value if isinstance(value, int) and value > 0 else None
