"""HTTP/1 on a client's connection: what is read, how a response is framed, and clients that disconnect or do not read.

Tests over real connections, on both engines: test_engines.py and conformance/test_connections.py.
"""

import asyncio
import gc
import re
import weakref
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.http1 import (
    GET,
    READ,
    REFUSED,
    Client,
    Found,
    answers_of,
    check_as_h11,
    cut,
    damaged_requests,
    noting,
    requests,
    whole,
)
from support.waiting import until
from tollgate.engines import http1
from tollgate.http import DIRECT, Responder
from tollgate.services import Reply


def application_sending(
    *messages: bytes, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None, whole_answer: bool = True
) -> Any:
    """An application that sends a body in these pieces. The last one ends it if it is a `whole_answer`."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers or []})
        for number, body in enumerate(messages, start=1):
            await send(
                {"type": "http.response.body", "body": body, "more_body": number < len(messages) or not whole_answer}
            )

    return application


# ---- reading


@pytest.mark.parametrize(("sent", "seen"), READ.values(), ids=READ.keys())
async def test_a_request_is_read(sent, seen):
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        client = await Client().exchange(pieces)
        assert [(method, path, version, body) for method, path, version, _, body in client.asked] == [seen]
        assert client.statuses == [200] and client.transport.closed == (seen[2] == "1.0")


async def test_header_names_are_lower_cased_and_values_stripped():
    client = await Client().exchange([b"GET /a%20b?c=%20 HTTP/1.1\r\nHost:\t x \r\nX-One: a  b\t\r\nX-None:\r\n\r\n"])
    assert client.asked[0][3] == [(b"host", b"x"), (b"x-one", b"a  b"), (b"x-none", b"")]
    assert (client.scopes[0]["raw_path"], client.scopes[0]["query_string"], client.scopes[0]["scheme"]) == (
        b"/a%20b",
        b"c=%20",
        "http",
    )


@pytest.mark.parametrize(
    "sent", [*REFUSED.values(), b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"], ids=[*REFUSED.keys(), "a tunnel"]
)
async def test_invalid_http_is_rejected_and_nothing_after_it_is_read(sent):
    client = await Client().exchange([sent, b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"])
    assert client.statuses == [400] and client.asked == [] and client.transport.closed
    assert answers_of(client.said, ["GET"]) == [(400, b"not a valid HTTP/1.1 request", False)]
    assert re.search(rb"\r\nx-request-id: req_[0-9a-f]{24}\r\n", client.said)


async def test_an_unsupported_transfer_coding_is_named():
    client = await Client().exchange(
        [b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"]
    )
    assert client.statuses == [501] and b"the only supported transfer encoding is chunked" in client.said


async def test_a_head_without_an_end_is_rejected():
    client = await Client().exchange([b"GET / HTTP/1.1\r\nHost: a\r\n", *[b"X: " + b"a" * 8000 + b"\r\n"] * 9])
    assert client.statuses == [431] and client.transport.closed


@pytest.mark.parametrize(
    "more", [b"5;" + b"a" * 70000, b"0\r\n" + b"x: a\r\n" * 12000], ids=["an extension", "trailers"]
)
async def test_chunk_extensions_and_trailers_are_bounded(more):
    client = await Client().exchange([b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", more])
    assert client.statuses == [431] and client.asked == [] and client.transport.closed


async def test_an_invalid_request_is_answered_after_those_before_it():
    go = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await whole(receive)
        await go.wait()
        await application_sending(b"ok", headers=[(b"content-length", b"2")])(scope, receive, send)

    client = Client(application)
    await client.exchange([GET + GET + b"nonsense\r\n\r\n"], left=False)
    assert client.said == b""
    go.set()
    await client.exchange([])
    assert answers_of(client.said, ["GET", "GET", "GET"])[:2] == [
        (200, b"ok", True),
        (200, b"ok", True),
    ] and client.statuses == [200, 200, 400]


async def test_nothing_is_read_after_a_request_that_closes_the_connection():
    ending = b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    for pieces in ([ending + ending], [ending, ending], [ending, b"nonsense"]):
        client = await Client().exchange(pieces)
        assert client.statuses == [200] and b"\r\nconnection: close\r\n" in client.said
        assert len(client.asked) == 1 and client.transport.closed


async def test_hundreds_of_upgrade_requests_in_one_read_are_ignored():
    upgrade = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: b\r\nContent-Length: 2\r\n\r\nxy"
    client = await Client().exchange([upgrade * 700], left=False)
    await until(lambda: len(client.statuses) >= 700)
    assert client.statuses == [200] * 700 and {body for *_, body in client.asked} == {b"xy"}


async def test_an_invalid_body_is_rejected_even_if_its_request_is_queued():
    client = Client()
    broken = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n"
    await client.exchange([GET + GET + broken])
    assert (
        [method for method, *_ in client.asked] == ["GET", "GET"]
        and client.statuses == [200, 200, 400]
        and client.transport.closed
    )


async def test_a_large_body_pauses_reading_until_it_is_consumed():
    take = asyncio.Event()
    seen = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await take.wait()
        seen.append(len(await whole(receive) or b""))
        await application_sending(b"", headers=[(b"content-length", b"0")])(scope, receive, send)

    client = Client(application)
    await client.exchange([b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", bytes(90000)], left=False)
    assert client.transport.paused
    take.set()
    await client.exchange([], left=False)
    assert not client.transport.paused and seen == []
    await client.exchange([bytes(10000)])
    assert seen == [100000] and client.statuses == [200]


async def test_many_pipelined_requests_pause_reading():
    go = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await application_sending(b"", headers=[(b"content-length", b"0")])(scope, receive, send)

    client = await Client(application).exchange([GET] * 10, left=False)
    assert client.transport.paused
    go.set()
    await client.exchange([], left=False)
    assert not client.transport.paused and client.statuses == [200] * 10


async def test_100_continue_is_sent_when_the_body_is_read():
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    client = await Client().exchange([head], left=False)
    assert client.said == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.exchange([b"a"])
    assert client.statuses == [100, 200] and client.asked[0][4] == b"a"
    refused = await Client(application_sending(b"", status=401, headers=[(b"content-length", b"0")])).exchange([head])
    assert refused.statuses == [401]


# ---- responding


@pytest.mark.parametrize(
    ("status", "headers", "body", "request_", "written", "closed"),
    [
        (200, [(b"content-length", b"2")], b"ok", GET, b"200 OK\r\ncontent-length: 2\r\n\r\nok", False),
        (
            200,
            [(b"a", b"b")],
            b"ok",
            GET,
            b"200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            False,
        ),
        (
            200,
            [(b"content-length", b"2")],
            b"ok",
            b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
            b"200 OK\r\ncontent-length: 2\r\n\r\n",
            False,
        ),
        (304, [(b"etag", b"x")], b"", GET, b"304 Not Modified\r\netag: x\r\n\r\n", False),
        (204, [], b"", GET, b"204 No Content\r\n\r\n", False),
        (529, [(b"content-length", b"0")], b"", GET, b"529 \r\ncontent-length: 0\r\n\r\n", False),
        (
            200,
            [(b"content-length", b"2")],
            b"ok",
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            b"200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
            True,
        ),
        (
            200,
            [(b"content-length", b"2"), (b"connection", b"Close")],
            b"ok",
            GET,
            b"200 OK\r\ncontent-length: 2\r\nconnection: Close\r\n\r\nok",
            True,
        ),
        (
            200,
            [(b"content-length", b"2")],
            b"ok",
            b"GET / HTTP/1.0\r\n\r\n",
            b"200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
            True,
        ),
        (200, [], b"ok", b"GET / HTTP/1.0\r\n\r\n", b"200 OK\r\nconnection: close\r\n\r\nok", True),
    ],
    ids=[
        "of known length",
        "in chunks",
        "HEAD",
        "304",
        "204",
        "a status without a name",
        "a client that wants the end",
        "an answer that is the last",
        "HTTP/1.0",
        "of unknown length to HTTP/1.0",
    ],
)
async def test_an_answer_is_framed_according_to_its_head(status, headers, body, request_, written, closed):
    def direct(scope: Any, receive: Any, send: Any) -> Any:
        return scope["extensions"][DIRECT].answer(status, headers, body)

    for application in (application_sending(body, status=status, headers=headers), direct):
        client = await Client(application).exchange([request_], left=False)
        assert (client.said, client.transport.closed) == (b"HTTP/1.1 " + written, closed)
        assert len(client.transport.written) == 1  # head and body in one write
        client.connection.connection_lost(None)


@pytest.mark.parametrize("header", [(b"a", b"b\r\nset-cookie: c"), (b"a\nb", b"c"), (b"a", b"b\n")])
async def test_a_line_break_in_a_header_is_rejected(header, caplog):
    client = await Client(application_sending(b"ok", headers=[header])).exchange([GET])
    assert client.statuses == [500] and b"cookie" not in client.said
    assert "a header of the answer contains a line break" in caplog.text


@pytest.mark.parametrize(
    ("messages", "length"), [((b"ok", b"o"), b"2"), ((b"o", b"k"), b"3")], ids=["too long", "too short"]
)
async def test_a_body_that_contradicts_its_content_length_closes_the_connection(messages, length, caplog):
    client = await Client(application_sending(*messages, headers=[(b"content-length", length)])).exchange([GET, GET])
    assert client.transport.closed and client.statuses == [200]
    assert "than its content-length" in caplog.text


async def test_a_missing_answer_is_a_500_and_an_incomplete_one_closes_the_connection(caplog):
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        pass

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        raise OSError("out of order")

    for application in (silent, failing):
        client = await Client(application).exchange([GET])
        assert answers_of(client.said, ["GET"]) == [(500, b"Internal Server Error", False)] and client.transport.closed
        [request_id] = set(re.findall(rb"request-id: (\S+)", client.said))
        assert f"request {request_id.decode()}" in caplog.text
        assert client.host.tasks == set()
    client = await Client(application_sending(b"half", whole_answer=False)).exchange([GET])
    assert client.transport.closed
    with pytest.raises(h11.RemoteProtocolError):
        answers_of(client.said, ["GET"])
    assert "out of order" in caplog.text and caplog.text.count("was not completed") == 2


async def test_messages_in_the_wrong_order_are_rejected():
    refused = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for kind in (
            "http.response.body",
            "http.response.start",
            "http.response.start",
            "http.response.body",
            "http.response.body",
        ):
            try:
                await send({"type": kind, "status": 200, "headers": [(b"content-length", b"0")], "body": b""})
            except RuntimeError as error:
                refused.append(str(error))

    client = await Client(application).exchange([GET])
    assert client.statuses == [200]
    assert refused == [
        "got http.response.body, expected http.response.start",
        "got http.response.start, expected http.response.body",
        "got http.response.body, expected nothing after the complete answer",
    ]


async def test_an_answer_before_the_end_of_the_body_keeps_the_connection_usable():
    client = Client(application_sending(b"", status=401, headers=[(b"content-length", b"0")]))
    await client.exchange([b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", b"defghi" + GET])
    assert client.statuses == [401, 401] and not client.transport.closed


@pytest.mark.parametrize("rest", [[b"d", b"ef"], [b"def" + GET]], ids=["in pieces", "with a request behind it"])
async def test_a_closing_connection_reads_the_rest_of_the_body_first(rest):
    """Most clients keep writing while the response is on its way; if the connection closed at once, they would see
    only that."""
    client = Client(application_sending(b"", status=401, headers=[(b"content-length", b"0")]))
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\n"
    await client.exchange([head + b"abc"], left=False)
    for piece in rest:
        assert client.statuses == [401] and not client.transport.closed
        await client.exchange([piece], left=False)
    assert client.statuses == [401] and client.transport.closed


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"], ids=["kept", "ending"])
async def test_an_endless_body_after_the_answer_is_read_up_to_a_limit(monkeypatch, more):
    monkeypatch.setattr("tollgate.engines.http1.MOST_DROPPED", 1000)
    client = Client(application_sending(b"", status=401, headers=[(b"content-length", b"0")]))
    head = b"POST / HTTP/1.1\r\nHost: a\r\n" + more + b"Transfer-Encoding: chunked\r\n\r\n"
    await client.exchange([head + b"3\r\nabc\r\n"], left=False)
    for _ in range(10):
        assert not client.transport.closed
        await client.exchange([b"64\r\n" + b"x" * 100 + b"\r\n"], left=False)
    await client.exchange([b"1\r\nx\r\n"], left=False)
    assert client.statuses == [401] and client.transport.closed


async def test_a_slow_reader_pauses_the_application():
    sent = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": number < 2})
            sent.append(number)
            if number == 0:
                client.connection.pause_writing()

    client = Client(application)
    await client.exchange([GET], left=False)
    assert sent == [0]
    client.connection.resume_writing()
    await client.exchange([])
    assert sent == [0, 1, 2] and answers_of(client.said, ["GET"]) == [(200, b"xxx", True)]


@pytest.mark.parametrize("sent", [GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), b"invalid\r\n\r\n"])
async def test_a_closing_connection_is_ended_if_its_client_does_not_read_the_rest(monkeypatch, sent):
    monkeypatch.setattr(http1, "STUCK_SECONDS", 0.001)
    client = Client()
    client.transport.unsent = [30, 20, 20, 10]  # read once, then no more
    await client.exchange([sent], left=False)
    assert client.transport.closed
    await until(lambda: client.transport.aborted)
    assert client.transport.unsent == [10]


async def test_a_client_that_disconnects_while_an_answer_waits_blocks_nothing():
    async def application(scope: Any, receive: Any, send: Any) -> None:
        client.connection.pause_writing()
        await scope["extensions"][DIRECT].answer(200, [(b"content-length", b"2")], b"ok")
        ended.append(True)

    ended: list[bool] = []
    client = Client(application)
    await client.exchange([GET])
    await asyncio.sleep(0)
    assert ended == [True] and client.said == b"" and client.host.tasks == set()


async def test_a_shutdown_waits_only_for_the_last_answer(monkeypatch):
    monkeypatch.setattr(http1, "CLOSE_GRACE_SECONDS", 0.05)
    unread = iter([True])  # the first time, bytes of a request are still unread
    monkeypatch.setattr(http1, "end_unused", lambda _: not next(unread, False))
    go = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await application_sending(b"ok", headers=[(b"content-length", b"2")])(scope, receive, send)

    idle, busy, late = Client(application), Client(application), Client(application)
    await busy.exchange([GET + GET], left=False)
    for client in (idle, busy, late):
        client.connection.shutdown()
    await late.exchange([GET], left=False)  # sent before its client could know
    await until(lambda: idle.transport.closed)
    await asyncio.sleep(0.1)
    assert next(unread, None) is None
    assert not busy.transport.closed and not late.transport.closed
    go.set()
    for client in (busy, late):
        await client.exchange([], left=False)
    assert [kept for *_, kept in answers_of(late.said, ["GET"])] == [False] and late.transport.closed
    assert [kept for *_, kept in answers_of(busy.said, ["GET", "GET"])] == [True, False] and busy.transport.closed


async def test_middleware_sees_the_answer():
    async def application(scope: Any, receive: Any, send: Any) -> None:
        async def adding(message: Any) -> None:
            await send(
                message | {"headers": [*message["headers"], (b"x-more", b"1")]} if "headers" in message else message
            )

        for each in (adding, send)[len(client.statuses) :][:1]:
            responder = Responder(receive, each, [])
            await receive()
            responder.watch_client(scope)
            await responder.send(Reply(200, body=b"ok"))
            responder.close()

    client = Client(application)
    await client.exchange([GET, GET])
    assert client.statuses == [200, 200] and client.said.count(b"x-more: 1") == 1


# ---- clients that disconnect


async def test_a_disconnect_cancels_the_request_without_a_watching_task():
    ends: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        responder = Responder(receive, send, [])
        responder.watch_client(scope)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("left" if responder.recovers() else "cancelled")
        finally:
            responder.close()

    tasks = asyncio.all_tasks()
    client = Client(application)
    # the second one is queued
    client.connection.data_received(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n")
    await asyncio.sleep(0.06)
    assert len(asyncio.all_tasks() - tasks) == 1
    client.connection.connection_lost(None)
    await until(lambda: not client.host.tasks)
    assert ends == ["left"] and client.host.connections == set()


async def test_receive_reports_the_disconnect():
    types = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        types.extend([(await receive())["type"] for _ in range(2)])

    await Client(application).exchange([GET])
    assert types == ["http.request", "http.disconnect"]


async def test_a_request_is_freed_without_the_garbage_collector():
    class Kept:
        pass

    left = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scope["kept"] = kept = Kept()
        left.append(weakref.ref(kept))
        responder = Responder(receive, send, [])
        responder.watch_client(scope)
        await responder.send(Reply(200, body=b"ok"))
        responder.close()

    client = Client(application)
    gc.disable()
    try:
        await client.exchange([GET] * 3, left=False)
        assert client.statuses == [200] * 3
        assert [ref() for ref in left] == [None] * 3
    finally:
        gc.enable()
        client.connection.connection_lost(None)


async def test_a_connection_is_freed_without_the_garbage_collector():
    gc.disable()
    try:
        client = await Client(application_sending(b"", headers=[(b"content-length", b"0")])).exchange([GET, GET])
        left = weakref.ref(client.connection)
        del client
        await asyncio.sleep(0)
        assert left() is None
    finally:
        gc.enable()


# ---- comparison with h11


async def read_by_us(pieces: list[bytes]) -> tuple[Found, bool]:
    """The requests that are read, and whether the rest is rejected."""
    found: Found = []
    statuses = (await Client(noting(found)).exchange(pieces)).statuses
    return found, not {400, 431, 501}.isdisjoint(statuses)


@settings(max_examples=60)
@given(st.data())
def test_pipelined_requests_are_read_as_by_h11_in_any_pieces(data):
    sent = b"".join(data.draw(st.lists(requests(), min_size=1, max_size=3)))
    check_as_h11(read_by_us, sent, data.draw(cut(sent)))


@settings(max_examples=100)
@given(st.data())
def test_a_damaged_request_is_rejected_or_read_as_by_h11(data):
    sent = data.draw(damaged_requests())
    check_as_h11(read_by_us, sent, data.draw(cut(sent)), damaged=True)
