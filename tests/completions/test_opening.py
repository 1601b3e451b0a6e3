"""A stream that fails before its answer starts falls back to another route: `stream.opening` of a mapping lists the
events that come before the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from conformance.upstreams import ASKS, CELLS, IDS, PATHS, error_events, events, provider, whole
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows
from support.waiting import SECONDS
from tollgate.completions import complete
from tollgate.services import Inbound

OVERLOADED = {
    "chat": b'data: {"error": {"message": "secret-7 is busy", "type": "overloaded_error", "code": 529}}\n\n',
    "messages": b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "secret-7"}}'
    b"\n\n",
    "responses": b'event: error\ndata: {"type": "error", "code": "server_is_overloaded", "message": "secret-7"}\n\n',
}
FAILED = {**whole("responses"), "id": "resp_first", "status": "failed", "output": [], "usage": None,
          "error": {"code": "server_error", "message": "The server had an error"}}  # fmt: skip
RESPONSE_FAILED = (
    b"event: response.failed\ndata: "
    + json.dumps({"type": "response.failed", "response": FAILED, "sequence_number": 2}).encode()
    + b"\n\n"
)

FINISHED_IN_ERROR = (
    b'data: {"id": "first", "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}], '
    b'"usage": {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}}\n\n'
)
FAILURE = {"chat": [FINISHED_IN_ERROR, b"data: [DONE]\n\n"], "responses": [RESPONSE_FAILED]}
"""How an answer of these formats reports its own failure."""


def opening_events(protocol: str) -> list[bytes]:
    """What a provider sends before its answer."""
    if protocol == "chat":
        chunk = json.loads(events("chat")[0].removeprefix(b"data: "))
        chunk["id"] = "first"
        chunk["choices"][0]["delta"] = {"role": "assistant", "content": "", "refusal": None}
        return [b"data: " + json.dumps(chunk).encode() + b"\n\n"]
    if protocol == "messages":
        ping = b'event: ping\ndata: {"type": "ping"}\n\n'
        return [events("messages")[0].replace(b'"msg_', b'"first_'), ping]
    return [each.replace(b'"resp_', b'"first_') for each in events("responses")[:2]]


def created_with(**more) -> bytes:
    """The first event of a response, with more fields."""
    event = json.loads(events("responses")[0].partition(b"data: ")[2])
    event["response"] |= more
    return b"event: response.created\ndata: " + json.dumps(event).encode() + b"\n\n"


def streaming_app(*blocks: bytes | float | Exception):
    """An upstream that streams these blocks, pauses for numbers and raises exceptions; `.requests` counts its
    requests."""

    async def app(method, path, headers, body):
        app.requests += 1

        async def answer() -> AsyncIterator[bytes]:
            for block in blocks:
                if isinstance(block, Exception):
                    raise block
                if isinstance(block, float):
                    await asyncio.sleep(block)
                else:
                    yield block

        return 200, SSE, answer()

    app.requests = 0
    return app


def two_routes(first, upstream: str, client: str, *, settings: str = "") -> dict:
    """A gateway whose first route is `first`, and whose second, in the client's own format, succeeds."""
    return {
        "providers": {
            "first": provider("app://first/v1", upstream, name="first"),
            "second": provider("app://second/v1", client, name="second", more="priority: 1"),
        },
        "apps": {"first": first, "second": streaming_app(*events(client))},
        "settings": settings,
    }


def failures(upstream: str) -> dict[str, list]:
    """How a stream may end before its answer starts."""
    ends = {"error": [OVERLOADED[upstream]], "reset": [ConnectionResetError()], "end": [],
            "comments": [b": wait\n\n", b": wait\n\n", OVERLOADED[upstream]]}  # fmt: skip
    return {**ends, "failed": FAILURE[upstream]} if upstream in FAILURE else ends


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
@pytest.mark.parametrize("together", [False, True], ids=["in blocks", "in one block"])
async def test_a_stream_that_fails_before_its_answer_falls_back_to_another_route(tmp_path, client, upstream, together):
    for name, ends in failures(upstream).items():
        blocks = [*opening_events(upstream), *ends]
        if together:
            blocks = [b"".join(each for each in blocks if isinstance(each, bytes)), *ends[-1:]]
            blocks = [each for at, each in enumerate(blocks) if at == 0 or isinstance(each, Exception)]
        first = streaming_app(*blocks)
        async with inprocess(tmp_path / name, **two_routes(first, upstream, client)) as here:
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
            assert (reply.status_code, reply.headers["x-tollgate-attempts"], first.requests) == (200, "2", 1), name
            assert reply.text.encode().startswith(events(client)[0][:30]), name
            assert "first" not in reply.text and "secret" not in reply.text, name
            (row,) = await rows(here, tmp_path / name)
            assert (row["provider"], row["outcome"]) == ("second", "ok")
            assert (row["input_tokens"], row["output_tokens"]) == (10, 5)


