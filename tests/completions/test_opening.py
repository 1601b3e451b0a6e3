"""A stream that fails before anything of its answer has come goes to another route: `stream.opening` of a mapping says
which events are nothing of an answer yet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from conformance.upstreams import ASKS, CELLS, IDS, PATHS, error_events, events, provider, whole
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows
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
"""How an answer of these formats says itself that it failed."""


def first_words(protocol: str) -> list[bytes]:
    """What a provider says before its answer."""
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
    """The first event of a response that says more of itself."""
    event = json.loads(events("responses")[0].partition(b"data: ")[2])
    event["response"] |= more
    return b"event: response.created\ndata: " + json.dumps(event).encode() + b"\n\n"


def app_of(*blocks: bytes | float | Exception):
    """An upstream that streams these, pausing where a number stands; `.asked` counts its requests."""

    async def app(method, path, headers, body):
        app.asked += 1

        async def answer() -> AsyncIterator[bytes]:
            for block in blocks:
                if isinstance(block, Exception):
                    raise block
                if isinstance(block, float):
                    await asyncio.sleep(block)
                else:
                    yield block

        return 200, SSE, answer()

    app.asked = 0
    return app


def two_routes(first, upstream: str, client: str, *, settings: str = "") -> dict:
    """A gateway whose first route is `first`, and whose second, of the client's own format, answers."""
    return {
        "providers": {
            "first": provider("app://first/v1", upstream, name="first"),
            "second": provider("app://second/v1", client, name="second", more="priority: 1"),
        },
        "apps": {"first": first, "second": app_of(*events(client))},
        "settings": settings,
    }


def failures(upstream: str) -> dict[str, list]:
    """How a stream ends that has said nothing yet."""
    ends = {"error": [OVERLOADED[upstream]], "reset": [ConnectionResetError()], "end": [],
            "comments": [b": wait\n\n", b": wait\n\n", OVERLOADED[upstream]]}  # fmt: skip
    return {**ends, "failed": FAILURE[upstream]} if upstream in FAILURE else ends


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
@pytest.mark.parametrize("together", [False, True], ids=["in blocks", "in one block"])
async def test_a_stream_that_fails_before_its_answer_goes_to_another_route(tmp_path, client, upstream, together):
    for name, ends in failures(upstream).items():
        blocks = [*first_words(upstream), *ends]
        if together:
            blocks = [b"".join(each for each in blocks if isinstance(each, bytes)), *ends[-1:]]
            blocks = [each for at, each in enumerate(blocks) if at == 0 or isinstance(each, Exception)]
        first = app_of(*blocks)
        async with inprocess(tmp_path / name, **two_routes(first, upstream, client)) as here:
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
            assert (reply.status_code, reply.headers["x-tollgate-attempts"], first.asked) == (200, "2", 1), name
            assert reply.text.encode().startswith(events(client)[0][:30]), name
            assert "first" not in reply.text and "secret" not in reply.text, name
            (row,) = await rows(here, tmp_path / name)
            assert (row["provider"], row["outcome"]) == ("second", "ok")
            assert (row["input_tokens"], row["output_tokens"]) == (10, 5)


