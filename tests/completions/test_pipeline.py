"""Routes, retries, errors and usage rows of single completions, with failing upstreams."""

import asyncio
import json
from decimal import Decimal

import pytest

from completions.plain_chat import ANSWER, ASK, GOOD, SECRET, STREAM, delta, provider, streamed
from support.inprocess import SSE, Leaving, inprocess, replying
from support.stores import available_to
from support.usage_files import rows
from support.waiting import SECONDS
from tollgate.errors import Unavailable


async def test_a_whole_answer_passes_byte_for_byte_and_writes_a_priced_row(tmp_path):
    raw = GOOD.replace(b'"created": 1', b'"created":   1')
    seen = []
    async with inprocess(
        tmp_path, providers={"acme": provider("acme")}, apps={"acme": replying(body=raw, seen=seen)}, environ=SECRET
    ) as here:
        before = here.balance()
        reply = await here.post("/v1/chat/completions", {**ASK, "model": "one", "brand_new": [1.50], "user": "u-7"})
        assert reply.content == raw
        sent = json.loads(seen[0][3])
        assert sent == {**ASK, "model": "up-1", "brand_new": [1.5], "user": "u-7"}
        assert seen[0][2]["authorization"] == "Bearer canary-secret-value"
        assert reply.headers["x-tollgate-cost"] == "0.020000000000"
        assert before - here.balance() == Decimal("0.02")
        (row,) = await rows(here, tmp_path)
    assert row["request_id"] == reply.headers["x-request-id"]
    wanted = {
        "asked_model": "one",
        "model": "acme/one",
        "provider": "acme",
        "upstream_model": "up-1",
        "endpoint": "chat",
        "status": 200,
        "outcome": "ok",
        "input_tokens": 10,
        "output_tokens": 5,
        "cost": Decimal("0.02"),
        "currency": "USD",
        "stream": False,
        "estimated": False,
        "end_user": "u-7",
        "attempts": 1,
        "earlier_attempts": None,
        "metadata": None,
    }
    assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("refusing", "statuses", "status", "row"),
    [
        pytest.param(["first"], (200, 200), 200, ("ok", "second", 1), id="the other succeeds"),
        pytest.param(["first"], (200, 429), 500, ("upstream_error", "second", 1), id="the other fails"),
        pytest.param(["second"], (429, 200), 500, ("upstream_error", "first", 1), id="the other failed before"),
        pytest.param(["first", "second"], (200, 200), 400, ("rejected", "first", 1), id="both refuse"),
    ],
)
async def test_a_route_that_refuses_a_request_is_skipped(tmp_path, refusing, statuses, status, row):
    """Its refusal is returned only if no route was called: a 400 would tell the client not to retry."""
    refuse, called = "request: [{refuse: no seeds, when: $.seed}]", []
    async with inprocess(
        tmp_path,
        providers={
            name: provider(name, priority=place, more=refuse if name in refusing else "")
            for place, name in enumerate(("first", "second"))
        },
        apps={
            name: replying(answered, GOOD, seen=called)
            for name, answered in zip(("first", "second"), statuses, strict=True)
        },
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "seed": 1})
        assert reply.status_code == status and (status != 400 or "no seeds" in reply.text)
        assert len(called) == 2 - len(refusing)
        (found,) = await rows(here, tmp_path)
    assert (found["outcome"], found["provider"], found["attempts"], found["earlier_attempts"]) == (*row, None)


