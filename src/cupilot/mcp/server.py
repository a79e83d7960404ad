"""The server: names, descriptions and arguments of the tools, as agents see them.

Kernels and tasks are given as text or as paths below the working folder.  Tasks, candidates and programs run in
confined processes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import Field, ValidationError

from cupilot import __version__
from cupilot.errors import CupilotError, UserError
from cupilot.mcp.answers import (
    CardAnswer,
    CardParameter,
    EvaluateAnswer,
    ProfileAnswer,
    RooflineAnswer,
    RunAnswer,
    StrategiesAnswer,
)
from cupilot.mcp.request import ToolRequest
from cupilot.mcp.worker_client import WorkerClient
from cupilot.records import Card, from_plain
from cupilot.strategies import LIMITS, ZONES, load_deck
from cupilot.strategies.choice import relevance

DEVICE = "virtual:a100-80gb"
FULL_TEXT_CARDS = 6
A = TypeVar("A")

INSTRUCTIONS = """\
Checks and profiles CUDA without a GPU. A task is a Python file in KernelBench form (class Model, get_inputs, \
get_init_inputs); a kernel is one .cu file with a host function forward(torch::Tensor ...) that launches it. Start \
with roofline (what is possible), then evaluate (is it right, how fast), then profile (where the time goes) and \
strategies (what may help). run takes a whole CUDA program with its own main. Times on virtual devices are modelled, \
not measured."""

KernelText = Annotated[str, Field(description="the .cu source, or its path below the working folder")]
MaybeKernelText = Annotated[str, Field(description="the .cu source, or its path below the working folder; optional")]
ProgramText = Annotated[str, Field(description="a whole .cu program with main, or its path below the working folder")]
ProgramArguments = Annotated[tuple[str, ...], Field(description="arguments of the program")]
TaskText = Annotated[str, Field(description="the task's Python source, or its path below the working folder")]
Device = Annotated[str, Field(description="such as virtual:a100-80gb or virtual:h100-sxm")]
Precision = Annotated[str, Field(description="what may be computed in: fp32, tf32, fp16 or bf16")]
Entry = Annotated[str, Field(description="the host function to call")]
Arguments = Annotated[str, Field(description='its arguments, such as "inputs[0], model.eps"; empty: matched by name')]
Seconds = Annotated[float, Field(description="seconds that the candidate may run", gt=0, le=600)]


@dataclass(frozen=True)
class WorkingFolder:
    """The folder that paths must lie below."""

    root: Path

    def text(self, given: str, what: str) -> str:
        """The given text, or the contents of the file it names: a single line is a path."""
        if "\n" in given.strip():
            return given
        path = (self.root / given.strip()).resolve()
        if not given.strip() or not path.is_relative_to(self.root.resolve()):
            raise UserError(f"the {what} must be its source, or a path below the working folder, not {given.strip()!r}")
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"the {what} {given.strip()} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"the {what} {given.strip()} is not UTF-8 text") from error

    def name(self, given: str, otherwise: str) -> str:
        return otherwise if "\n" in given.strip() else Path(given.strip()).stem or otherwise


class PlainErrorServer(MCPServer[None]):
    """Reports a wrong or unknown argument in one sentence, instead of the validator's full output."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = {tool.name: tool.input_schema.get("properties", {}) for tool in await self.list_tools()}
        strange = [key for key in arguments if name in known and key not in known[name]]
        if strange:
            raise ToolError(f"{name} has no argument {strange[0]!r}: there are {', '.join(known[name])}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                first = error.__cause__.errors()[0]
                place = ".".join(map(str, first["loc"]))
                raise ToolError(f"{name}, argument {place}: {first['msg'].lower()}") from None
            raise


def make_server(command: Sequence[str], root: Path) -> MCPServer[None]:
    """A server with all tools; ``command`` starts the worker process."""
    worker, folder = WorkerClient(command), WorkingFolder(root)

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        try:
            yield None
        finally:
            await worker.close()

    server = PlainErrorServer(
        "cupilot", version=__version__, instructions=INSTRUCTIONS, lifespan=lifespan, log_level="WARNING"
    )

    async def ask(kind: type[A], context: Context, tool: str, kernel: str, task: str, **options: Any) -> A:
        try:
            texts: dict[str, Any] = {"kernel": folder.text(kernel, "kernel") if kernel.strip() else ""}
            if task:
                texts |= {"task": folder.text(task, "task"), "task_name": folder.name(task, "task")}
            request = ToolRequest(tool, **texts, **options)
            return from_plain(kind, await worker.ask(request, lambda s, text: context.report_progress(s, None, text)))
        except CupilotError as error:
            raise ToolError(str(error)) from None

    @server.tool()
    async def evaluate(
        kernel: KernelText, task: TaskText, context: Context, device: Device = DEVICE, precision: Precision = "fp32",
        entry: Entry = "forward", args: Arguments = "", timeout_s: Seconds = 60.0,
    ) -> EvaluateAnswer:  # fmt: skip
        """Is this kernel right, and how fast? Compares with a float64 reference on many inputs and shapes, checks every
        memory access, and times it against PyTorch. Findings have line, block and thread."""
        return await ask(
            EvaluateAnswer, context, "evaluate", needed(kernel, "kernel"), needed(task, "task"), device=device,
            precision=precision, entry=entry, args=args, timeout_s=timeout_s,
        )  # fmt: skip

    @server.tool()
    async def profile(
        kernel: KernelText, task: TaskText, context: Context, device: Device = DEVICE, precision: Precision = "fp32",
        entry: Entry = "forward", args: Arguments = "", timeout_s: Seconds = 60.0,
    ) -> ProfileAnswer:  # fmt: skip
        """Where does a kernel's time go? Launches with occupancy, what limits them, their hottest lines, and cards that
        relieve the limit. Does not verify results: evaluate does."""
        return await ask(
            ProfileAnswer, context, "profile", needed(kernel, "kernel"), needed(task, "task"), device=device,
            precision=precision, entry=entry, args=args, timeout_s=timeout_s,
        )  # fmt: skip

    @server.tool()
    async def roofline(
        task: TaskText, context: Context, kernel: MaybeKernelText = "", device: Device = DEVICE,
        precision: Precision = "fp32", entry: Entry = "forward", args: Arguments = "", timeout_s: Seconds = 60.0,
    ) -> RooflineAnswer:  # fmt: skip
        """What is the least attainable time of a task on a device, what binds it, and how close does a kernel come?"""
        return await ask(
            RooflineAnswer, context, "roofline", kernel, needed(task, "task"), device=device,
            precision=precision, entry=entry, args=args, timeout_s=timeout_s,
        )  # fmt: skip

    @server.tool()
    async def run(
        program: ProgramText, context: Context, arguments: ProgramArguments = (), device: Device = DEVICE,
        timeout_s: Seconds = 60.0,
    ) -> RunAnswer:  # fmt: skip
        """Compile and run a whole CUDA program on the virtual GPU, with every access checked: out-of-bounds,
        uninitialised reads, races and the like come with kernel, line, block and thread. The program has no network,
        no files and no input."""
        return await ask(
            RunAnswer, context, "run", needed(program, "program"), "", device=device, words=tuple(arguments),
            timeout_s=timeout_s,
        )  # fmt: skip

    @server.tool()
    def strategies(
        limit: Annotated[str, Field(description="what to relieve: dram, l2, shared, latency, ...; empty: any")] = "",
        zone: Annotated[str, Field(description="memory-bound, between, compute-bound, latency-bound; empty: any")] = "",
        card: Annotated[str, Field(description="one card by name, in full")] = "",
    ) -> StrategiesAnswer:
        """Cards: moves that make kernels faster, which limit each relieves, what it needs and excludes. Long lists
        leave out the texts; ask for a card by its name to read about it."""
        try:
            return chosen_cards(limit, zone, card)
        except CupilotError as error:
            raise ToolError(str(error)) from None

    return server


def needed(given: str, what: str) -> str:
    if not given.strip():
        raise ToolError(f"the {what} is missing: give its source, or a path below the working folder")
    return given


def chosen_cards(limit: str, zone: str, name: str) -> StrategiesAnswer:
    for given, known, what in ((limit, LIMITS, "limit"), (zone, ZONES, "zone")):
        if given and given not in known:
            raise UserError(f"unknown {what} {given!r}: there are {', '.join(known)}")
    deck = load_deck()
    fitting = [
        card for card in deck.values() if (not limit or limit in card.relieves) and (not zone or zone in card.zones)
    ]
    fitting.sort(key=lambda card: (-relevance(card, limit, zone), card.name))
    cards = [deck.card(name)] if name else fitting
    return StrategiesAnswer(tuple(_card(card, full=len(cards) <= FULL_TEXT_CARDS) for card in cards))


def _card(card: Card, full: bool) -> CardAnswer:
    parameters = tuple(
        CardParameter(each.name, tuple(str(choice) for choice in each.choices), each.text) for each in card.parameters
    )
    return CardAnswer(
        card.name, card.title, card.zones, card.relieves, card.needs, card.excludes,
        card.text if full else "", parameters if full else (),
    )  # fmt: skip
