"""The usage in a native stream if the provider reports none."""

import asyncio
import json
from decimal import Decimal

import pytest

from support.inprocess import SSE, Leaving, inprocess, replying
from support.usage_files import rows
from support.waiting import SECONDS


@pytest.mark.parametrize("dialect", ["messages", "responses"])
async def test_a_native_stream_reports_estimated_usage_if_the_provider_reports_none(tmp_path, dialect):
    """Official clients fail on a `message_start` without usage (CLIENTS 3a); the last event reports what is billed."""
    text = "[[no-usage]] one two three"
    ask = {
        "messages": {"max_tokens": 50, "messages": [{"role": "user", "content": text}]},
        "responses": {"input": text},
    }[dialect]
    async with inprocess(tmp_path) as here:
        before = here.balance()
        reply = await here.post(f"/v1/{dialect}", {"model": "sandbox/echo", "stream": True, **ask})
        events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
        paid = before - here.balance()
    if dialect == "messages":
        assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
        assert events[0]["message"]["usage"]["input_tokens"] > 0
        usage = events[-2]["usage"]
    else:
        usage = events[-1]["response"]["usage"]
    assert usage["output_tokens"] == 6 and paid == (Decimal("0.1") * usage["input_tokens"] + Decimal("0.4") * 6) / 10**6


async def test_a_messages_stream_that_ends_after_its_delta_without_usage_still_fails(tmp_path):
    async with inprocess(tmp_path) as here:
        reply = await here.post(
            "/v1/messages",
            {
                "model": "sandbox/echo",
                "stream": True,
                "max_tokens": 50,
                "messages": [{"role": "user", "content": "[[no-usage]] [[cut=8]] one two"}],
            },
        )
    assert "event: error" in reply.text and "message_stop" not in reply.text


def messages_stream(usage, *deltas):
    """A messages stream whose first event has this usage, and whose `message_delta` events have those."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    events = [
        {"type": "message_start", "message": {**message, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a b c d e f g h"}},
        {"type": "content_block_stop", "index": 0},
        *({"type": "message_delta", "delta": ended, **delta} for delta in deltas),
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


@pytest.mark.parametrize(
    ("usage", "deltas", "written"),
    [
        pytest.param({"input_tokens": 10}, [{}], [8], id="only the input at the start"),
        pytest.param({"input_tokens": 10, "output_tokens": 1}, [{}], [8], id="an early output at the start"),
        pytest.param(
            {"input_tokens": 10, "output_tokens": 1},
            [{"usage": {"output_tokens": 8}}, {}],
            [8, None],
            id="final before",
        ),
    ],
)
async def test_the_end_of_a_messages_stream_has_the_output_unless_an_earlier_event_has_it(
    tmp_path, usage, deltas, written
):
    provider = """
provider: acme
url: app://acme
speaks: {messages: /x}
models: {acme/one: {price: {prompt: "0", completion: "1"}}}
"""
    app = replying(blocks=messages_stream(usage, *deltas), headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        before = here.balance()
        ask = {"model": "acme/one", "stream": True, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
        reply = await here.post("/v1/messages", ask)
        assert before - here.balance() == 8
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
    ends = [event.get("usage", {}).get("output_tokens") for event in events if event["type"] == "message_delta"]
    assert ends == written


RUNNING = {"id": "c", "choices": [{"index": 0, "delta": {"content": "a b c d e f g h"}, "finish_reason": None}],
           "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}}  # fmt: skip
MESSAGE = messages_stream({"input_tokens": 10, "output_tokens": 1}, {"usage": {"output_tokens": 3}})


@pytest.mark.parametrize(
    ("dialect", "sent", "billed"),
    [
        pytest.param("messages", b"".join(MESSAGE[:3]), 8, id="messages, before the final count: an estimate"),
        pytest.param("messages", b"".join(MESSAGE[:5]), 3, id="messages, after it: what was reported"),
        pytest.param("chat", b"data: " + json.dumps(RUNNING).encode() + b"\n\n", 8, id="chat, a running count"),
    ],
)
async def test_a_client_that_leaves_pays_for_the_output_until_then(tmp_path, dialect, sent, billed):
    async def app(method, path, headers, body):
        async def answer():
            yield sent
            await asyncio.sleep(600)

        return 200, SSE, answer()

    provider = f"""
