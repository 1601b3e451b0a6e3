"""The effect of each marker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from sandbox_talk import PROTOCOLS, TOOLS, calls_of, exchange, finish_of, text_of, usage_of

from tollgate.sandbox import MARKERS, Sandbox

Effect = Callable[[Callable], Awaitable[None]]
EFFECTS: dict[str, Effect] = {}
"""Checks what a marker does, by the marker's name."""


def effect_of(marker: str) -> Callable[[Effect], Effect]:
    def keep(effect: Effect) -> Effect:
        EFFECTS[marker] = effect
        return effect

    return keep


@effect_of("tokens")
async def _tokens(send):
    assert usage_of("chat", (await send("chat", "hi [[tokens=50]]")).json)[1] == 50
    assert len((await send("chat", "hi [[tokens=50]]", stream=True)).objects) == 52


@effect_of("pace")
async def _pace(send):
    began = time.perf_counter()
    await send("chat", "hi [[pace=5ms]]", stream=True)
    assert time.perf_counter() - began >= 0.03


@effect_of("delay")
async def _delay(send):
    began = time.perf_counter()
    await send("chat", "hi [[delay=30ms]]")
    assert time.perf_counter() - began >= 0.03


@effect_of("duration")
async def _duration(send):
    sandbox = Sandbox()
    statuses = [
        (await exchange(sandbox, "/v1/images", {"model": "draw", "input": {"prompt": f"x [[duration={d}]]"}})).json[
            "status"
        ]
        for d in ("9s", "0s")
    ]
    assert statuses == ["starting", "succeeded"]


@effect_of("tool")
async def _tool(send):
    assert calls_of("chat", (await send("chat", '[[tool=any {"a": 1}]]')).json) == [("any", {"a": 1})]


@effect_of("tools")
async def _tools(send):
    body = (await send("messages", "x [[tools=3]]", tools=TOOLS["messages"])).json
    assert [n for n, _ in calls_of("messages", body)] == ["get", "put", "get"]
    assert body["stop_reason"] == "tool_use"


@effect_of("preface")
async def _preface(send):
    body = (await send("chat", "x [[tool=a]] [[preface]]")).json
    assert (text_of("chat", body), len(calls_of("chat", body))) == ("You said: x", 1)


@effect_of("think")
async def _think(send):
    assert (await send("messages", "x [[think]]")).json["content"][0]["type"] == "thinking"


@effect_of("redacted")
async def _redacted(send):
    assert (await send("messages", "x [[think]] [[redacted]]")).json["content"][0]["type"] == "redacted_thinking"


@effect_of("error")
async def _error(send):
    received = await send("chat", "x [[error=429 retry-after=2 code=slow_down]]")
    assert (received.status, received.headers["retry-after"], received.json["error"]["code"]) == (429, "2", "slow_down")
    received = await send("messages", "x [[error=529]]")
    assert (received.status, received.json["error"]["type"]) == (529, "overloaded_error")
    assert [(await send("chat", "y [[error=500 times=2]]")).status for _ in range(3)] == [500, 500, 200]


@effect_of("error-in-200")
async def _error_in_200(send):
    received = await send("chat", "x [[error-in-200]]")
    assert (received.status, received.json["error"]["type"]) == (200, "server_error")
    received = await send("messages", "x [[error-in-200]]", stream=True)
    assert (received.status, [name for name, _ in received.events]) == (200, ["error"])


@effect_of("stream-error")
async def _stream_error(send):
    chat = await send("chat", "x [[stream-error=3]]", stream=True)
    assert (len(chat.events), "error" in chat.objects[-1], chat.dropped) == (4, True, False)
    responses = await send("responses", "x [[stream-error=3]]", stream=True)
    assert [n for n, _ in responses.events][-2:] == ["error", "response.failed"]
    assert responses.objects[-2]["code"] == responses.objects[-1]["response"]["error"]["code"] == "server_error"
    nested = await send("responses", "x [[stream-error=3 nested]]", stream=True)
    assert nested.objects[-2]["error"]["code"] == "server_error"


@effect_of("cut")
async def _cut(send):
    received = await send("chat", "x [[cut=2]]", stream=True)
    assert (len(received.events), received.dropped) == (2, True)
    tidy = await send("chat", "x [[cut=2 clean]]", stream=True)
    assert (len(tidy.events), tidy.dropped) == (2, False)
    whole = await send("chat", "x [[cut]]")
    assert whole.dropped and whole.raw.startswith(b'{"id"')