@pytest.mark.parametrize("cooling", [False, True], ids=["healthy", "all cooling down"])
async def test_the_only_route_that_accepts_a_request_is_found_behind_any_number_that_refuse(tmp_path, cooling):
    """Only calls are counted: four routes that refuse leave all three attempts to the fifth. If all are cooling down it
    is the one to call, even if others recover earlier."""
    names, waits = ("one", "two", "three", "four", "five"), iter(range(10, 100))
    refuse, called, status = "request: [{refuse: no seeds, when: $.seed}]", [], 429 if cooling else 200

    async def answer(*call):
        headers = {"content-type": "application/json", "retry-after": str(next(waits))}
        return await replying(status, GOOD, headers=headers, seen=called)(*call)

    async with inprocess(
        tmp_path,
        providers={
            name: provider(name, priority=place, more="" if name == "five" else refuse)
            for place, name in enumerate(names)
        },
        apps=dict.fromkeys(names, answer),
        environ=SECRET,
    ) as here:
        while cooling and len(called) < len(names):
            assert (await here.post("/v1/chat/completions", ASK)).status_code == 500
        status = 200
        called.clear()
        reply = await here.post("/v1/chat/completions", {**ASK, "seed": 1})
        assert (reply.status_code, len(called)) == (200, 1)
        assert (reply.headers["x-tollgate-provider"], reply.headers["x-tollgate-attempts"]) == ("five", "1")


