"""Misbehaving upstreams on a real socket: the client's reply, in every client format, native and converted, and the
row."""

from __future__ import annotations

import asyncio
import json

import pytest

from conformance.upstreams import ASKS, CELLS, FAILURES, IDS, PATHS, error_events, events, opening, provider, whole
from support.inprocess import inprocess
from support.stores import available_to
from support.usage_files import rows_by_id
from support.waiting import SECONDS
from support.wire import chunked, full_backlog, head, raw, says, stream_of, wire

HTML = b"<!doctype html><html><body>502 Bad Gateway nginx-internal-7</body></html>"
FAST = "timeouts: {connect: 10, first_byte: 0.4, idle: 0.4, total: 1.5}"

BEFORE = {
    "resets before an answer": (raw(then="reset"), 502, "ok"),
    "closes before an answer": (raw(), 502, "ok"),
    "talks no HTTP": (raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), (500, 502), "ok"),
    "stalls before an answer": (raw(then="stall"), 504, "first-byte"),
    "answers HTML with 200": (says(HTML, kind="text/html"), 500, "ok"),
    "answers HTML with 502": (says(HTML, status="502 Bad Gateway", kind="text/html"), 500, "ok"),
    "answers HTML with 403": (says(HTML, status="403 Forbidden", kind="text/html"), 500, "ok"),
    "answers an error with 200": (says(b'{"error": {"message": "nginx-internal-7", "code": 502}}'), 500, "ok"),
    "answers an empty body": (says(b""), 500, "ok"),
    "answers a JSON list": (says(b"[]"), 500, "ok"),
    "redirects": (
        raw(head(status="302 Found", more="location: http://127.0.0.1:1/\r\ncontent-length: 0\r\n") + b"\r\n"),
        500,
        "ok",
    ),
    "cuts the body": (raw(head(more="content-length: 500\r\n") + b'\r\n{"id": "c1"'), 500, "ok"),
    "cuts a chunk": (raw(head(more="transfer-encoding: chunked\r\n") + b"\r\n1f\r\n{"), 500, "ok"),
    "packs the body badly": (raw(head(more="content-encoding: gzip\r\ncontent-length: 3\r\n") + b"\r\nabc"), 500, "ok"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_19_an_upstream_that_fails_before_its_answer_is_an_error_status(tmp_path, client, upstream, stream):
    """One gateway for all failures: none may affect the next."""
    current = []
    given: dict[str, int] = {}

    async def behave(request, reader, writer):
        await current[0](request, reader, writer)

    async with (
        wire(behave) as address,
        inprocess(tmp_path, providers={"acme": provider(address, upstream)}, settings=FAST) as here,
    ):
        for name, (behaviour, wanted, says_budget) in BEFORE.items():
            current[:] = [behaviour]
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
            status = reply.status_code
            if wanted == 504 and client == "chat":
                wanted = 500
            assert status in (wanted if isinstance(wanted, tuple) else (wanted,)), f"{name}: {status} {reply.text}"
            assert "nginx" not in reply.text and "None" not in reply.text, name
            if status == 502:
                assert reply.json() == {"message": "Service temporarily unavailable"}, name
            elif client == "chat":
                assert reply.headers["content-type"].startswith("text/plain"), name
            else:
                assert reply.json()["error"]["type"] in (
                    "server_error",
                    "api_error",
                    "timeout_error",
                    "overloaded_error",
                ), name
            timeout = reply.headers.get("x-tollgate-timeout")
            if says_budget == "ok":
                assert timeout is None, name
            else:  # PITFALLS 19
                assert says_budget in reply.text and timeout == says_budget.replace("-", "_"), name
            given[reply.headers["x-request-id"]] = status
        rows = await rows_by_id(here, tmp_path)
        assert {request_id: row["status"] for request_id, row in rows.items()} == given
        assert all(
            row["cost"] == 0 and row["outcome"] in ("upstream_error", "timeout") and row["error_code"]
            for row in rows.values()
        )
        assert sum(row["outcome"] == "timeout" for row in rows.values()) == 1
        assert await available_to(here.services.ledger, "default") == here.balance()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
async def test_19_an_upstream_that_cannot_be_connected_to_is_an_error_status(tmp_path, client, stream):
    with full_backlog() as hanging:
        async with inprocess(
            tmp_path,
            providers={
                "acme": provider(hanging, "chat"),
                "gone": provider("http://127.0.0.1:1", "chat", name="gone", model="gone/one"),
            },
            settings="timeouts: {connect: 0.3}",
        ) as here:
            clock = asyncio.get_running_loop().time  # which excludes the time in which the process was suspended
            began = clock()
            late = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
            assert clock() - began < 8 and late.status_code == (500 if client == "chat" else 504)
            assert "did not answer in time (connect budget of 0.3 s exceeded)" in late.text
            refused = await here.post(PATHS[client], {**ASKS[client], "model": "gone/one", "stream": stream})
            assert (refused.status_code, refused.json()) == (502, {"message": "Service temporarily unavailable"})


def streams(upstream):
    """Failures after a stream has started: name -> (behaviour, outcome of the row, a word of the message)."""
    begun = opening(upstream)
    head_ = head(kind="text/event-stream", more="transfer-encoding: chunked\r\n") + b"\r\n"
    error = {
        "chat": b'data: {"error": {"message": "boom nginx-internal-7", "code": 500}}\n\n',
        "messages": b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "boom '
        b'nginx-internal-7"}}\n\n',
        "responses": b'event: error\ndata: {"type": "error", "sequence_number": 6, "code": "server_error", "message": '
        b'"boom nginx-internal-7", "param": null}\n\n',
    }
    return {
        "ends early": (stream_of(*begun), "upstream_error", ""),
        "is reset": (stream_of(*begun, then="reset"), "upstream_error", ""),
        "is cut inside a chunk": (raw(head_, *(chunked(b) for b in begun), b"ff\r\ndata: {"), "upstream_error", ""),
        "is cut inside an event": (stream_of(*begun, begun[-1][:-20]), "upstream_error", ""),
        "falls silent": (stream_of(*begun, then="stall"), "timeout", "idle"),
        "goes on too long": (dripping(begun), "timeout", "total"),
        "reports an error": (stream_of(*begun, error[upstream], then="stall"), "upstream_error", ""),
        "sends an event without an end": (
            stream_of(*begun, b"data: " + b"x" * (17 << 20), then="stall"),
            "upstream_error",
            "",
        ),
    }


def dripping(begun):
    async def behave(request, reader, writer):
        writer.write(
            head(kind="text/event-stream", more="transfer-encoding: chunked\r\n")
            + b"\r\n"
            + b"".join(chunked(b) for b in begun)
        )
        while True:
            writer.write(chunked(b": still here\n\n"))
            await writer.drain()
            await asyncio.sleep(0.05)

    return behave


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_15_an_upstream_that_fails_during_a_stream_ends_it_with_an_error(tmp_path, client, upstream):
    current = []

    async def behave(request, reader, writer):
        await current[0](request, reader, writer)

    async with (
        wire(behave) as address,
        inprocess(tmp_path, providers={"acme": provider(address, upstream)}, settings=FAST) as here,
    ):
        wanted = {}
        for name, (behaviour, outcome, word) in streams(upstream).items():
            current[:] = [behaviour]
            reply = await asyncio.wait_for(here.post(PATHS[client], {**ASKS[client], "stream": True}), SECONDS)
            assert reply.status_code == 200, name
            assert "hello" in reply.text and "nginx" not in reply.text, name
            try:
                reported = error_events(client, reply.text)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}: {reply.text[-700:]}") from None
            assert word in reported["message"], f"{name}: {reported}"
            wanted[reply.headers["x-request-id"]] = (name, outcome)
        rows = await rows_by_id(here, tmp_path)
        assert await available_to(here.services.ledger, "default") == here.balance()
    for request_id, (name, outcome) in wanted.items():
        row = rows[request_id]
        assert (row["outcome"], row["stream"]) == (outcome, True), f"{name}: {row['outcome']}"
        assert row["input_tokens"] > 0 and 0 < row["output_tokens"] < 20 and row["cost"] > 0, f"{name}: {row}"


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_unusual_but_complete_streams_are_answers(tmp_path, client, upstream):
    """Invalid UTF-8, comments, CRLF, blank lines, unknown events and data that is not JSON do not break an answer."""
    good = events(upstream)
    odd = {
        "invalid UTF-8": [b.replace(b"hello", b"hel\xff\xfelo") for b in good],
        "comments and blank lines": [part for b in good for part in (b": ping\n\n", b"\n\n", b)],
        "CRLF": [b.replace(b"\n", b"\r\n") for b in good],
        "one byte at a time": [bytes([byte]) for b in good[:3] for byte in b] + good[3:],
        "all at once": [b"".join(good)],
        "unknown events": [
            *good[:2],
            b'event: brand.new\ndata: {"type": "brand.new", "sequence_number": 2}\n\n'
            if upstream != "chat"
            else b'data: {"brand": "new"}\n\n',
            *good[2:],
        ],
        "no blank line at the end": [*good[:-1], good[-1].rstrip(b"\n")],
        "no end of file": [*good],
    }
    current = []

    async def behave(request, reader, writer):
        await current[0](request, reader, writer)

    async with (
        wire(behave) as address,
        inprocess(tmp_path, providers={"acme": provider(address, upstream)}, settings=FAST) as here,
    ):
        for name, blocks in odd.items():
            current[:] = [stream_of(*blocks, then="stall" if name == "no end of file" else "end")]
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
            reply.content.decode()
            end = {"chat": "data: [DONE]", "messages": "message_stop", "responses": "response.completed"}[client]
            assert end in reply.text.strip().rsplit("\n\n", 1)[-1], f"{name}: {reply.text[-500:]}"
            assert " there" in reply.text and "hel" in reply.text, name
        rows = (await rows_by_id(here, tmp_path)).values()
        assert len(rows) == len(odd)
        assert {(row["outcome"], row["input_tokens"], row["output_tokens"], row["estimated"]) for row in rows} == {
            ("ok", 10, 5, False)
        }


