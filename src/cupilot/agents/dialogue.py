"""A dialogue with tools about one kernel: the model tries, looks and improves, and submits at the end.

It ends with a submission, or for a stated reason: turns or tokens are spent, the model repeats itself or takes no
action, or it cannot be asked any more.  Then the best kernel of the dialogue is handed in, so that no work is lost.
Every reply is kept as a `Turn`, and a last one without tokens says why a dialogue ended without a submission.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import cast

from cupilot.agents.alignment import Report
from cupilot.agents.replies import ObservedMove
from cupilot.agents.templates import one_line, render_macro
from cupilot.contracts import (
    AgentModel,
    Message,
    Model,
    Reply,
    Request,
    ToolAnswer,
    ToolCall,
    Tools,
    works_alone,
)
from cupilot.errors import ModelError
from cupilot.llm import OverBudget, calls_in, estimate_tokens
from cupilot.records import Failure, Kernel, ToolUse, Turn

CALLS_PER_REPLY = 6
SAME_CALLS = 3
"""So often may a model make one and the same call; then it is stuck."""
EMPTY_REPLIES = 2
CONVERSATION_TOKENS = 60_000
READ_CHARACTERS, KEPT_CHARACTERS = 200_000, 40_000
LEFT_OUT = "[left out for length]"


@dataclass
class Dialogue:
    """One dialogue; `run` carries it out once, and then ``report`` is what the writer says of a submitted kernel.

    ``stage`` is that of a failure without a kernel.  ``window_tokens`` bounds a request: of a longer conversation, the
    oldest code and answers are left out.
    """

    model: Model
    request: Request
    tools: Tools
    role: str
    stage: str
    window_tokens: int = CONVERSATION_TOKENS
    tokens: int = 0
    empty: int = 0
    report: Report | None = None
    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    messages: list[Message] = field(default_factory=list)

    def run(self) -> Kernel | Failure:
        self.messages = list(self.request.messages)
        if works_alone(self.model):
            return self._delegate(cast(AgentModel, self.model))
        left = self.tools.budget.turns
        while left > 0:
            try:
                reply = self.model.complete(self._next())
            except ModelError as error:
                return self._end(f"the model could not be asked any more: {one_line(str(error))}", "no-reply")
            except OverBudget as error:
                if self.tools.best() is None:
                    raise
                return self._end(one_line(str(error)), "no-reply")
            self.tokens += reply.input_tokens + reply.output_tokens
            left = min(left - 1, 1 if self.tokens >= self.tools.budget.tokens else left)
            found = self._take(reply, left)
            if found is not None:
                return found
        return self._end("the turns are spent", "no-submission")

    def _delegate(self, model: AgentModel) -> Kernel | Failure:
        """Leave the dialogue to a model that works on its own."""
        try:
            reply = model.work(self._next(), self.tools)
        except ModelError as error:
            return self._end(one_line(str(error)), "no-reply")
        for turn in reply.turns:
            self.tools.record(turn)
        for call in reply.calls or calls_in(reply.text[:READ_CHARACTERS], self.tools.specs):
            answer, _ = self._call(call, reply)
            if (kernel := self._submitted(answer)) is not None:
                return kernel
            if answer.given_up:
                return Failure(self.stage, "given-up", one_line(answer.given_up))
        return self._end("the agent ended without a submission", "no-submission")

    # --- one reply -------------------------------------------------------------------------

    def _take(self, reply: Reply, left: int) -> Kernel | Failure | None:
        """Carry out what a reply asks for; a kernel or a failure when that ends the dialogue."""
        text, native = reply.text[:READ_CHARACTERS], bool(reply.calls)
        calls = reply.calls or calls_in(text, self.tools.specs)
        calls = tuple(replace(c, id=c.id or f"call_{len(self.messages)}_{n}") for n, c in enumerate(calls))
        self._say(reply, calls if native else ())
        uses: list[ToolUse] = []
        answers: list[tuple[ToolCall, str]] = []
        ended: Kernel | Failure | None = None
        stuck = ""
        for number, call in enumerate(calls):
            if ended is not None or number >= CALLS_PER_REPLY:
                answers.append((call, "not carried out: too many calls in one reply"))
                continue
            answer, remark = self._call(call, reply)
            uses.append(answer.use)
            answers.append((call, f"{answer.text}\n{remark}".strip()))
            ended = self._submitted(answer)
            if answer.given_up:
                ended = Failure(self.stage, "given-up", one_line(answer.given_up))
            if remark and self.seen[self._signature(call, answer)] >= SAME_CALLS:
                stuck = f"it made the same call of {call.name} {SAME_CALLS} times"
        self.empty = 0 if calls else self.empty + 1
        if self.empty >= EMPTY_REPLIES:
            stuck = f"{EMPTY_REPLIES} replies without an action"
        note = "" if calls else "no action in the reply"
        self.tools.record(Turn(self.role, tuple(uses), reply.input_tokens, reply.output_tokens, note))
        if ended is not None:
            return ended
        if stuck:
            return self._end(stuck, "no-submission")
        self._answer(answers, native, left)
        return None

    def _call(self, call: ToolCall, reply: Reply) -> tuple[ToolAnswer, str]:
        """The answer, and a remark on a call that was made before."""
        try:
            arguments = json.loads(call.arguments or "{}", strict=False)
            if not isinstance(arguments, dict):
                raise ValueError("they are not an object")
        except (ValueError, RecursionError) as error:
            cut = f"the reply was cut off at {self.request.max_tokens} tokens" if reply.cut else ""
            why = cut or one_line(str(error))
            answer = ToolAnswer(render_macro("dialogue", "broken", why), ToolUse(call.name, f"not called: {why}"))
        else:
            answer = self.tools.call(call.name, arguments)
        signature = self._signature(call, answer)
        self.seen[signature] += 1
        return answer, render_macro("dialogue", "repeated", call.name) if self.seen[signature] > 1 else ""

    def _submitted(self, answer: ToolAnswer) -> Kernel | None:
        if answer.submitted is not None:
            self.report = Report(tuple(ObservedMove(move, quote) for move, quote in answer.moves), answer.notes)
        return answer.submitted

    @staticmethod
    def _signature(call: ToolCall, answer: ToolAnswer) -> tuple[str, str, str]:
        return call.name, "" if answer.use.kernel else call.arguments, f"{answer.use.kernel} {answer.use.outcome}"

    # --- the conversation ------------------------------------------------------------------

    def _say(self, reply: Reply, calls: tuple[ToolCall, ...]) -> None:
        """The model's own message, shortened where it is far too long to be sent again."""
        text = reply.text if len(reply.text) <= KEPT_CHARACTERS else f"{reply.text[:KEPT_CHARACTERS]}\n{LEFT_OUT}"
        kept = tuple(c if len(c.arguments) <= KEPT_CHARACTERS else replace(c, arguments=_EMPTIED) for c in calls)
        self.messages.append(Message("assistant", text or ("" if kept else "(no text)"), kept, extra=reply.extra))

    def _answer(self, answers: list[tuple[ToolCall, str]], native: bool, left: int) -> None:
        if left == 0:
            return
        turns = render_macro("dialogue", "left", left)
        if not answers:
            names = [tool.name for tool in self.tools.specs]
            self.messages.append(Message("user", f"{render_macro('dialogue', 'no_action', names)}\n{turns}"))
        elif native:
            *before, (call, text) = answers
            self.messages += [Message("tool", said, call_id=asked.id) for asked, said in before]
            self.messages.append(Message("tool", f"{text}\n\n{turns}", call_id=call.id))
        else:
            parts = [render_macro("dialogue", "answer", call.name, text) for call, text in answers]
            self.messages.append(Message("user", "\n\n".join((*parts, turns))))

    def _next(self) -> Request:
        """The next request, short enough for the window."""
        messages = list(self.messages)
        first, last = len(self.request.messages), len(messages) - 2
        for place in range(first, last):
            if _tokens(messages) <= self.window_tokens:
                break
            messages[place] = _emptied(messages[place])
        return replace(self.request, messages=tuple(messages), tools=self.tools.specs)

    # --- the end ---------------------------------------------------------------------------

    def _end(self, why: str, kind: str) -> Kernel | Failure:
        """Without a submission: the best kernel there is, and a turn that says why."""
        kernel = self.tools.best()
        handed = "; its best kernel is handed in" if kernel is not None else ""
        self.tools.record(Turn(self.role, note=f"{why}{handed}"))
        return kernel or Failure(self.stage, kind, why)


_EMPTIED = json.dumps({"code": LEFT_OUT})


def _emptied(message: Message) -> Message:
    calls = tuple(c if len(c.arguments) < len(_EMPTIED) else replace(c, arguments=_EMPTIED) for c in message.calls)
    return replace(message, text=LEFT_OUT if len(message.text) > len(LEFT_OUT) else message.text, calls=calls)


def _tokens(messages: list[Message]) -> int:
    return sum(estimate_tokens(m.text) + sum(estimate_tokens(c.arguments) for c in m.calls) for m in messages)
