"""Open the agents of a run: the built-in expert, or LLM agents with a model for each role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cupilot.contracts import Agents, Model, Store
from cupilot.errors import UserError
from cupilot.evolution.store import FILE
from cupilot.records import RunInfo
from cupilot.strategies import Deck

EVERY_ROLE = "all"
REPLAY = "replay/"
IN_FLIGHT = 4
LLM_IN_FLIGHT = 12
"""Candidates in flight with LLM agents: replies take long (benchmarks/scheduling.py: the device is never idle).  With
both, at most half the population."""

Models = tuple[tuple[str, str], ...]
Spent = Callable[[], tuple[int, float]]


@dataclass(frozen=True)
class PromptLimits:
    """The longest prompt and reply in tokens; None leaves each role its own."""

    prompt_tokens: int | None = None
    reply_tokens: int | None = None


NO_LIMITS = PromptLimits()


@contextmanager
def open_agents(
    info: RunInfo,
    store: Store,
    *,
    folder: Path,
    deck: Callable[[], Deck],
    keys: Mapping[str, str],
    limits: PromptLimits = NO_LIMITS,
    replay: Path | None = None,
) -> Iterator[tuple[Agents, Spent]]:
    """The agents, and what they have spent so far: tokens and US dollars.

    Calls to models are recorded in the run's store file and closed with the block.  ``deck`` gives the cards that LLM
    agents are shown; the expert keeps to those that its recipes realise.
    """
    if info.agents == "expert":
        from cupilot.expert import Expert

        yield Expert(), lambda: (0, 0.0)
        return
    from cupilot.agents import LlmAgents
    from cupilot.llm import CappedModel, Recorder, SqliteCallLog, Usage

    (limits,) = store.once("limits", PromptLimits, lambda: (limits,))
    with ExitStack() as opened:
        usage, calls = Usage(), SqliteCallLog(folder / FILE)
        opened.callback(calls.close)
        caps = info.budget.tokens, info.budget.usd
        models = {
            role: Recorder(CappedModel(_open_model(model, info.task, keys, replay, opened), usage, *caps), calls, usage)
            for role, model in info.models
        }
        agents = LlmAgents(
            models.pop(EVERY_ROLE), models=models, deck=deck(),
            prompt_tokens=limits.prompt_tokens, reply_tokens=limits.reply_tokens,
        )  # fmt: skip

        def spent() -> tuple[int, float]:
            so_far = usage.spent
            return so_far.input_tokens + so_far.output_tokens, so_far.price_usd

        yield agents, spent


def _open_model(name: str, task: str, keys: Mapping[str, str], replay: Path | None, opened: ExitStack) -> Model:
    from cupilot.llm import LabelledReplay, Replay, SqliteCallLog, is_agent, open_agent, open_model, without_address

    if replay is not None:
        recorded = SqliteCallLog(replay / FILE, readonly=True)
        opened.callback(recorded.close)
        return Replay(recorded, without_address(name))
    if name.startswith(REPLAY):
        return LabelledReplay(transcript(Path(name.removeprefix(REPLAY)), task), name)
    if is_agent(name):
        return open_agent(name, keys=keys)
    return open_model(name, keys=keys)


def transcript(place: Path, task: str) -> Path:
    """The transcript of a task: the file named, or the task's own in a folder."""
    for path in (place, place / f"{task}.jsonl", place / "transcripts" / f"{task}.jsonl"):
        if path.is_file():
            return path
    raise UserError(f"there is no transcript for {task} in {place}")