FAILING = {
    "a 500": replying(500, b'{"error":{"message":"inner trouble"}}'),
    "a 429": replying(
        429, b'{"error":{"message":"slow down"}}', headers={"content-type": "application/json", "retry-after": "7"}
    ),
    "a rejected key": replying(401, b'{"error":{"message":"bad key canary-secret-value"}}'),
    "an empty balance": replying(402, b'{"error":{"message":"no money"}}'),
    "an HTML page": replying(200, b"<html>", headers={"content-type": "text/html"}),
    "comments without end": replying(blocks=[b": x\n\n" * 20_000, *STREAM], headers=SSE),
    "a redirect with a stream": replying(
        302, b'data: {"choices": []}\n\n', headers={"content-type": "text/event-stream", "location": "/elsewhere"}
    ),
    "a proxy that requires authentication": replying(407, b""),
    "an error in a 200": replying(200, b'{"error":{"message":"overloaded","code":502}}'),
    "not JSON": replying(200, b'{"id": '),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_answer_whose_row_cannot_be_written_is_not_to_be_retried(tmp_path, stream):
    good = replying(blocks=[b"".join(STREAM)], headers=SSE) if stream else replying(body=GOOD)
    async with inprocess(tmp_path, providers={"acme": provider("acme")}, apps={"acme": good}, environ=SECRET) as here:

        async def refuse(row, hold=None):
            raise Unavailable("disk full")

        here.services.ledger.record = refuse
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert (reply.status_code, reply.headers["x-should-retry"]) == (503, "false")
        assert "disk" not in reply.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("bad", FAILING.values(), ids=FAILING.keys())
async def test_a_failing_route_falls_back_to_another(tmp_path, bad, stream):
    good = replying(blocks=STREAM, headers=SSE) if stream else replying(body=GOOD)
    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps={"first": bad, "second": good},
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert reply.status_code == 200
        assert (reply.headers["x-tollgate-provider"], reply.headers["x-tollgate-attempts"]) == ("second", "2")
        assert "canary" not in reply.text
        (row,) = await rows(here, tmp_path)
        assert (row["provider"], row["attempts"], row["cost"]) == ("second", 2, Decimal("0.02"))
        [earlier] = json.loads(row["earlier_attempts"])
        assert (earlier["provider"], earlier["upstream_model"]) == ("first", "up-1") and 0 <= earlier["ms"] < 60_000
        assert earlier["error"].startswith("upstream_") and "canary" not in row["earlier_attempts"]
        assert here.services.metrics.attempts == {("first", earlier["error"]): 1, ("second", "ok"): 1}


async def test_the_row_of_a_failure_names_the_provider_whose_error_was_returned(tmp_path):
    """A provider that answered tells more than one that cannot be reached, also if that one was tried last."""
    unreachable = provider("second", priority=1).replace("app://second/chat", "http://127.0.0.1:1/chat")
    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": unreachable},
        apps={"first": replying(500)},
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        (row,) = await rows(here, tmp_path)
    assert (reply.status_code, row["status"], row["attempts"]) == (500, 500, 2)
    assert (row["provider"], row["error_code"]) == ("first", "upstream_failed")
    [other] = json.loads(row["earlier_attempts"])
    assert (other["provider"], other["error"], other["status"]) == ("second", "upstream_unreachable", None)


async def test_each_earlier_attempt_is_recorded_with_its_duration(tmp_path):
    async def slow(*call):
        await asyncio.sleep(0.2)
        return await replying(500)(*call)

    names = ("first", "second", "third")
    async with inprocess(
        tmp_path,
        providers={name: provider(name, priority=at) for at, name in enumerate(names)},
        apps=dict(zip(names, (slow, replying(500), replying(body=GOOD)), strict=True)),
        environ=SECRET,
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).headers["x-tollgate-attempts"] == "3"
        (row,) = await rows(here, tmp_path)
        took = [attempt["ms"] for attempt in json.loads(row["earlier_attempts"])]
        assert took[0] >= 150 and sum(took) <= row["total_ms"] + 2


@pytest.mark.parametrize("bad", FAILING.values(), ids=FAILING.keys())
async def test_an_error_after_all_routes_failed_reveals_no_details(tmp_path, bad):
    async with inprocess(tmp_path, providers={"acme": provider("acme")}, apps={"acme": bad}, environ=SECRET) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert reply.status_code == 500 and reply.headers["content-type"].startswith("text/plain")
        assert all(word not in reply.text for word in ("canary", "inner trouble", "no money", "acme"))
        assert here.balance() == Decimal(100)
        (row,) = await rows(here, tmp_path)
        assert (row["status"], row["outcome"], row["cost"]) == (500, "upstream_error", 0)
        assert row["earlier_attempts"] is None  # the row itself describes the last attempt


@pytest.mark.parametrize("usage", [None, ANSWER["usage"]], ids=["without usage", "with usage"])
async def test_a_whole_answer_with_finish_reason_error_falls_back_and_is_billed_as_reported_on_the_last_route(
    tmp_path, usage
):
    choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "error",
              "error": {"code": 502, "message": "canary-secret-value broke"}}  # fmt: skip
    broken = replying(body=json.dumps({**ANSWER, "choices": [choice], "usage": usage}).encode())
    async with inprocess(
        tmp_path / "two",
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps={"first": broken, "second": replying(body=GOOD)},
        environ=SECRET,
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).content == GOOD
        (row,) = await rows(here, tmp_path / "two")
        assert (row["provider"], row["outcome"], row["cost"]) == ("second", "ok", Decimal("0.02"))
    async with inprocess(
        tmp_path / "one", providers={"acme": provider("acme")}, apps={"acme": broken}, environ=SECRET
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert (reply.status_code, reply.json()["choices"][0]["finish_reason"]) == (200, "error")
        assert "canary" not in reply.text
        (row,) = await rows(here, tmp_path / "one")
        assert (row["outcome"], row["cost"]) == ("upstream_error", Decimal("0.02") if usage else 0)


async def test_the_time_to_first_byte_excludes_earlier_failures(tmp_path):
    good = replying(body=GOOD)

    async def late(*call):
        await asyncio.sleep(0.05)
        return await good(*call)

    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps={"first": replying(500, body=b"{}"), "second": late},
        environ=SECRET,
    ) as here:
        await here.post("/v1/chat/completions", ASK)
        (row,) = await rows(here, tmp_path)
    assert row["attempts"] == 2 and row["total_ms"] >= row["ttfb_ms"] >= 45


async def test_a_stream_is_retried_until_its_first_event(tmp_path):
    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps={
            "first": replying(blocks=streamed({"error": {"message": "busy"}}), headers=SSE),
            "second": replying(blocks=STREAM, headers=SSE),
        },
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "2" and reply.text.endswith("data: [DONE]\n\n")