provider: acme
url: app://acme
speaks: {{{dialect}: /x}}
models: {{acme/one: {{price: {{prompt: "0", completion: "1"}}}}}}
"""
    ask = {"model": "acme/one", "stream": True, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        client = Leaving(ask, here.key, blocks=1)
        client.scope["path"] = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}[dialect]
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["output_tokens"], row["cost"], row["estimated"]) == (
        "client_gone",
        billed,
        billed,
        billed == 8,
    )


TEXTS = """
mapping: texts
request: {from_hub: {ask: "{{ $.turns[*].parts[*].text | join }}", live: $.stream}}
response: {to_hub: {parts: [{kind: text, text: $.t}], stop: end, usage: {input: $.in, output: $.out}}}
stream:
  to_hub:
    always: [{delta: {kind: text, text: $.t}}, {usage: {input: $.in, output: $.out}}, {stop: {reason: end}}]
"""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_counts_reported_as_strings_are_used(tmp_path, stream):
    """They are reported to the client as numbers and billed; nothing is estimated instead."""

    async def app(method, path, headers, body):
        async def chunks():
            yield b'{"t": "hi", "in": "70", "out": 3.0}\n'

        return 200, {"content-type": "application/x-ndjson" if stream else "application/json"}, chunks()

    provider = """