@effect_of("cut-mid")
async def _cut_mid(send):
    received = await send("messages", "x [[cut-mid=2]]", stream=True)
    assert (received.raw.count(b"\n\n"), received.raw.endswith(b"\n\n"), received.dropped) == (2, False, True)


@effect_of("stall")
async def _stall(send):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await send("chat", "x [[stall=2]]", stream=True)


@effect_of("reset")
async def _reset(send):
    received = await send("chat", "x [[reset]]", stream=True)
    assert (received.raw, received.dropped) == (b"", True)


@effect_of("html")
async def _html(send):
    received = await send("chat", "x [[html]]", stream=True)
    assert (received.status, received.headers["content-type"], received.raw[:15]) == (
        200,
        "text/html; charset=utf-8",
        b"<!doctype html>",
    )
    assert (await send("chat", "x [[html=502]]")).status == 502


@effect_of("bad-utf8")
async def _bad_utf8(send):
    for stream in (False, True):
        with pytest.raises(UnicodeDecodeError):
            (await send("chat", "x [[bad-utf8]]", stream=stream)).raw.decode()


@effect_of("empty")
async def _empty(send):
    assert (await send("chat", "x [[empty]]")).json["choices"][0]["message"]["content"] == ""
    assert (await send("responses", "x [[empty]]")).json["output"] == []
    assert (await send("messages", "x [[empty]]")).json["content"] == []


@effect_of("refuse")
async def _refuse(send):
    assert "can't help" in (await send("chat", "x [[refuse]]")).json["choices"][0]["message"]["refusal"]
    assert (await send("responses", "x [[refuse]]")).json["output"][0]["content"][0]["type"] == "refusal"
    assert (await send("messages", "x [[refuse]]")).json["stop_reason"] == "refusal"


@effect_of("finish")
async def _finish(send):
    found = [finish_of(p, (await send(p, "x [[finish=length]]")).json) for p in PROTOCOLS]
    assert found == ["length", "max_output_tokens", "max_tokens"]


@effect_of("no-usage")
async def _no_usage(send):
    assert "usage" not in (await send("chat", "x [[no-usage]]")).json
    assert (await send("responses", "x [[no-usage]]")).json["usage"] is None
    assert all(
        "usage" not in e and "usage" not in e.get("message", {})
        for e in (await send("messages", "x [[no-usage]]", stream=True)).objects
    )


@effect_of("late-usage")
async def _late_usage(send):
    chunks = (await send("chat", "x [[late-usage]]", stream=True, stream_options={"include_usage": True})).objects
    assert [bool(c.get("usage")) for c in chunks if c["choices"][0]["finish_reason"]] == [True]


@effect_of("prompt-tokens")
async def _prompt_tokens(send):
    assert (
        usage_of("messages", (await send("messages", "x [[prompt-tokens=1000]] [[cached-tokens=300]]")).json)[0] == 1000
    )
    received = await exchange(Sandbox(), "/v1/embeddings", {"model": "embed", "input": "x [[prompt-tokens=77]]"})
    assert received.json["usage"]["prompt_tokens"] == 77


@effect_of("completion-tokens")
async def _completion_tokens(send):
    assert usage_of("responses", (await send("responses", "x [[completion-tokens=77]]")).json)[1] == 77


@effect_of("cached-tokens")
async def _cached_tokens(send):
    assert (await send("chat", "x [[prompt-tokens=9]] [[cached-tokens=5]]")).json["usage"]["prompt_tokens_details"][
        "cached_tokens"
    ] == 5


@effect_of("cache-write-tokens")
async def _cache_write_tokens(send):
    usage = (await send("messages", "x [[prompt-tokens=9]] [[cache-write-tokens=5]]")).json["usage"]
    assert (usage["input_tokens"], usage["cache_creation_input_tokens"]) == (4, 5)


@effect_of("reasoning-tokens")
async def _reasoning_tokens(send):
    usage = (await send("chat", "x [[completion-tokens=9]] [[reasoning-tokens=5]]")).json["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 5


@effect_of("fail")
async def _fail(send):
    sandbox = Sandbox()
    received = await exchange(
        sandbox, "/v1/images", {"model": "draw", "input": {"prompt": "x [[fail=no_way]] [[duration=0s]]"}}
    )
    assert (received.json["status"], received.json["error"], received.json["images"]) == ("failed", "no way", [])


def test_no_other_marker_is_tested():
    assert set(EFFECTS) == {marker.split("=")[0] for marker in MARKERS}


@pytest.mark.parametrize("marker", MARKERS)
async def test_a_marker_has_its_documented_effect(send, marker):
    await EFFECTS[marker.split("=")[0]](send)