async def test_at_most_three_routes_are_tried(tmp_path):
    names = ["a", "b", "c", "d"]
    tried = []

    def failing(name):
        async def app(method, path, headers, body):
            tried.append(name)
            return await replying(500, b"{}")(method, path, headers, body)

        return app

    async with inprocess(
        tmp_path,
        providers={name: provider(name, priority=place) for place, name in enumerate(names)},
        apps={name: failing(name) for name in names},
        environ=SECRET,
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 500
    assert tried == ["a", "b", "c"]


async def test_a_rejected_payload_is_a_400_and_is_not_retried(tmp_path):
    reject = replying(422, b'{"error":{"message":"messages: too many","type":"invalid_request_error"}}')
    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps={"first": reject, "second": replying(body=GOOD)},
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert (reply.status_code, reply.text) == (400, "messages: too many")
        (row,) = await rows(here, tmp_path)
        assert (row["status"], row["outcome"], row["cost"]) == (400, "rejected", 0)
        assert here.services.metrics.attempts == {("first", "upstream_rejected"): 1}
        [route] = here.services.health.routes()
        assert (route.rejections, route.failures) == (1, 0)


async def test_an_unreachable_upstream_is_a_502(tmp_path):
    text = provider("acme").replace("app://acme/chat", "http://127.0.0.1:1/chat")
    async with inprocess(tmp_path, providers={"acme": text}, environ=SECRET) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert (reply.status_code, reply.json()) == (502, {"message": "Service temporarily unavailable"})


async def test_a_converted_stream_is_kept_up_to_a_maximum_size(tmp_path, monkeypatch):
    monkeypatch.setattr("tollgate.completions.converted_stream._MOST_RECEIVED", 40_000)
    long = replying(blocks=streamed(*[delta("word ")] * 500, delta(finish="stop")), headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider("acme")}, apps={"acme": long}, environ=SECRET) as here:
        reply = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        assert "event: error" in reply.text and "message_stop" not in reply.text
        (row,) = await rows(here, tmp_path)
        assert (row["outcome"], row["estimated"]) == ("upstream_error", True) and 0 < row["output_tokens"] < 500


async def test_a_truncated_stream_ends_with_an_error_event_and_is_billed_once_as_estimated(tmp_path):
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme")},
        apps={"acme": replying(blocks=STREAM[:2], headers=SSE)},
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.content.startswith(b"".join(STREAM[:2]))
        events = reply.text.removeprefix(b"".join(STREAM[:2]).decode()).strip()
        assert set(json.loads(events.removeprefix("data: "))) == {"error"} and "[DONE]" not in events
        (row,) = await rows(here, tmp_path)
        assert (row["outcome"], row["estimated"], row["output_tokens"]) == ("upstream_error", True, 1)
        assert row["input_tokens"] > 0 and row["cost"] == Decimal(100) - here.balance()


async def test_missing_usage_is_estimated_recorded_and_reported(tmp_path):
    without_usage = {name: value for name, value in ANSWER.items() if name != "usage"}
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme")},
        apps={"acme": replying(body=json.dumps(without_usage).encode())},
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        usage = reply.json()["usage"]
        assert usage["completion_tokens"] == 1 and usage["total_tokens"] == usage["prompt_tokens"] + 1
        (row,) = await rows(here, tmp_path)
        assert row["estimated"] and row["cost"] > 0


async def test_a_route_is_not_called_before_its_retry_after(tmp_path):
    calls = []
    limited = replying(429, b"{}", headers={"retry-after": "30"}, seen=calls)
    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps={"first": limited, "second": replying(body=GOOD)},
        environ=SECRET,
    ) as here:
        for _ in range(3):
            assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
        assert len(calls) == 1, "a route that requested 30 seconds was called again"


