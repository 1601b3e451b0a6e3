"""HTTP/1 as hypercorn's connections read and write it. h11, which hypercorn comes with, is the second opinion, on both
sides.

What passes over real connections, on both engines: test_engines.py and conformance/test_connections.py.
"""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import h11
import pytest
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.worker_context import EventWrapper, WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H2ProtocolAssumedError
from hypercorn.typing import ConnectionState
from hypothesis import given, settings
from hypothesis import strategies as st

from support.http1 import (
    READ,
    REFUSED,
    Found,
    answers_of,
    check_as_h11,
    cut,
    damaged_requests,
    noting,
    requests,
    whole,
)
from tollgate.engines.http1 import Http1

ANSWER = b'{"said": "so"}'


class Server:
    """A connection without a socket: what the application was asked, and what was written and told in turn."""

    def __init__(self, application: Any = None) -> None:
        self.asked: list[tuple[str, str, str, list[tuple[bytes, bytes]], bytes]] = []
        self.written: list[bytes] = []
        self.told: list[Any] = []
        self.application = application or self.answer
        self.context = WorkerContext(None)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        body = await whole(receive)
        if body is None:
            return
        self.asked.append((scope["method"], scope["path"], scope["http_version"], scope["headers"], body))
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(ANSWER)).encode())]}
        )
        await send({"type": "http.response.body", "body": ANSWER})

    async def _wrapped(self, scope: Any, receive: Any, send: Any, *_: Any) -> None:
        await self.application(scope, receive, send)

    async def exchange(self, pieces: list[bytes], *, left: bool = True) -> "Server":
        """Read these; then the client's end, unless it has not `left`."""
        async with asyncio.timeout(5), TaskGroup(asyncio.get_running_loop()) as tasks:
            around = SimpleNamespace(
                app=self._wrapped,
                config=Config(),
                context=self.context,
                task_group=tasks,
                ssl=False,
                client=("1.2.3.4", 5),
                server=("1.2.3.4", 80),
                state=ConnectionState({}),
                send=self._tell,
            )
            self.http = Http1(around, self._write, EventWrapper())  # type: ignore[arg-type]
            for piece in pieces:
                await self.http.handle(RawData(piece))
            await self._quiet()
            if left:
                await self.http.handle(Closed())
        return self

    async def _quiet(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def _write(self, data: bytes) -> None:
        assert not any(isinstance(event, Closed) for event in self.told), (
            "nothing may be written to a closed connection"
        )
        self.written.append(data)

    async def _tell(self, event: Any) -> None:
        self.told.append(event)

    @property
    def said(self) -> bytes:
        return b"".join(self.written)

    @property
    def closed(self) -> bool:
        return any(isinstance(event, Closed) for event in self.told)

    @property
    def statuses(self) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", self.said)]


# ---- what is read


@pytest.mark.parametrize(("sent", "seen"), READ.values(), ids=READ.keys())
async def test_a_request_is_read(sent, seen):
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        server = await Server().exchange(pieces)
        assert [(method, path, version, body) for method, path, version, _, body in server.asked] == [seen]
        assert server.statuses == [200] and server.closed == (seen[2] == "1.0")


async def test_header_names_are_lower_case_and_values_without_the_blanks_around_them():
    server = await Server().exchange([b"GET / HTTP/1.1\r\nHost:\t x \r\nX-One: a  b\t\r\nX-None:\r\n\r\n"])
    assert server.asked[0][3] == [(b"host", b"x"), (b"x-one", b"a  b"), (b"x-none", b"")]


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_no_http_is_refused_and_what_follows_is_not_read(sent):
    server = await Server().exchange([sent, b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"])
    assert server.statuses == [400] and server.asked == [] and server.closed
    assert answers_of(server.said, ["GET"]) == [(400, b"what was sent cannot be read as an HTTP/1.1 request", False)]
    assert re.search(rb"\r\nx-request-id: req_[0-9a-f]{24}\r\n", server.said)


async def test_a_head_without_end_is_refused():
    server = await Server().exchange([b"GET / HTTP/1.1\r\nHost: a\r\n", *[b"X: " + b"a" * 8000 + b"\r\n"] * 9])
    assert server.statuses == [431] and server.closed


@pytest.mark.parametrize(
    "more", [b"5;" + b"a" * 70000, b"0\r\n" + b"x: a\r\n" * 12000], ids=["an extension", "trailers"]
)
async def test_what_stands_around_a_body_has_an_end_too(more):
    server = await Server().exchange([b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", more])
    assert server.statuses == [431] and server.asked == [] and server.closed


async def test_a_body_that_cannot_be_read_ends_the_request_it_belongs_to():
    server = await Server().exchange(
        [b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", b"zz\r\n"]
    )
    assert server.statuses == [400] and server.asked == [] and server.closed


async def test_a_refusal_waits_for_the_answers_before_it():
    server = await Server().exchange(
        [b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\n"]
    )
    assert (
        server.statuses == [200, 200, 400] and [path for _, path, *_ in server.asked] == ["/1", "/2"] and server.closed
    )


async def test_nothing_is_read_behind_a_request_that_ends_the_connection():
    ending = b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    for pieces in ([ending + ending], [ending, ending], [ending, b"nonsense"]):
        server = await Server().exchange(pieces)
        assert (
            server.statuses == [200]
            and b"\r\nconnection: close\r\n" in server.said
            and len(server.asked) == 1
            and server.closed
        )


async def test_who_knows_that_http2_is_spoken_is_taken_at_its_word():
    with pytest.raises(ExceptionGroup) as raised:
        await Server().exchange([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest"])
    assumed = raised.value.exceptions[0]
    assert isinstance(assumed, H2ProtocolAssumedError) and assumed.data == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest"


@pytest.mark.parametrize("at", range(1, 24))
async def test_it_may_say_so_in_parts(at):
    said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest"
    with pytest.raises(ExceptionGroup) as raised:
        await Server().exchange([said[:at], said[at:]])
    assert said.startswith(raised.value.exceptions[0].data) and len(raised.value.exceptions[0].data) >= 18


async def test_who_never_says_more_than_the_beginning_of_it_is_no_error():
    assert (await Server().exchange([b"P"])).told == []
    assert (
        await Server().exchange([b"P", b"OST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", b"x"])
    ).statuses == [200]


def test_as_many_requests_to_upgrade_as_one_read_holds_are_ignored():
    http = Http1(None, None, None)  # type: ignore[arg-type]
    http._read(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: b\r\nContent-Length: 2\r\n\r\nxy" * 700)
    assert [item for item in http._arrived if type(item) is bytes] == [b"xy"] * 700 and len(http._arrived) == 3 * 700


@pytest.mark.parametrize(
    "coding", [b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"]
)
async def test_a_coding_nobody_undoes_is_not_implemented(coding):
    server = await Server().exchange([b"POST / HTTP/1.1\r\nHost: a\r\n" + coding + b"\r\n\r\n0\r\n\r\n"])
    assert server.statuses == [501] and server.asked == [] and server.closed


async def test_a_client_that_waits_for_a_word_before_its_body_is_told_to_go_on():
    head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    server = await Server().exchange([head, b"x"])
    assert server.statuses == [100, 200] and server.asked[0][4] == b"x"
    assert (await Server().exchange([head + b"x"])).statuses == [200], "it did not wait"


async def test_a_client_that_leaves_is_told_to_the_application():
    left = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            pass
        left.append(message["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    assert (
        await Server(application).exchange([b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"])
    ).said == b""
    assert left == ["http.disconnect"]


# ---- what is written


def answering(*messages: dict, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> Any:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": headers or []})
        for message in messages:
            await send({"type": "http.response.body", **message})

    return application


GET, HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
PIECES = ({"body": b"ab", "more_body": True}, {"body": b"", "more_body": True}, {"body": b"c"})


@pytest.mark.parametrize(
    ("sent", "application", "answer"),
    [
        (GET, answering({"body": b"abc"}, headers=[(b"content-length", b"3")]), (200, b"abc", True)),
        (GET, answering(*PIECES), (200, b"abc", True)),
        (GET, answering({"body": b""}, status=204), (204, b"", True)),
        (GET, answering({"body": b""}, status=304, headers=[(b"content-length", b"3")]), (304, b"", True)),
        (HEAD, answering({"body": b"abc"}, headers=[(b"content-length", b"3")]), (200, b"", True)),
        (HEAD, answering({"body": b"abc"}), (200, b"", True)),
        (
            GET,
            answering({"body": b"abc"}, headers=[(b"content-length", b"3"), (b"connection", b"close")]),
            (200, b"abc", False),
        ),
        (GET, answering({"body": b"abc"}, status=599), (599, b"abc", True)),
    ],
    ids=[
        "of known length",
        "in pieces",
        "no content",
        "not modified",
        "HEAD",
        "HEAD of pieces",
        "closing",
        "a status without a name",
    ],
)
async def test_an_answer_is_framed_as_its_readers_expect(sent, application, answer):
    server = await Server(application).exchange([sent, sent])
    times = 2 if answer[2] else 1
    assert answers_of(server.said, [sent.split()[0].decode()] * times) == [answer] * times
    assert server.closed is not answer[2]
    assert (
        len(re.findall(rb"\r\ndate: [A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\r\n", server.said))
        == times
    )


async def test_an_old_client_hears_the_end_of_a_stream_as_the_end_of_the_connection():
    server = await Server(answering(*PIECES)).exchange([b"GET / HTTP/1.0\r\n\r\n"])
    head, _, body = server.said.partition(b"\r\n\r\n")
    assert body == b"abc" and b"transfer-encoding" not in head and b"connection: close" in head and server.closed


@pytest.mark.parametrize(
    ("messages", "length"),
    [
        (({"body": b"ab"},), b"3"),
        (({"body": b"ab", "more_body": True},), b"3"),
        (({"body": b"abcd"},), b"3"),
        (({"body": b"a", "more_body": True},), None),
    ],
    ids=["too short", "broken off", "too long", "a stream broken off"],
)
async def test_an_answer_that_is_not_what_its_head_says_ends_the_connection(messages, length, caplog):
    server = await Server(answering(*messages, headers=[(b"content-length", length)] if length else [])).exchange([GET])
    assert server.closed and server.statuses == [200]
    with pytest.raises(h11.RemoteProtocolError):
        answers_of(server.said, ["GET"])


async def test_an_application_that_fails_before_its_answer_is_a_500():
    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    server = await Server(application).exchange([GET])
    assert answers_of(server.said, ["GET"]) == [(500, b"", False)] and server.closed


async def test_no_header_can_hold_another():
    server = await Server(answering({"body": b""}, headers=[(b"x", b"a\r\nset-cookie: b")])).exchange([GET])
    assert b"set-cookie" not in server.said and server.closed


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        (b"Content-Length: 6\r\n\r\nabc", [b"d", b"ef"]),
        (b"Content-Length: 6\r\n\r\nabc", [b"def" + GET]),
        (b"Transfer-Encoding: chunked\r\n\r\n6\r\nabc", [b"def\r\n", b"0\r\n\r\n"]),
        (b"Transfer-Encoding: chunked\r\n\r\n6\r\nabc", [b"def\r\nnonsense"]),
    ],
    ids=["in pieces", "with a request behind it", "chunked", "nonsense"],
)
async def test_an_unread_body_is_read_to_its_end_before_its_connection_ends(begin, rest):
    """Most clients write on while the answer is on its way: closing at once is all that they would hear of."""
    early = answering({"body": b""}, status=401, headers=[(b"content-length", b"0")])
    server = await Server(early).exchange([b"POST / HTTP/1.1\r\nHost: a\r\n" + begin], left=False)
    assert server.statuses == [401] and b"\r\nconnection: close\r\n" in server.said
    assert [event.idle for event in server.told] == [False, True]
    for piece in rest:
        assert not server.closed
        await server.http.handle(RawData(piece))
    assert server.closed and server.statuses == [401]


async def test_a_body_without_end_is_not_read_for_nobody_without_end(monkeypatch):
    monkeypatch.setattr("tollgate.engines.http1.MOST_DROPPED", 1000)
    early = answering({"body": b""}, status=401, headers=[(b"content-length", b"0")])
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = await Server(early).exchange([head + b"3\r\nabc\r\n"], left=False)
    for _ in range(10):
        assert not server.closed
        await server.http.handle(RawData(b"64\r\n" + b"x" * 100 + b"\r\n"))
    await server.http.handle(RawData(b"1\r\nx\r\n"))
    assert server.closed and server.statuses == [401]


async def test_an_unread_body_ends_the_connection_and_a_read_one_does_not():
    early = answering({"body": b""}, status=401, headers=[(b"content-length", b"0")])
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n"
    unread = await Server(early).exchange([post + b"abc"], left=False)
    assert b"\r\nconnection: close\r\n" in unread.said
    whole = await Server(early).exchange([post + b"abcdef", post + b"abcdef"])
    assert whole.statuses == [401, 401] and not whole.closed


async def test_an_answer_that_begins_while_the_server_ends_says_that_its_connection_does_too():
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await server.context.terminated.set()
        await server.answer(scope, receive, send)

    server = Server(application)
    await server.exchange([GET])
    assert (
        answers_of(server.said, ["GET"]) == [(200, ANSWER, False)]
        and b"\r\nconnection: close\r\n" in server.said
        and server.closed
    )


@pytest.mark.parametrize("answers", [True, False], ids=["an early answer", "a client that leaves"])
async def test_pieces_of_a_body_that_nobody_reads_hold_nothing_up(answers):
    here, go = asyncio.Event(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        here.set()
        await go.wait()
        if answers:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
        else:
            while (await receive())["type"] != "http.disconnect":
                pass

    async def leaving() -> None:
        await here.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        if not answers:
            await server.http.handle(Closed())
        go.set()

    server = Server(application)
    task = asyncio.create_task(leaving())
    await server.exchange([b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n", *[b"abc"] * 20])
    await task
    assert server.statuses == ([401] if answers else [])


async def test_a_connection_says_when_it_is_idle():
    server = await Server().exchange([GET, GET])
    assert [event.idle for event in server.told if isinstance(event, Updated)] == [False, True, False, True]


# ---- a second opinion

async def reads(pieces: list[bytes]) -> tuple[Found, bool]:
    """The requests that are found, and whether the rest is refused."""
    found: Found = []
    statuses = (await Server(noting(found)).exchange(pieces)).statuses
    return found, not {400, 431, 501}.isdisjoint(statuses)


@settings(max_examples=60)
@given(st.data())
def test_requests_behind_one_another_are_read_as_h11_reads_them_however_they_are_cut(data):
    sent = b"".join(data.draw(st.lists(requests(), min_size=1, max_size=3)))
    check_as_h11(reads, sent, data.draw(cut(sent)))


@settings(max_examples=100)
@given(st.data())
def test_a_damaged_request_is_refused_or_read_as_h11_reads_it(data):
    sent = data.draw(damaged_requests())
    check_as_h11(reads, sent, data.draw(cut(sent)), damaged=True)
