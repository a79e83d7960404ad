"""One model against a server of every kind of behaviour."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from itertools import count

import fakeserver as fake
import pytest
from fakeserver import FakeServer

from cupilot.contracts import Message, Model, Reply, Request
from cupilot.errors import ModelError
from cupilot.llm import RequestRejected, Unavailable
from cupilot.llm.chat import BODY_LIMIT_BYTES
from cupilot.testing import ModelContract

Serve = Callable[..., FakeServer]
Connect = Callable[..., Model]

ASKED = Request((Message("system", "Be brief."), Message("user", "Say hello.")), temperature=0.5, sample=3)
SCHEMA = json.dumps({"type": "object", "properties": {}, "required": [], "additionalProperties": False})
KEY = "sk-secret-0123456789"


class TestOpenAiCompatible(ModelContract):
    @pytest.fixture
    def model(self, serve: Serve, connect: Connect) -> Model:
        return connect(serve(fake.says("Hello.")))

    @pytest.fixture
    def failing_model(self, serve: Serve, connect: Connect) -> Model:
        return connect(serve(fake.fails(404)))


class TestAnthropic(ModelContract):
    @pytest.fixture(autouse=True)
    def sdk(self) -> None:
        pytest.importorskip("anthropic", reason="needs cupilot[llm]")

    @pytest.fixture
    def model(self, serve: Serve, connect: Connect) -> Model:
        return connect(serve(fake.anthropic_says("Hello.")), "anthropic/m", keys={"ANTHROPIC_API_KEY": KEY})

    @pytest.fixture
    def failing_model(self, serve: Serve, connect: Connect) -> Model:
        return connect(serve(fake.fails(404)), "anthropic/m", keys={"ANTHROPIC_API_KEY": KEY})

    def test_speaks_the_messages_dialect(self, serve: Serve, connect: Connect) -> None:
        server = serve(fake.anthropic_says("<think>hm</think>Hello.", stop="max_tokens"))
        model = connect(server, "anthropic/m", keys={"ANTHROPIC_API_KEY": KEY})
        asked = Request(ASKED.messages, schema=SCHEMA, max_tokens=9)
        assert model.complete(asked) == Reply("Hello.", 10, 5, "anthropic/m", cut=True)
        sent = server.requests[0]
        assert (sent["system"], sent["max_tokens"]) == ("Be brief.", 9)
        assert sent["messages"] == [{"role": "user", "content": "Say hello."}]
        assert sent["output_config"]["format"] == {"type": "json_schema", "schema": json.loads(SCHEMA)}
        assert "temperature" not in sent
        assert [KEY in value for value in server.headers[0].values()].count(True) == 1

    def test_a_model_without_schemas_is_told_in_words(self, serve: Serve, connect: Connect) -> None:
        refusal = fake.fails(400, "output_config.format: not supported by this model")
        server = serve(refusal, refusal, fake.anthropic_says("{}"))
        model = connect(server, "anthropic/m", keys={"ANTHROPIC_API_KEY": KEY})
        assert model.complete(Request(ASKED.messages, schema=SCHEMA)).text == "{}"
        assert "output_config" not in server.requests[-1]
        assert SCHEMA in server.requests[-1]["messages"][-1]["content"]

    def test_overloaded_is_waited_for(self, serve: Serve, connect: Connect, waits_s: list[float]) -> None:
        server = serve(fake.fails(529, "Overloaded"), fake.anthropic_says("Hello."))
        model = connect(server, "anthropic/m", keys={"ANTHROPIC_API_KEY": KEY})
        assert model.complete(ASKED).text == "Hello."
        assert len(waits_s) == 1


# --- what is sent and what comes back -------------------------------------------------------


def test_a_plain_exchange(serve: Serve, connect: Connect) -> None:
    server = serve(fake.says("Hello."))
    assert connect(server).complete(ASKED) == Reply("Hello.", 7, 5, "local/m", cut=False)
    assert server.paths == ["/v1/chat/completions"]
    assert server.requests[0] == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}],
        "max_tokens": 4096,
        "temperature": 0.5,
        "seed": 3,
    }


def test_a_schema_is_sent_as_such(serve: Serve, connect: Connect) -> None:
    server = serve(fake.says("{}"))
    connect(server).complete(Request(ASKED.messages, schema=SCHEMA))
    form = server.requests[0]["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"] == json.loads(SCHEMA)
    assert server.requests[0]["messages"][-1]["content"] == "Say hello."


def test_forms_weaken_until_the_server_takes_one_and_stay_there(serve: Serve, connect: Connect) -> None:
    refusal = fake.fails(400, "Unsupported value: 'response_format'")
    server = serve(refusal, refusal, fake.says("{}"))
    model = connect(server)
    asked = Request(ASKED.messages, schema=SCHEMA)
    model.complete(asked)
    model.complete(asked)
    sent = [(r.get("response_format") or {}).get("type") for r in server.requests]
    assert sent == ["json_schema", "json_object", None, None]
    assert SCHEMA not in server.requests[0]["messages"][-1]["content"]
    assert all(SCHEMA in r["messages"][-1]["content"] for r in server.requests[1:])


def test_what_a_reasoning_model_does_not_take_is_left_out(serve: Serve, connect: Connect) -> None:
    server = serve(
        fake.fails(400, "Unsupported value: 'temperature' does not support 0.5 with this model."),
        fake.fails(400, "max_completion_tokens is too large: 20480"),
        fake.says("Hello."),
    )
    assert connect(server, "openai/m", keys={"OPENAI_API_KEY": KEY}).complete(ASKED).text == "Hello."
    assert [request.get("temperature") for request in server.requests] == [0.5, None, None]
    assert [request["max_completion_tokens"] for request in server.requests] == [20480, 20480, 4096]
    assert "seed" not in server.requests[0]


def test_a_request_that_stays_unwelcome_is_refused(serve: Serve, connect: Connect) -> None:
    server = serve(fake.fails(400, "response_format, temperature, seed and max_tokens: I take nothing at all"))
    with pytest.raises(RequestRejected, match=r"did not accept the request \(status 400: response_format"):
        connect(server).complete(Request(ASKED.messages, schema=SCHEMA))
    assert len(server.requests) == 5, "two weaker forms, no temperature, no seed; there was no room for thinking"


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(fake.says("<think>first\n</think>\n\nHello."), id="a block"),
        pytest.param(fake.says("first</think>Hello."), id="opened by the prompt"),
        pytest.param(fake.says("Hello.", reasoning_content="first"), id="a field"),
        pytest.param(fake.says([{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hello."}]), id="parts"),  # type: ignore[arg-type]
    ],
)
def test_thinking_is_dropped(serve: Serve, connect: Connect, behaviour: fake.Behaviour) -> None:
    assert connect(serve(behaviour)).complete(ASKED).text == "Hello."


def test_a_cut_reply_says_so(serve: Serve, connect: Connect) -> None:
    reply = connect(serve(fake.says("Hel", finish="length"))).complete(ASKED)
    assert reply == Reply("Hel", 7, 5, "local/m", cut=True)


def test_thinking_that_used_up_the_tokens_leaves_an_empty_cut_reply(serve: Serve, connect: Connect) -> None:
    reply = connect(serve(fake.says(None, finish="length", reasoning_content="hm"))).complete(ASKED)
    assert reply == Reply("", 7, 5, "local/m", cut=True)


def test_uncounted_tokens_are_estimated_and_marked(serve: Serve, connect: Connect) -> None:
    reply = connect(serve(fake.says("x" * 40, usage=None))).complete(ASKED)
    assert reply == Reply("x" * 40, 5, 10, "local/m", cut=False, estimated=True)


def test_hidden_thinking_counts_as_output(serve: Serve, connect: Connect) -> None:
    body = fake.completion("Hello.")
    body["usage"] = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 112}
    reply = connect(serve(fake.sends(json.dumps(body).encode()))).complete(ASKED)
    assert (reply.input_tokens, reply.output_tokens) == (7, 105)


def test_half_characters_in_a_prompt_are_replaced(serve: Serve, connect: Connect) -> None:
    server = serve(fake.says("Hello."))
    connect(server).complete(Request((Message("user", "log: \udc80"),)))
    assert server.requests[0]["messages"][0]["content"] == "log: ?"


# --- failures that pass ---------------------------------------------------------------------


def test_waits_as_long_as_asked(serve: Serve, connect: Connect, waits_s: list[float]) -> None:
    server = serve(
        fake.fails(429, retry_after="17"),
        fake.fails(429, retry_after_ms="19500"),
        fake.fails(429, retry_after="Fri, 02 Jan 2026 10:00:30 GMT", date="Fri, 02 Jan 2026 10:00:05 GMT"),
        fake.says("Hello."),
    )
    assert connect(server).complete(ASKED).text == "Hello."
    assert waits_s == [17.0, 19.5, 25.0]
    assert len(server.requests) == 4


def test_backs_off_with_jitter(serve: Serve, connect: Connect, waits_s: list[float]) -> None:
    server = serve(fake.fails(500), fake.fails(502), fake.fails(503), fake.says("Hello."))
    connect(server).complete(ASKED)
    assert [wait <= nominal for wait, nominal in zip(waits_s, (1, 2, 4), strict=True)] == [True] * 3
    assert [wait >= nominal / 2 for wait, nominal in zip(waits_s, (1, 2, 4), strict=True)] == [True] * 3
    assert len({wait / nominal for wait, nominal in zip(waits_s, (1, 2, 4), strict=True)}) == 3


def test_gives_up_after_the_retries(serve: Serve, connect: Connect, waits_s: list[float]) -> None:
    server = serve(fake.fails(500, "boom"))
    with pytest.raises(Unavailable, match=r"local/m: the server failed \(status 500: boom\); asked 3 times"):
        connect(server, retries=2).complete(ASKED)
    assert (len(server.requests), len(waits_s)) == (3, 2)


def test_does_not_wait_for_hours(serve: Serve, connect: Connect, waits_s: list[float]) -> None:
    with pytest.raises(Unavailable, match="it asks to wait 3600 s"):
        connect(serve(fake.fails(429, retry_after="3600"))).complete(ASKED)
    assert waits_s == []


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        pytest.param(fake.drops_before_answering, "cannot be reached", id="dropped"),
        pytest.param(fake.drops_in_the_middle, "broke off", id="dropped in the middle"),
        pytest.param(fake.sends(b'{"choices": [{]'), "other than a reply: .*choices", id="garbage"),
        pytest.param(
            fake.sends(b"<html>502</html>", content_type="text/html"), "other than a reply: <html>", id="a page"
        ),
        pytest.param(fake.sends(b"[]"), "other than a reply", id="another JSON"),
        pytest.param(fake.sends(b'{"choices": []}'), "other than a reply", id="no choices"),
        pytest.param(fake.sends(b'{"choices": [{"message": {"content": 7}}]}'), "other than a reply", id="a number"),
        pytest.param(fake.sends(b'{"choices":' + b"[" * 100_000), "other than a reply", id="nested without end"),
        pytest.param(fake.sends(b'{"error": {"code": 429, "message": "slow"}}'), "for now .*slow", id="200 but 429"),
    ],
)
def test_other_failures_that_may_pass(
    serve: Serve, connect: Connect, behaviour: fake.Behaviour, said: str, waits_s: list[float]
) -> None:
    server = serve(behaviour, fake.says("Hello."))
    with pytest.raises(Unavailable, match=said):
        connect(server, retries=0).complete(ASKED)
    server = serve(behaviour, fake.says("Hello."))
    assert connect(server).complete(ASKED).text == "Hello.", "the same failure, this time with retries"
    assert len(waits_s) == 1


def test_a_server_that_hangs(serve: Serve, connect: Connect) -> None:
    with pytest.raises(Unavailable, match=r"no answer within 0\.2 s; asked 2 times"):
        connect(serve(fake.hangs), retries=1, timeout_s=0.2).complete(ASKED)


def test_a_server_that_stops_in_the_middle(serve: Serve, connect: Connect) -> None:
    with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
        connect(serve(fake.trickles), retries=0, timeout_s=0.2).complete(ASKED)


def test_the_time_limit_is_for_the_whole_answer(serve: Serve, connect: Connect) -> None:
    seconds = count(0.0, 20.0)  # each look at the clock is 20 s later
    with pytest.raises(Unavailable, match="no answer within 10 s"):
        connect(serve(fake.trickles), retries=0, timeout_s=10.0, clock=lambda: next(seconds)).complete(ASKED)


def test_nobody_there(serve: Serve, connect: Connect) -> None:
    server = serve(fake.says("Hello."))
    server.close()
    with pytest.raises(Unavailable, match=r"the server at 127.0.0.1:\d+ cannot be reached"):
        connect(server, retries=0).complete(ASKED)


# --- failures that stay ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (fake.fails(400, "bad"), "did not accept the request"),
        (fake.fails(401, "who?"), "wants a key, and LOCAL_LLM_API_KEY is not set"),
        (fake.fails(402, "pay"), "no credit left"),
        (fake.fails(403, "no"), "may not use this model"),
        (fake.fails(404, "m?"), "does not know this model"),
        (fake.fails(429, "You exceeded your current quota", "insufficient_quota"), "exceeded your current quota"),
        (fake.sends(b"x" * (BODY_LIMIT_BYTES + 1)), f"more than {BODY_LIMIT_BYTES} bytes"),
    ],
)
def test_asks_once_when_asking_again_would_not_help(
    serve: Serve, connect: Connect, behaviour: fake.Behaviour, said: str
) -> None:
    server = serve(behaviour)
    with pytest.raises(RequestRejected, match=said):
        connect(server).complete(ASKED)
    assert len(server.requests) == 1


def test_a_request_without_a_question(serve: Serve, connect: Connect) -> None:
    server = serve(fake.says("Hello."))
    with pytest.raises(RequestRejected, match="at least one message"):
        connect(server).complete(Request((Message("system", "Be brief."),)))
    assert server.requests == []


# --- keys -----------------------------------------------------------------------------------


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_a_wrong_key_names_its_variable(serve: Serve, connect: Connect) -> None:
    with pytest.raises(RequestRejected, match="did not accept the key in OPENAI_API_KEY"):
        connect(serve(fake.fails(401)), "openai/m", keys={"OPENAI_API_KEY": KEY}).complete(ASKED)


@pytest.mark.parametrize("behaviour", [fake.echoes_key(401), fake.echoes_key(500), fake.drops_before_answering])
def test_no_error_holds_the_key(serve: Serve, connect: Connect, behaviour: fake.Behaviour) -> None:
    model = connect(serve(behaviour), "openai/m", keys={"OPENAI_API_KEY": KEY}, retries=1)
    with pytest.raises(ModelError) as caught:
        model.complete(ASKED)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert "\x1b" not in str(caught.value)
    assert KEY not in repr(model)
    for error in chain(caught.value):
        assert isinstance(error, ModelError), "the SDK's errors hold the request, and with it the key"
        assert KEY not in repr(vars(error))


def test_the_key_goes_to_the_server_and_no_other_does(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-the-environment")
    server = serve(fake.says("Hello."))
    connect(server).complete(ASKED)
    connect(server, keys={"LOCAL_LLM_API_KEY": KEY}).complete(ASKED)
    assert [headers["authorization"] for headers in server.headers] == ["Bearer none", f"Bearer {KEY}"]
    assert "of-the-environment" not in repr(server.headers)


# --- many at once ---------------------------------------------------------------------------


def test_the_gate_limits_calls_of_all_models_that_share_it(serve: Serve, connect: Connect) -> None:
    lock, running, most = threading.Lock(), 0, 0
    meet = threading.Barrier(2)

    def behave(handler: fake.Handler, body: dict[str, object]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meet.wait(timeout=20)  # two have to be here at once, or this fails
        with lock:
            running -= 1
        fake.says("Hello.")(handler, body)

    server, semaphore = serve(behave), threading.BoundedSemaphore(2)
    models = [connect(server, semaphore=semaphore), connect(server, "vllm/m", semaphore=semaphore)]
    replies: list[str] = []
    threads = [
        threading.Thread(target=lambda model=model: replies.append(model.complete(ASKED).text)) for model in models * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert replies == ["Hello."] * 6
    assert most == 2