@pytest.mark.parametrize(("first", "second"), [(30, 7), (7, 30), (None, 7), (7, None)])
async def test_the_shortest_retry_after_of_the_failed_routes_is_returned(tmp_path, first, second):
    apps = {
        name: replying(503, b"{}", headers={} if wait is None else {"retry-after": str(wait)})
        for name, wait in (("first", first), ("second", second))
    }
    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps=apps,
        environ=SECRET,
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert (reply.status_code, reply.headers["retry-after"]) == (500, "7")


@pytest.mark.parametrize(
    ("text", "stream", "leave"),
    [
        ("[[delay=600s]] x", False, {"seconds": 0.1}),
        ("[[delay=600s]] x", True, {"seconds": 0.1}),
        ("[[pace=50ms]] a b c d e f g h", True, {"blocks": 3}),
    ],
    ids=["waiting for a whole answer", "waiting for the first byte", "during the stream"],
)
async def test_a_client_that_leaves_cancels_the_upstream_and_writes_a_row(tmp_path, text, stream, leave):
    async with inprocess(tmp_path) as here:
        client = Leaving(
            {"model": "sandbox/echo", "stream": stream, "messages": [{"role": "user", "content": text}]},
            here.key,
            reached=(lambda: here.services.live) if "seconds" in leave else None,
            **leave,
        )
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
        assert (row["outcome"], row["status"]) == ("client_gone", 499)
        assert 'tollgate_requests_total{endpoint="chat",status="499"} 1' in (await here.get("/metrics")).text
        assert await available_to(here.services.ledger, "default") == here.balance()
        if "pace" in text:
            assert row["estimated"] and row["output_tokens"] > 0


@pytest.mark.parametrize("status", [500, 200], ids=["an error", "no stream"])
async def test_a_client_that_leaves_while_a_failure_is_read_cancels_the_upstream(tmp_path, status):
    began, ended = asyncio.Event(), asyncio.Event()

    async def app(method, path, headers, body):
        async def blocks():
            try:
                yield b'{"error": '
                began.set()
                await asyncio.sleep(600)
            finally:
                ended.set()

        return status, {"content-type": "application/json"}, blocks()

    async with inprocess(tmp_path, providers={"first": provider("first")}, apps={"first": app}, environ=SECRET) as here:
        client = Leaving({**ASK, "stream": True}, here.key, reached=began.is_set)
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        await asyncio.wait_for(ended.wait(), SECONDS)
        assert [row["outcome"] for row in await rows(here, tmp_path)] == ["client_gone"]