provider: acme
url: app://acme
speaks: {texts: {path: /x, framing: ndjson}}
models: {acme/one: {price: {prompt: "1", completion: "10"}}}
"""
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "texts.yaml").write_text(TEXTS)
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        before = here.balance()
        ask = {"model": "acme/one", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        reply = await here.post("/v1/chat/completions", ask)
        paid = before - here.balance()
    assert '"usage":{"prompt_tokens":70,"completion_tokens":3,"total_tokens":73}' in reply.text
    assert paid == 100


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_estimates_are_reported_and_billed_in_the_models_own_tokens(tmp_path, stream):
    """No tokenizer for Claude is available: 100 tokens counted by the gateway are 117 to 147 of Claude's."""
    text = "a sentence of some words, repeated. " * 40

    async def app(method, path, headers, body):
        event = {"id": "c", "choices": [{"index": 0, "finish_reason": "stop", "delta": {"content": text}}]}
        whole = {"id": "c", "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": text}}]}

        async def chunks():
            yield f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode() if stream else json.dumps(whole).encode()

        return 200, {"content-type": "text/event-stream" if stream else "application/json"}, chunks()

    provider = """
provider: acme
url: app://acme
speaks: {chat: /x}
models:
  acme/plain: {price: {prompt: "1", completion: "10"}}
  acme/dense: {price: {prompt: "1", completion: "10"}, can: {tokens_percent: 150}}
"""
    ask = {"max_tokens": 900, "messages": [{"role": "user", "content": text}]}
    counts, paid, most = [], [], []
    async with inprocess(
        tmp_path, providers={"acme": provider}, apps={"acme": app}, settings="credits: {hold_cap: '1000000'}\n"
    ) as here:
        await here.services.ledger.grant("default", Decimal(100_000))
        hold = here.services.ledger.hold

        async def seen(key, amount):
            most.append(amount)
            return await hold(key, amount)

        here.services.ledger.hold = seen
        for model in ("acme/plain", "acme/dense"):
            before = here.balance()
            reply = await here.post("/v1/messages", {"model": model, "stream": stream, **ask})
            assert reply.status_code == 200
            paid.append(before - here.balance())
            counted = await here.post("/v1/messages/count_tokens", {"model": model, **ask})
            assert counted.headers["x-tollgate-estimated"] == "true"
            counts.append(counted.json()["input_tokens"])
    (plain, dense), (held, held_dense) = counts, most
    assert dense == -(-plain * 3 // 2) > 300
    assert Decimal("1.49") < paid[1] / paid[0] < Decimal("1.51")
    assert held_dense - 9_000 == pytest.approx((held - 9_000) * 3 / 2, abs=2)


@pytest.mark.parametrize("way", ["whole", "streamed", "cut off"])
async def test_every_choice_of_an_answer_is_counted(tmp_path, way):
    stream, finish = way != "whole", None if way == "cut off" else "stop"

    async def app(method, path, headers, body):
        numbers = range(json.loads(body)["n"])
        name = "delta" if stream else "message"
        choices = [{"index": at, name: {"content": "a b c d e f g h"}, "finish_reason": finish} for at in numbers]
        events = [json.dumps({"id": "c", "choices": [choice]}) for choice in choices]

        async def chunks():
            if stream:
                for event in events:
                    yield f"data: {event}\n\n".encode()
                if finish:
                    yield b"data: [DONE]\n\n"
            else:
                yield json.dumps({"id": "c", "choices": choices}).encode()

        return 200, {"content-type": "text/event-stream" if stream else "application/json"}, chunks()

    provider = """
provider: acme
url: app://acme
speaks: {chat: /x}
models: {acme/one: {price: {prompt: "0", completion: "1"}}}
"""
    paid = []
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        await here.services.ledger.grant("default", Decimal(1000))
        for choices in (1, 2, 3):
            before = here.balance()
            ask = {"model": "acme/one", "stream": stream, "n": choices, "messages": [{"role": "user", "content": "hi"}]}
            assert (await here.post("/v1/chat/completions", ask)).status_code == 200
            paid.append(before - here.balance())
    assert paid == [8, 16, 24]


@pytest.mark.parametrize("client", ["chat/completions", "messages"], ids=["native", "converted"])
async def test_a_long_answer_without_usage_is_estimated_to_its_end(tmp_path, client):
    """Only the first part of a native stream is kept for the estimate."""
    times = 4000

    def event(text, finish=None):
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"

    blocks = [event(" one two three four five six seven eight") * 40] * (times // 40)
    provider = """
provider: acme
url: app://acme
speaks: {chat: /x}
models: {acme/one: {price: {prompt: "0", completion: "1"}}}
"""
    app = replying(blocks=[*blocks, event("", "stop"), b"data: [DONE]\n\n"], headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        await here.services.ledger.grant("default", Decimal(100_000))
        before = here.balance()
        ask = {"model": "acme/one", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        assert (await here.post(f"/v1/{client}", ask)).status_code == 200
        paid = before - here.balance()
    assert paid == pytest.approx(8 * times, rel=Decimal("0.01"))


@pytest.mark.parametrize(("tools", "counted"), [("$.tools[*].name", True), ("$nothing", False)], ids=["sent", "lost"])
async def test_tools_that_were_not_sent_are_not_in_an_estimate(tmp_path, tools, counted):
    mapping = f"""
mapping: texts
request:
  from_hub: {{prompt: "{{{{ $.turns[*].parts[*].text | join }}}}", tools: "{tools}"}}
response:
  to_hub: {{parts: [{{kind: text, text: $.text}}], stop: end}}
"""
    provider = """
provider: acme
url: app://acme
speaks: {texts: /x}
models: {acme/one: {price: {prompt: "1", completion: "0"}}}
"""
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(100)}}
    asks = {
        "chat/completions": {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]},
        "messages": {"max_tokens": 9, "tools": [{"name": "f", "input_schema": schema}]},
    }
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "texts.yaml").write_text(mapping)
    app = replying(body=b'{"text": "hello"}', headers={"content-type": "application/json"})
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        await here.services.ledger.grant("default", Decimal(100_000))
        for path, ask in asks.items():
            before = here.balance()
            reply = await here.post(
                f"/v1/{path}", {"model": "acme/one", "messages": [{"role": "user", "content": "hi"}], **ask}
            )
            assert reply.status_code == 200
            assert (before - here.balance() > 300) is counted
