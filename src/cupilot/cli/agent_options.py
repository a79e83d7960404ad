"""Options that choose the agents, and what language models may cost."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from cupilot.cli.choices import positive, seconds
from cupilot.cli.environment import llm_key
from cupilot.cli.terminal import Terminal
from cupilot.contracts import ROLES
from cupilot.errors import UserError
from cupilot.records import ToolBudget
from cupilot.runs import SearchOptions
from cupilot.runs.agents import EVERY_ROLE, REPLAY, Models


def add_models(parser: ArgumentParser) -> None:
    parser.add_argument("--agents", choices=("expert", "llm"), help="who writes strategies and kernels")
    parser.add_argument(
        "--model",
        metavar="PROVIDER/NAME",
        help="the LLM agents' model, or agent/NAME for a coding agent; see docs/llm-setup.md",
    )
    parser.add_argument(
        "--role-model", metavar="ROLE=PROVIDER/NAME", action="append", type=role_model, default=[],
        help=f"another model for one role ({', '.join(ROLES)})",
    )  # fmt: skip
    parser.add_argument("--prompt-tokens", metavar="N", type=positive, help="longest prompt, for a small window")
    parser.add_argument("--reply-tokens", metavar="N", type=positive, help="longest reply, for a small or slow model")
    most = ToolBudget()
    parser.add_argument(
        "--turns", metavar="N", type=positive, default=most.turns,
        help=f"replies for one kernel, with tools to try it; 1: no tools ({most.turns})",
    )  # fmt: skip
    parser.add_argument(
        "--turn-tokens", metavar="N", type=positive, default=most.tokens,
        help=f"tokens for one kernel, in and out; the reply after that is the last ({most.tokens})",
    )  # fmt: skip
    parser.add_argument(
        "--turn-time", metavar="S", type=seconds, default=most.device_s,
        help=f"seconds that tools may evaluate for one kernel ({most.device_s:g})",
    )  # fmt: skip
    parser.add_argument("--replay", metavar="RUN", help="answer from the calls that this run recorded; costs nothing")
    parser.add_argument("--estimate", action="store_true", help="only say what language models may cost at most")


def role_model(text: str) -> tuple[str, str]:
    role, equals, model = text.partition("=")
    if role not in ROLES or not equals or not model:
        raise ArgumentTypeError(f"{text!r} is not of the form ROLE=PROVIDER/NAME with a role of {', '.join(ROLES)}")
    return role, model


def choose_models(name: str | None, model: str | None, roles: list[tuple[str, str]], terminal: Terminal) -> Models:
    """The model of each role, none for the built-in expert; says which and why."""
    if name == "expert" and (model or roles):
        raise UserError("--model is for LLM agents; leave out --agents expert")
    if name == "llm" and model is None:
        raise UserError("LLM agents need a model: --model PROVIDER/NAME, for instance --model deepseek/deepseek-chat")
    if model is not None:
        terminal.line(f"agents llm: {model}, as asked")
        return ((EVERY_ROLE, model), *roles)
    key = llm_key()
    reason = "as asked" if name is not None else "no LLM key is set"
    if name is None and key is not None:
        reason = f"{key} is set, but no --model is given"
    terminal.line(f"agents expert: {reason}")
    return ()


def show_estimate(asked: SearchOptions, terminal: Terminal) -> dict[str, Any]:
    """Calls, tokens and cost before anything is spent: the most it can come to."""
    from cupilot.agents.call_estimate import plan_calls
    from cupilot.evolution.loop import REVISIONS
    from cupilot.evolution.selection import ELITE
    from cupilot.llm import price_usd

    models, limits = dict(asked.models), asked.prompt_limits
    if not models:
        terminal.line("estimate: the expert asks no language model, so nothing is spent")
        return {"estimate": {"usd": 0.0, "complete": True}}
    rows, total, known = [], 0.0, True
    most = {"prompt_tokens": limits.prompt_tokens, "reply_tokens": limits.reply_tokens}
    for planned in plan_calls(asked.info(), elite=ELITE, revisions=REVISIONS, **most):
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
    return {"estimate": {"usd": total, "complete": known}}