@pytest.mark.parametrize(
    ("counting", "text", "stream", "leave"),
    [
        ("native_chat.NativeChat.estimate", "[[pace=50ms]] a b c d e f g h", True, {"blocks": 3}),
        ("retry.estimate_usage", "[[delay=600s]] x", False, {"seconds": 0.1}),
    ],
    ids=["during the stream", "waiting for a whole answer"],
)
async def test_the_hold_of_a_client_that_leaves_is_released_even_if_the_estimate_fails(
    tmp_path, monkeypatch, counting, text, stream, leave
):
    async def fail(*_: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(f"tollgate.completions.{counting}", fail)
    async with inprocess(tmp_path) as here:
        client = Leaving(
            {"model": "sandbox/echo", "stream": stream, "messages": [{"role": "user", "content": text}]},
            here.key,
            reached=(lambda: here.services.live) if "seconds" in leave else None,
            **leave,
        )
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
        assert (row["outcome"], row["cost"]) == ("error", 0)
        assert await available_to(here.services.ledger, "default") == here.balance() and not here.services.live


def leaving_before_an_answer(here) -> Leaving:
    """A client that leaves while the sandbox takes its time."""
    return Leaving(
        {"model": "sandbox/echo", "messages": [{"role": "user", "content": "[[delay=600s]] x"}]},
        here.key,
        reached=lambda: here.services.live,
        seconds=0.06,
    )


async def test_the_row_of_a_client_that_leaves_has_the_time_until_then_without_that_of_counting(tmp_path, monkeypatch):
    """The first count after a start loads the tokenizer, which takes seconds."""
    left = []

    async def slowly(exchange, received):
        left.append(exchange.inbound.elapsed_ms())
        while exchange.inbound.elapsed_ms() < left[0] + 1:
            await asyncio.sleep(0)
        return {"input": 1, "output": 0}

    monkeypatch.setattr("tollgate.completions.retry.estimate_usage", slowly)
    async with inprocess(tmp_path) as here:
        client = leaving_before_an_answer(here)
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
        assert row["outcome"] == "client_gone" and 0 < row["total_ms"] <= left[0]


async def test_a_row_that_cannot_be_written_after_its_client_left_is_logged(tmp_path, caplog):
    async with inprocess(tmp_path) as here:

        async def refuse(row, hold=None):
            raise Unavailable("disk full")

        here.services.ledger.record = refuse
        client = leaving_before_an_answer(here)
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        await here.services.settlements.drain(SECONDS)
    (line,) = [record.getMessage() for record in caplog.records if "disk full" in record.getMessage()]
    assert line.startswith("the row of request req_") and line.endswith("is not durable: disk full")


async def test_a_silent_stream_is_kept_alive_with_comments(tmp_path):
    async with inprocess(tmp_path, settings="server: {keepalive_comment_seconds: 0.1}") as here:
        reply = await here.post(
            "/v1/chat/completions",
            {"model": "sandbox/echo", "stream": True, "messages": [{"role": "user", "content": "[[delay=350ms]] hi"}]},
        )
        assert reply.text.startswith(": keep-alive\n") and reply.text.endswith("data: [DONE]\n\n")
        blocks = [block.split("\n") for block in reply.text.removesuffix("\n\n").split("\n\n")]
        # a comment is not a block of its own
        assert all(any(line.startswith("data:") for line in block) for block in blocks)
        failed = await here.post(
            "/v1/chat/completions",
            {
                "model": "sandbox/echo",
                "stream": True,
                "messages": [{"role": "user", "content": "[[delay=350ms]] [[error=500]] hi"}],
            },
        )
        assert failed.status_code == 200 and '"error"' in failed.text.rsplit("\n\n", 2)[-2]
        recorded = {
            row["request_id"]: (row["status"], row["outcome"], row["error_code"]) for row in await rows(here, tmp_path)
        }
        # as the client and /metrics report it
        assert recorded[failed.headers["x-request-id"]] == (200, "upstream_error", "upstream_failed")
        assert 'tollgate_requests_total{endpoint="chat",status="200"} 2' in (await here.get("/metrics")).text


async def test_tokens_are_counted_by_the_provider_or_estimated(tmp_path):
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "one two three"}]}
    async with inprocess(
        tmp_path, providers={"acme": provider("acme")}, apps={"acme": replying(500)}, environ=SECRET
    ) as here:
        reported = await here.post("/v1/messages/count_tokens", body)
        assert reported.headers["x-tollgate-provider"] == "sandbox" and reported.json()["input_tokens"] > 0
        counted = await here.post("/v1/messages/count_tokens", {**body, "model": "acme/one"})
        assert counted.headers["x-tollgate-estimated"] == "true" and counted.json()["input_tokens"] >= 3
        assert here.balance() == Decimal(100)
        recorded = [
            (
                row["endpoint"],
                row["request_id"],
                row["model"],
                row["provider"],
                row["attempts"],
                row["outcome"],
                row["estimated"],
                row["input_tokens"],
                row["cost"],
            )
            for row in await rows(here, tmp_path)
        ]
        assert recorded == [
            ("count_tokens", reported.headers["x-request-id"], "sandbox/echo", "sandbox", 1, "ok", False, 0, 0),
            ("count_tokens", counted.headers["x-request-id"], "acme/one", "", 0, "ok", True, 0, 0),
        ]


