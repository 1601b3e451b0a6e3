"""Long conversations are converted off the event loop: other requests are answered meanwhile, and the client may
leave."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
from decimal import Decimal

import pytest

from completions.plain_chat import GOOD, SECRET, provider
from support.inprocess import Leaving, inprocess, replying
from support.stores import available_to
from support.usage_files import rows
from support.waiting import SECONDS
from tollgate.completions.off_loop import is_long

TURNS = 40_000
LONG = {
    "model": "acme/one",
    "max_tokens": 5,
    "messages": [{"role": ("user", "assistant")[n % 2], "content": f"turn {n}"} for n in range(TURNS - 1)],
}


def test_a_body_is_long_by_its_objects_not_by_its_text():
    assert is_long(json.dumps(LONG).encode())
    assert not is_long(json.dumps({**LONG, "messages": LONG["messages"][:300]}).encode())
    assert not is_long(json.dumps({**LONG, "messages": [{"role": "user", "content": "x" * 1_000_000}]}).encode())
    assert is_long(json.dumps({**LONG, "messages": [], "tools": [[0]] * 20_000}).encode())
    assert is_long(json.dumps({**LONG, "messages": [], "metadata": [0] * 600_000}).encode())


EMBEDDING = """
provider: embed
url: app://acme/v1
speaks: {embeddings: /embeddings}
models:
  embed/one: {type: embedding}
"""


@pytest.mark.parametrize(
    ("path", "place", "body"),
    [
        ("/v1/chat/completions", "tollgate.completions.request.needs_of", {}),
        ("/v1/chat/completions", "tollgate.completions.request.referenced_ids", {}),
        ("/v1/chat/completions", "tollgate.completions.request.looked_up_ids", {}),
        ("/v1/messages/count_tokens", "tollgate.completions.counting.read_json", {}),
        ("/v1/messages/count_tokens", "tollgate.tokens.request_texts", {}),
        ("/v1/embeddings", "tollgate.embeddings.read_request", {"model": "embed/one", "input": "hi"}),
    ],
)
async def test_a_large_body_is_processed_off_the_event_loop(tmp_path, monkeypatch, path, place, body):
    monkeypatch.setattr(sys.modules[is_long.__module__], "_LARGE_READ", 10)
    module, _, name = place.rpartition(".")
    work, threads = getattr(importlib.import_module(module), name), []
    monkeypatch.setattr(
        place, lambda *args, **options: threads.append(threading.current_thread()) or work(*args, **options)
    )
    providers = {"acme": provider("acme"), "embed": EMBEDDING}
    async with inprocess(tmp_path, providers=providers, apps={"acme": replying(body=GOOD)}, environ=SECRET) as here:
        await here.post(path, body or {**LONG, "messages": LONG["messages"][:1]})
        assert threads and threading.main_thread() not in threads


@pytest.mark.parametrize("turns", [2, 2000])
async def test_a_provider_s_edits_of_a_long_request_for_a_count_run_off_the_event_loop(tmp_path, monkeypatch, turns):
    seen, threads = [], []
    work = importlib.import_module("tollgate.completions.counting").native_document
    monkeypatch.setattr(
        "tollgate.completions.counting.native_document",
        lambda *args, **options: threads.append(threading.current_thread()) or work(*args, **options),
    )
    speaks = """speaks:
  messages: {path: /messages, count_tokens: /count, request: [{set: {edited: true}}]}
url: app://acme
"""
    edited = provider("acme").replace("speaks: chat\nurl: app://acme/chat\n", speaks)
    answer = replying(body=b'{"input_tokens": 7}', seen=seen)
    async with inprocess(tmp_path, providers={"acme": edited}, apps={"acme": answer}, environ=SECRET) as here:
        counted = await here.post("/v1/messages/count_tokens", {**LONG, "messages": LONG["messages"][:turns]})
    assert counted.json() == {"input_tokens": 7} and json.loads(seen[0][3])["edited"] is True
    assert [thread is threading.main_thread() for thread in threads] == [turns == 2]


async def test_other_requests_are_answered_while_a_long_conversation_is_converted(tmp_path):
    seen: list = []
    async with inprocess(
        tmp_path, providers={"acme": provider("acme")}, apps={"acme": replying(body=GOOD, seen=seen)}, environ=SECRET
    ) as here:
        request = asyncio.ensure_future(here.post("/v1/messages", LONG))
        answered = 0
        while not request.done():
            assert (await here.get("/healthz")).status_code == 200
            answered += 1
            await asyncio.sleep(0.001)
        assert (await request).status_code == 200
        assert answered > 8, "on the loop other requests only run between the steps: 2 of them"
        assert [turn["content"] for turn in json.loads(seen[0][3])["messages"]] == [
            turn["content"] for turn in LONG["messages"]
        ]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_large_answer_is_processed_off_the_event_loop(tmp_path, monkeypatch, path):
    monkeypatch.setattr(sys.modules[is_long.__module__], "_LARGE_READ", 100)
    judged, threads = importlib.import_module("tollgate.completions.whole").judged_answer, []
    monkeypatch.setattr(
        "tollgate.completions.whole.judged_answer",
        lambda *args: threads.append(threading.current_thread()) or judged(*args),
    )
    async with inprocess(
        tmp_path, providers={"acme": provider("acme")}, apps={"acme": replying(body=GOOD)}, environ=SECRET
    ) as here:
        assert (await here.post(path, {**LONG, "messages": LONG["messages"][:1]})).status_code == 200
        assert threads and threading.main_thread() not in threads


@pytest.mark.parametrize("stream", [False, True], ids=["an answer", "an event"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_an_answer_with_too_many_values_is_rejected(tmp_path, monkeypatch, caplog, path, stream):
    monkeypatch.setattr(sys.modules[is_long.__module__], "_LARGE_READ", 100)
    monkeypatch.setattr("tollgate.completions.judging._MOST_VALUES", 100)
    for module in ("native", "route_events"):
        monkeypatch.setattr(f"tollgate.completions.{module}.LARGE_EVENT", 100)
    monkeypatch.setattr("tollgate.completions.native._MOST_VALUES", 100)
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "one",
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}],
        "x": [[]] * 100,
    }
    body = b"data: " + json.dumps(chunk).encode() + b"\n\n" if stream else GOOD[:-1] + b',"x":[' + b"[]," * 100 + b"0]}"
    upstream = replying(body=body, headers={"content-type": "text/event-stream" if stream else "application/json"})
    async with inprocess(
        tmp_path, providers={"acme": provider("acme")}, apps={"acme": upstream}, environ=SECRET
    ) as here:
        reply = await here.post(path, {**LONG, "messages": LONG["messages"][:1], "stream": stream})
        assert reply.status_code == 500 and "holds more than 100 values" in caplog.text


async def test_a_client_that_leaves_during_the_conversion_pays_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tollgate.http._WATCH_AFTER", 0)
    seen: list = []
    async with inprocess(
        tmp_path, providers={"acme": provider("acme")}, apps={"acme": replying(body=GOOD, seen=seen)}, environ=SECRET
    ) as here:
        client = Leaving({**LONG, "messages": LONG["messages"][: TURNS // 4]}, here.key, seconds=0)
        client.scope["path"] = "/v1/messages"
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
        assert (row["outcome"], row["status"], row["cost"], row["input_tokens"], row["estimated"]) == (
            "client_gone",
            499,
            0,
            0,
            False,
        )
        assert not seen and not client.sent
        assert await available_to(here.services.ledger, "default") == here.balance() == Decimal(100)