@pytest.mark.parametrize("upstream", ["chat", "responses", "messages"])
async def test_a_whole_answer_with_invalid_utf8_reaches_the_client_readable(tmp_path, upstream):
    body = json.dumps(whole(upstream, "hel!!lo")).encode().replace(b"!!", b"\xff\xfe")
    async with (
        wire(says(body)) as address,
        inprocess(tmp_path, providers={"acme": provider(address, upstream)}) as here,
    ):
        for client in ("chat", "responses", "messages"):
            reply = await here.post(PATHS[client], ASKS[client])
            assert reply.status_code == 200 and "lo" in reply.content.decode() and reply.json()
        assert {row["outcome"] for row in (await rows_by_id(here, tmp_path)).values()} == {"ok"}


@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
async def test_15_a_failure_before_the_first_event_falls_back_and_one_after_it_does_not(tmp_path, client):
    """PITFALLS 15: a second answer is never appended to the first."""
    requests = []

    def failing(blocks):
        async def behave(request, reader, writer):
            requests.append("first")
            await stream_of(*blocks, then="reset")(request, reader, writer)

        return behave

    async def good(request, reader, writer):
        requests.append("second")
        await stream_of(*events(client))(request, reader, writer)

    cases = {
        "nothing": ((), ["first", "second"]),
        "a failure": ((b": hello\n\n", FAILURES[client]), ["first", "second"]),
        "an answer": (opening(client), ["first"]),
    }
    for name, (blocks, tried) in cases.items():
        requests.clear()
        async with wire(failing(blocks)) as one, wire(good) as two:
            routes = {
                "first": provider(one, client, name="first"),
                "second": provider(two, client, name="second", more="priority: 1"),
            }
            async with inprocess(tmp_path / name, providers=routes) as here:
                reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        assert requests == tried
        if len(tried) == 1:
            error_events(client, reply.text)
        else:
            assert reply.status_code == 200 and '"no"' not in reply.text and "hello" in reply.text