async def test_a_provider_that_cools_down_is_not_asked_to_count_tokens(tmp_path):
    """Each turn of a client waited for a provider that was known to hang, before the estimate."""
    requests = []
    acme = provider("acme").replace(
        "speaks: chat\nurl: app://acme/chat\n",
        "speaks: {messages: {path: /messages, count_tokens: /count}}\nurl: app://acme\n",
    )
    async with inprocess(
        tmp_path, providers={"acme": acme}, apps={"acme": replying(500, seen=requests)}, environ=SECRET
    ) as here:
        await here.post("/v1/messages/count_tokens", ASK)
        assert len(requests) == 1
        [offer] = here.services.runtime.current.catalog.resolve(ASK["model"]).routes[0].offers
        here.services.health.failed(offer.route, offer.provider, "upstream_timeout", retry_after=60)
        counted = await here.post("/v1/messages/count_tokens", ASK)
        assert counted.headers["x-tollgate-estimated"] == "true" and len(requests) == 1


async def test_at_most_three_providers_are_called_to_count_tokens(tmp_path):
    """A client waits for the count before each of its turns: with five hanging providers it would wait for all five."""
    names, requests = [f"p{number}" for number in range(5)], []
    speaks = "speaks: {messages: {path: /messages, count_tokens: /count}}\nurl: app://%s\n"
    async with inprocess(
        tmp_path,
        providers={
            name: provider(name, priority=place).replace(
                f"speaks: chat\nurl: app://{name}/chat\n", speaks.replace("%s", name)
            )
            for place, name in enumerate(names)
        },
        apps=dict.fromkeys(names, replying(500, seen=requests)),
        environ=SECRET,
    ) as here:
        counted = await here.post("/v1/messages/count_tokens", ASK)
        assert counted.headers["x-tollgate-estimated"] == "true" and len(requests) == 3
        (row,) = await rows(here, tmp_path)
    assert (row["attempts"], row["outcome"], row["estimated"]) == (3, "ok", True)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_token_count_that_refuses_our_key_raises_the_alarm_of_a_request(tmp_path, caplog, status):
    acme = provider("acme").replace(
        "speaks: chat\nurl: app://acme/chat\n",
        "speaks: {messages: {path: /messages, count_tokens: /count}}\nurl: app://acme\n",
    )
    refusal = replying(status, b'{"error": {"message": "bad key"}}')
    async with inprocess(tmp_path, providers={"acme": acme}, apps={"acme": refusal}, environ=SECRET) as here:
        for _ in range(2):
            counted = await here.post("/v1/messages/count_tokens", ASK)
            assert (counted.status_code, counted.headers["x-tollgate-estimated"]) == (200, "true")
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
            "provider acme: our key there is refused (bad key)"
        ]
        text = (await here.get("/metrics")).text
        assert "tollgate_alarms 1.0" in text and "tollgate_routes_cooling 0.0" in text


async def test_the_row_of_a_token_count_names_the_end_user_and_has_the_metadata(tmp_path):
    body = {**ASK, "model": "sandbox/echo", "metadata": {"user_id": "u-9", "team": "blue"}}
    async with inprocess(tmp_path) as here:
        assert (await here.post("/v1/messages/count_tokens", body)).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["end_user"], row["metadata"]) == ("u-9", '{"team":"blue"}')


