"""Who writes strategies and kernels: the built-in expert, or LLM agents with a model for each role."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cupilot.cli.choices import positive
from cupilot.cli.environment import llm_key, llm_keys
from cupilot.cli.terminal import Terminal
from cupilot.contracts import ROLES, Agents, Model
from cupilot.errors import UserError
from cupilot.evolution.store import FILE, SqliteStore
from cupilot.records import RunInfo
from cupilot.strategies import Deck

if TYPE_CHECKING:
    from cupilot.llm import Usage

EVERY_ROLE = "all"
REPLAY = "replay/"
# candidates under way with LLM agents: replies take long (benchmarks/scheduling.py: the device is never idle)
LLM_IN_FLIGHT = 12

Models = tuple[tuple[str, str], ...]


@dataclass
class Team:
    """The agents of a run, what they cost so far, and what has to be closed after them."""

    agents: Agents
    usage: Usage | None = None
    closing: ExitStack = field(default_factory=ExitStack)

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars so far."""
        if self.usage is None:
            return 0, 0.0
        spent = self.usage.spent
        return spent.input_tokens + spent.output_tokens, spent.price_usd


def add_models(parser: ArgumentParser) -> None:
    parser.add_argument("--agents", choices=("expert", "llm"), help="who writes strategies and kernels")
    parser.add_argument("--model", metavar="PROVIDER/NAME", help="the LLM agents' model; see docs/llm-setup.md")
    parser.add_argument(
        "--role-model", metavar="ROLE=PROVIDER/NAME", action="append", type=role_model, default=[],
        help=f"another model for one role ({', '.join(ROLES)})",
    )  # fmt: skip
    parser.add_argument("--prompt-tokens", metavar="N", type=positive, help="longest prompt, for a small window")
    parser.add_argument("--reply-tokens", metavar="N", type=positive, help="longest reply, for a small or slow model")
    parser.add_argument("--replay", metavar="RUN", help="answer from the calls that this run recorded; costs nothing")
    parser.add_argument("--estimate", action="store_true", help="only say what language models may cost at most")


def role_model(text: str) -> tuple[str, str]:
    role, equals, model = text.partition("=")
    if role not in ROLES or not equals or not model:
        raise ArgumentTypeError(f"{text!r} is not of the form ROLE=PROVIDER/NAME with a role of {', '.join(ROLES)}")
    return role, model


def choose_team(
    name: str | None, model: str | None, roles: list[tuple[str, str]], terminal: Terminal
) -> tuple[str, Models]:
    """Which agents, and the models of each role; says which and why."""
    if name == "expert" and (model or roles):
        raise UserError("--model is for LLM agents; leave out --agents expert")
    if name == "llm" and model is None:
        raise UserError("LLM agents need a model: --model PROVIDER/NAME, for instance --model deepseek/deepseek-chat")
    if model is not None:
        terminal.line(f"agents llm: {model}, as asked")
        return "llm", ((EVERY_ROLE, model), *roles)
    key = llm_key()
    reason = "as asked" if name is not None else "no LLM key is set"
    if name is None and key is not None:
        reason = f"{key} is set, but no --model is given"
    terminal.line(f"agents expert: {reason}")
    return "expert", ()


@dataclass(frozen=True)
class Lengths:
    """The longest prompt and reply, where they are to be shorter than the roles have them by themselves."""

    prompt_tokens: int | None = None
    reply_tokens: int | None = None


def open_team(
    info: RunInfo, store: SqliteStore, deck: Callable[[], Deck], lengths: Lengths, replay: str | None = None
) -> Team:
    """Make the agents; calls to models are recorded in the run's store.

    ``deck`` gives the cards that LLM agents are shown; the expert keeps to those that its recipes realise.
    """
    if info.agents == "expert":
        from cupilot.expert import Expert

        return Team(Expert())
    from cupilot.agents import LlmAgents
    from cupilot.llm import CappedModel, Recorder, SqliteCallLog, Usage

    usage, closing = Usage(), ExitStack()
    (lengths,) = store.once("lengths", Lengths, lambda: (lengths,))
    log = SqliteCallLog(store.path)
    closing.callback(log.close)
    caps = info.budget.tokens, info.budget.usd
    opened = {
        role: Recorder(CappedModel(_open(model, info.task, replay, closing), usage, *caps), log, usage)
        for role, model in info.models
    }
    agents = LlmAgents(
        opened.pop(EVERY_ROLE), models=opened, deck=deck(),
        prompt_tokens=lengths.prompt_tokens, reply_tokens=lengths.reply_tokens,
    )  # fmt: skip
    return Team(agents, usage, closing)


def show_estimate(info: RunInfo, lengths: Lengths, terminal: Terminal) -> None:
    """Calls, tokens and cost before anything is spent: the most it can come to."""
    from cupilot.agents.call_estimate import plan_calls
    from cupilot.evolution.loop import ELITE, REVISIONS
    from cupilot.llm import price_usd

    models = dict(info.models)
    if not models:
        terminal.line("estimate: the expert asks no language model, so nothing is spent")
        return
    rows, total, known = [], 0.0, True
    most = {"prompt_tokens": lengths.prompt_tokens, "reply_tokens": lengths.reply_tokens}
    for planned in plan_calls(info, elite=ELITE, revisions=REVISIONS, **most):
        model = models.get(planned.role, models[EVERY_ROLE])
        price = None if model.startswith(REPLAY) else price_usd(model, planned.prompt_tokens, planned.reply_tokens)
        free = model.startswith(REPLAY)
        cost = 0.0 if free else None if price is None else price * planned.calls
        total, known = total + (cost or 0.0), known and cost is not None
        tokens = f"{planned.calls * planned.prompt_tokens} + {planned.calls * planned.reply_tokens}"
        shown = "unknown" if cost is None else f"{cost:.2f} USD"
        rows.append((planned.prompt.replace("_", ": "), str(planned.calls), tokens, shown, model))
    terminal.table(("role: purpose", "calls", "tokens in + out", "cost", "model"), rows, emphasis=0)
    terminal.line(
        f"at most {total:.2f} USD" if known else f"at most {total:.2f} USD for the calls whose price is known"
    )


def _open(name: str, task: str, replay: str | None, closing: ExitStack) -> Model:
    from cupilot.llm import LabelledReplay, Replay, SqliteCallLog, open_model

    if replay is not None:
        log = SqliteCallLog(Path(replay) / FILE, readonly=True)
        closing.callback(log.close)
        return Replay(log, name)
    if name.startswith(REPLAY):
        return LabelledReplay(transcript(Path(name.removeprefix(REPLAY)), task), name)
    keys: Mapping[str, str] = llm_keys()
    return open_model(name, keys=keys)


def transcript(place: Path, task: str) -> Path:
    """The transcript of a task: the file named, or the task's own in a folder."""
    for path in (place, place / f"{task}.jsonl", place / "transcripts" / f"{task}.jsonl"):
        if path.is_file():
            return path
    raise UserError(f"there is no transcript for {task} in {place}")