@pytest.mark.parametrize("usage", [None, {"input_tokens": 3, "output_tokens": 0}], ids=["without usage", "with usage"])
@pytest.mark.parametrize("client", PATHS)
async def test_a_whole_response_with_status_failed_falls_back_to_another_route(tmp_path, client, usage):
    first = replying(body=json.dumps({**FAILED, "usage": usage}).encode())
    routes = two_routes(first, "responses", client)
    routes["apps"]["second"] = replying(body=json.dumps(whole(client)).encode())
    async with inprocess(tmp_path, **routes) as here:
        reply = await here.post(PATHS[client], ASKS[client])
        assert (reply.status_code, reply.headers["x-tollgate-attempts"]) == (200, "2")
        assert reply.json()["id"] != FAILED["id"]
        (row,) = await rows(here, tmp_path)
        assert (row["provider"], row["outcome"]) == ("second", "ok")


BLOCKED = {**FAILED, "error": {"code": "cyber_policy", "message": "This content was flagged."}}
BLOCKED_EVENTS = [
    *events("responses")[:2],
    f"event: response.failed\ndata: {json.dumps({'type': 'response.failed', 'response': BLOCKED})}\n\n".encode(),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", PATHS)
async def test_a_blocked_prompt_is_the_callers_error_and_is_not_sent_to_another_route(tmp_path, client, stream):
    """Clients retry a 500: every one of their retries would send the prompt to every route, and count as a failure of
    the route."""
    first = streaming_app(*BLOCKED_EVENTS) if stream else replying(body=json.dumps(BLOCKED).encode())
    async with inprocess(tmp_path, **two_routes(first, "responses", client)) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
        assert "This content was flagged." in reply.text
        if client == "responses":  # its own format: passed on as it is
            assert reply.status_code == 200
            assert reply.content == b"".join(BLOCKED_EVENTS) if stream else reply.json() == BLOCKED
        else:
            assert reply.status_code == 400
        (row,) = await rows(here, tmp_path)
        assert (row["provider"], row["attempts"], row["error_code"]) == ("first", 1, "upstream_rejected")
        [route] = here.services.health.routes()
        assert (route.rejections, route.failures) == (1, 0)


@pytest.mark.parametrize(
    ("client", "reported"),
    [("messages", '"type":"invalid_request_error"'), ("responses", '"code":"cyber_policy"')],
    ids=["messages", "responses"],
)
async def test_an_answer_blocked_in_its_middle_is_not_worth_a_repeat(tmp_path, client, reported):
    """Clients repeat a request after any other type of error."""
    blocked = b'event: error\ndata: {"type": "error", "code": "cyber_policy", "message": "This was flagged."}\n\n'
    app = streaming_app(*events("responses")[:5], blocked)
    one = provider("app://acme/v1", "responses")
    async with inprocess(tmp_path, providers={"acme": one}, apps={"acme": app}) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        assert reply.status_code == 200 and "This was flagged." in reply.text and reported in reply.text


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_without_another_route_everything_passes_as_it_arrives(tmp_path, client, upstream):
    one = provider("app://acme/v1", upstream)
    for name, ends in failures(upstream).items():
        blocks = [*opening_events(upstream), *ends]
        async with inprocess(tmp_path / name, providers={"acme": one}, apps={"acme": streaming_app(*blocks)}) as here:
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
            if client == upstream:  # a converted stream has sent nothing yet
                assert reply.content.startswith(opening_events(upstream)[0])
            assert "secret" not in reply.text
            if name == "failed" and client == upstream:  # agents react to the text of this event
                assert reply.content == b"".join(blocks)
            (row,) = await rows(here, tmp_path / name)
            assert (row["outcome"], row["attempts"]) == ("upstream_error", 1)


@pytest.mark.parametrize("client", PATHS)
async def test_in_the_last_attempt_everything_passes_as_it_arrives_though_a_route_is_left(tmp_path, client):
    first = streaming_app(*opening_events(client), OVERLOADED[client])
    routes = two_routes(first, client, client, settings="retry: {attempts: 1}\n")
    async with inprocess(tmp_path, **routes) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        assert (reply.status_code, first.requests) == (200, 1)
        assert reply.content.startswith(opening_events(client)[0]) and "secret" not in reply.text


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_a_failure_after_the_first_text_does_not_fall_back(tmp_path, client, upstream):
    sent = events(upstream)[: {"chat": 1, "messages": 3, "responses": 5}[upstream]]
    first = streaming_app(*sent, OVERLOADED[upstream])
    async with inprocess(tmp_path, **two_routes(first, upstream, client)) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        assert (reply.status_code, reply.headers["x-tollgate-attempts"]) == (200, "1")
        assert "hello" in reply.text and "there" not in reply.text
        error_events(client, reply.text)


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_the_first_text_is_sent_as_soon_as_it_arrives(tmp_path, client, upstream):
    good = events(upstream)
    until = {"chat": 1, "messages": 3, "responses": 5}[upstream]
    goes_on = asyncio.Event()

    async def app(method, path, headers, body):
        async def answer() -> AsyncIterator[bytes]:
            for each in [*(opening_events("chat") if upstream == "chat" else ()), *good[:until]]:
                yield each
            await goes_on.wait()
            for each in good[until:]:
                yield each

        return 200, SSE, answer()

    async with inprocess(tmp_path, providers={"acme": provider("app://acme/v1", upstream)}, apps={"acme": app}) as here:
        body = json.dumps({**ASKS[client], "stream": True}).encode()
        key = here.services.ledger.find_key(here.key)
        reply = await asyncio.wait_for(complete(here.services, Inbound(client, key, body, {}, "req_1")), SECONDS)
        text = b""
        while b"hello" not in text:
            text += await asyncio.wait_for(anext(reply.stream), SECONDS)
        assert not goes_on.is_set()
        goes_on.set()
        async for block in reply.stream:
            text += block
        assert b"there" in text


async def test_keepalive_comments_are_sent_before_the_answer_starts(tmp_path):
    """They are not part of an answer, so another route may still be tried."""
    first = streaming_app(*opening_events("responses"), 0.35, RESPONSE_FAILED)
    routes = two_routes(first, "responses", "responses", settings="server: {keepalive_comment_seconds: 0.1}\n")
    async with inprocess(tmp_path, **routes) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
        comments, _, rest = reply.text.partition("event: ")
        assert comments.startswith(": keep-alive\n") and "first" not in rest
        assert "hello there" in rest


async def test_request_fields_repeated_in_the_first_event_do_not_start_the_answer(tmp_path):
    first = streaming_app(created_with(instructions="x" * 200_000), ConnectionResetError())
    async with inprocess(tmp_path, **two_routes(first, "responses", "responses")) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "2"


async def test_the_id_of_a_background_response_is_sent_at_once(tmp_path):
    first = streaming_app(created_with(background=True), ConnectionResetError())
    async with inprocess(tmp_path, **two_routes(first, "responses", "responses")) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "1" and "response.created" in reply.text


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "gathered"])
@pytest.mark.parametrize("together", [True, False], ids=["in one block", "in blocks"])
@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_the_cause_of_a_failed_response_is_read_from_the_event_after_it(tmp_path, client, stream, together):
    """A response stopped by Azure's filter has `error: null`, and the next event holds the cause."""
    failed = RESPONSE_FAILED.replace(json.dumps(FAILED["error"]).encode(), b"null")
    cause = b'event: error\ndata: {"type": "error", "error": {"code": "content_filter", "message": "filtered"}}\n\n'
    one = provider("app://acme/v1", "responses", more="" if stream else "can: {whole: false}")
    for after, status in ((cause, 400), (b"", 500)):
        blocks = [*opening_events("responses"), failed, after]
        app = streaming_app(*([b"".join(blocks)] if together else blocks))
        async with inprocess(tmp_path / str(status), providers={"acme": one}, apps={"acme": app}) as here:
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
            assert (reply.status_code, "filtered" in reply.text) == (status, status == 400)
            (row,) = await rows(here, tmp_path / str(status))
            assert row["outcome"] == ("rejected" if status == 400 else "upstream_error")
            if not stream or status == 500:
                continue
            native = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
            assert native.content == b"".join(blocks)
            assert (await rows(here, tmp_path / str(status)))[-1]["outcome"] == "rejected"