async def test_providers_are_asked_for_a_count_in_the_order_of_requests(tmp_path):
    """Those of equal priority share the counts, one that cools down comes last, and the answer says how many were
    asked."""
    speaks = "speaks: {messages: {path: /messages, count_tokens: /count}}\nurl: app://%s\n"
    requests = {name: [] for name in ("even", "odd")}
    good = b'{"input_tokens": 7}'
    async with inprocess(
        tmp_path,
        providers={
            name: provider(name).replace(f"speaks: chat\nurl: app://{name}/chat\n", speaks.replace("%s", name))
            for name in requests
        },
        apps={name: replying(body=good, seen=seen) for name, seen in requests.items()},
        environ=SECRET,
    ) as here:
        for _ in range(40):
            counted = await here.post("/v1/messages/count_tokens", ASK)
            assert (counted.json()["input_tokens"], counted.headers["x-tollgate-attempts"]) == (7, "1")
        assert all(requests.values())
        for _ in range(here.services.runtime.current.gateway.retry.cooldown_failures):
            here.services.health.failed("even/up-1", "even", "upstream_failed")
        requests["even"].clear()
        for _ in range(20):
            await here.post("/v1/messages/count_tokens", ASK)
        assert not requests["even"]


@pytest.mark.parametrize("answer, estimated", [(b'{"input_tokens": 7}', False), (b'{"input_tokens": true}', True)])
async def test_tokens_are_counted_at_the_address_with_the_client_s_query(tmp_path, answer, estimated):
    requests = []
    speaks = "speaks: {messages: {path: /messages, count_tokens: /count, query: {v: '1'}, send: {body: $.messages}}}\n"
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme").replace("speaks: chat\n", speaks).replace("/acme/chat", "/acme")},
        apps={"acme": replying(body=answer, seen=requests)},
        environ=SECRET,
    ) as here:
        counted = await here.post("/v1/messages/count_tokens?beta=true", ASK)
    ((_, path, _, sent),) = requests
    assert path == "/count?v=1&beta=true"
    assert json.loads(sent)["model"] == "up-1"  # `send:` does not apply here
    assert counted.json()["input_tokens"] > 1 and ("x-tollgate-estimated" in counted.headers) is estimated


async def test_tokens_of_stored_content_are_counted_only_for_its_account(tmp_path):
    kept = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": [kept]}]}
    async with inprocess(tmp_path) as here:
        assert (await here.post("/v1/messages/count_tokens", body)).status_code == 404
        await here.services.minted.remember("default", "sandbox", ["file_1"])
        assert (await here.post("/v1/messages/count_tokens", body)).status_code == 200


async def test_an_alarm_is_logged_once_and_counted_in_the_metrics(tmp_path, caplog):
    async with inprocess(
        tmp_path,
        providers={"first": provider("first"), "second": provider("second", priority=1)},
        apps={"first": FAILING["an empty balance"], "second": replying(body=GOOD)},
        environ=SECRET,
    ) as here:
        for _ in range(3):
            assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
        assert [record.getMessage() for record in caplog.records if "our balance" in record.getMessage()] == [
            "provider first: our balance there is used up (no money)"
        ]
        text = (await here.get("/metrics")).text
        assert "tollgate_alarms 1.0" in text and "tollgate_routes_cooling 1.0" in text


async def test_a_proxy_that_rejects_our_credentials_raises_an_alarm_and_is_not_an_answer(tmp_path, caplog):
    async def refusing(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 3\r\n\r\nwho")
        writer.close()

    server = await asyncio.start_server(refusing, "127.0.0.1", 0)
    proxy = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    proxied = provider("first").replace("app://first/", "http://far.example/") + f"proxy: http://u:canary@{proxy}\n"
    async with (
        server,
        inprocess(
            tmp_path,
            providers={"first": proxied, "second": provider("second", priority=1)},
            apps={"second": replying(body=GOOD)},
            environ=SECRET,
        ) as here,
    ):
        done = await here.post("/v1/chat/completions", ASK)
        assert (done.status_code, done.headers["x-tollgate-provider"]) == (200, "second")
        assert "tollgate_alarms 1.0" in (await here.get("/metrics")).text
    refused = f"proxy {proxy} refused a request to far.example:80: 407"
    logged = [record.getMessage() for record in caplog.records]
    assert f"provider first: the proxy on the way there refuses us ({refused})" in logged