@pytest.mark.parametrize("usage", [None, {"input_tokens": 3, "output_tokens": 0}], ids=["untold", "told"])
@pytest.mark.parametrize("client", PATHS)
async def test_a_whole_response_that_says_it_failed_goes_to_another_route(tmp_path, client, usage):
    first = replying(body=json.dumps({**FAILED, "usage": usage}).encode())
    routes = two_routes(first, "responses", client)
    routes["apps"]["second"] = replying(body=json.dumps(whole(client)).encode())
    async with inprocess(tmp_path, **routes) as here:
        reply = await here.post(PATHS[client], ASKS[client])
        assert (reply.status_code, reply.headers["x-tollgate-attempts"]) == (200, "2")
        assert reply.json()["id"] != FAILED["id"]
        (row,) = await rows(here, tmp_path)
        assert (row["provider"], row["outcome"]) == ("second", "ok")


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_where_no_other_route_is_left_all_passes_as_it_comes(tmp_path, client, upstream):
    one = provider("app://acme/v1", upstream)
    for name, ends in failures(upstream).items():
        blocks = [*first_words(upstream), *ends]
        async with inprocess(tmp_path / name, providers={"acme": one}, apps={"acme": app_of(*blocks)}) as here:
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
            if client == upstream:  # a converted one has said nothing yet
                assert reply.content.startswith(first_words(upstream)[0])
            assert "secret" not in reply.text
            if name == "failed" and client == upstream:  # agents act on its words
                assert reply.content == b"".join(blocks)
            (row,) = await rows(here, tmp_path / name)
            assert (row["outcome"], row["attempts"]) == ("upstream_error", 1)


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_what_fails_after_the_first_word_does_not_move_on(tmp_path, client, upstream):
    said = events(upstream)[: {"chat": 1, "messages": 3, "responses": 5}[upstream]]
    first = app_of(*said, OVERLOADED[upstream])
    async with inprocess(tmp_path, **two_routes(first, upstream, client)) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        assert (reply.status_code, reply.headers["x-tollgate-attempts"]) == (200, "1")
        assert "hello" in reply.text and "there" not in reply.text
        error_events(client, reply.text)


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_the_first_word_leaves_as_soon_as_it_is_there(tmp_path, client, upstream):
    good = events(upstream)
    until = {"chat": 1, "messages": 3, "responses": 5}[upstream]
    goes_on = asyncio.Event()

    async def app(method, path, headers, body):
        async def answer() -> AsyncIterator[bytes]:
            for each in [*(first_words("chat") if upstream == "chat" else ()), *good[:until]]:
                yield each
            await goes_on.wait()
            for each in good[until:]:
                yield each

        return 200, SSE, answer()

    async with inprocess(tmp_path, providers={"acme": provider("app://acme/v1", upstream)}, apps={"acme": app}) as here:
        body = json.dumps({**ASKS[client], "stream": True}).encode()
        key = here.services.ledger.find_key(here.key)
        reply = await asyncio.wait_for(complete(here.services, Inbound(client, key, body, {}, "req_1")), 5)
        text = b""
        while b"hello" not in text:
            text += await asyncio.wait_for(anext(reply.stream), 5)
        assert not goes_on.is_set()
        goes_on.set()
        async for block in reply.stream:
            text += block
        assert b"there" in text


async def test_comments_keep_a_client_while_nothing_has_come(tmp_path):
    """They are no answer, so another route may still be tried."""
    first = app_of(*first_words("responses"), 0.35, RESPONSE_FAILED)
    routes = two_routes(first, "responses", "responses", settings="server: {keepalive_comment_seconds: 0.1}\n")
    async with inprocess(tmp_path, **routes) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
        comments, _, rest = reply.text.partition("event: ")
        assert comments.startswith(": keep-alive\n") and "first" not in rest
        assert "hello there" in rest


async def test_what_a_response_repeats_of_its_request_is_no_answer_however_long(tmp_path):
    first = app_of(created_with(instructions="x" * 200_000), ConnectionResetError())
    async with inprocess(tmp_path, **two_routes(first, "responses", "responses")) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "2"


async def test_a_response_in_the_background_has_its_id_told_at_once(tmp_path):
    first = app_of(created_with(background=True), ConnectionResetError())
    async with inprocess(tmp_path, **two_routes(first, "responses", "responses")) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "1" and "response.created" in reply.text


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "gathered"])
@pytest.mark.parametrize("together", [True, False], ids=["in one block", "in blocks"])
@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_why_an_answer_failed_may_be_told_behind_its_failure(tmp_path, client, stream, together):
    """A response that Azure's filter stopped: `error: null`, and then an event that says why."""
    failed = RESPONSE_FAILED.replace(json.dumps(FAILED["error"]).encode(), b"null")
    why = b'event: error\ndata: {"type": "error", "error": {"code": "content_filter", "message": "filtered"}}\n\n'
    one = provider("app://acme/v1", "responses", more="" if stream else "can: {whole: false}")
    for behind, status in ((why, 400), (b"", 500)):
        blocks = [*first_words("responses"), failed, behind]
        app = app_of(*([b"".join(blocks)] if together else blocks))
        async with inprocess(tmp_path / str(status), providers={"acme": one}, apps={"acme": app}) as here:
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
            assert (reply.status_code, "filtered" in reply.text) == (status, status == 400)
            (row,) = await rows(here, tmp_path / str(status))
            assert row["outcome"] == ("rejected" if status == 400 else "upstream_error")
            if not stream or status == 500:
                continue
            native = await here.post(PATHS["responses"], {**ASKS["responses"], "stream": True})
            assert native.content == b"".join(blocks)
            assert (await rows(here, tmp_path / str(status)))[-1]["outcome"] == "upstream_error"
