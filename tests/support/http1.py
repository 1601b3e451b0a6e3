"""Valid and invalid HTTP/1 requests; what h11 reads of them and of their responses, as a second opinion; and a client
without a socket."""

import asyncio
import itertools
import re
from typing import Any

import h11
from hypothesis import strategies as st

from tollgate.engines.http1 import Http1

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
ANSWER = b'{"ok": true}'

READ = {
    "a body of known length": (
        b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        ("POST", "/a", "1.1", b"abc"),
    ),
    "chunks, an extension, trailers": (
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;e=1\r\nab\r\n1\r\nc\r\n0\r\nHost: "
            b"y\r\n\r\n"
        ),
        ("POST", "/", "1.1", b"abc"),
    ),
    "an absolute URL": (
        b"GET http://x:80/v1/models?a HTTP/1.1\r\nHost: x\r\n\r\n",
        ("GET", "http://x:80/v1/models", "1.1", b""),
    ),
    "an asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", ("OPTIONS", "*", "1.1", b"")),
    "escapes in the path": (b"GET /a%20b HTTP/1.1\r\nHost: x\r\n\r\n", ("GET", "/a b", "1.1", b"")),
    "HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", ("GET", "/", "1.0", b"")),
    "empty lines before the request": (b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", ("GET", "/", "1.1", b"")),
    "an upgrade to HTTP/2 with a body": (
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\na",
        ("POST", "/", "1.1", b"a"),
    ),
    "an upgrade in capitals": (
        b"POST / HTTP/1.1\r\nHost: x\r\nCONNECTION: UPGRADE\r\nUPGRADE: H2C\r\nContent-Length: 1\r\n\r\na",
        ("POST", "/", "1.1", b"a"),
    ),
    "an upgrade with a chunked body": (
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: odd\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
        ),
        ("POST", "/", "1.1", b"a"),
    ),
    "an upgrade header without connection: upgrade": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\na\r\nupgrade: b\r\nc",
        ("POST", "/", "1.1", b"a\r\nupgrade: b\r\nc"),
    ),
    "an upgrade to a web socket": (
        b"GET /w HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        ("GET", "/w", "1.1", b""),
    ),
}
"""A request as it is sent; its method, path, version and body as the application receives them."""

REFUSED = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a path in a host": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a user in a host": b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "a space in a host": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "not HTTP": b"\x16\x03\x01\x02\x00",
    "an unsupported version": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a length and chunks": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: "
    b"chunked\r\n\r\n0\r\n\r\n",
    "a sign in a length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
    "a control character": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x01\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: a\n\n",
    "a non-ASCII byte in the path": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "another transfer coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
}


async def whole(receive: Any) -> bytes | None:
    """A request's body, or None if the client left."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        more = message["more_body"]
    return body


def answers_of(written: bytes, methods: list[str]) -> list[tuple[int, bytes, bool]]:
    """Status, body and whether the connection is kept alive, as h11 reads the responses to these methods."""
    found = []
    for method in methods:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(written)
        status, body = 0, b""
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            elif event is h11.NEED_DATA:
                client.receive_data(b"")
        found.append((status, body, client.their_state is h11.DONE))
        written = client.trailing_data[0]
    assert written == b""
    return found


NAMES = st.sampled_from(["accept", "x-one", "authorization", "user-agent", "x-y_z"])
VALUES = st.text(
    st.characters(codec="latin-1", min_codepoint=33, exclude_characters="\x7f" + "".join(map(chr, range(128, 160)))),
    max_size=12,
)


@st.composite
def requests(draw: Any) -> bytes:
    """A valid request."""
    method = draw(st.sampled_from(["GET", "POST", "HEAD", "DELETE", "OPTIONS"]))
    target = draw(st.sampled_from(["/", "/v1/models", "/v1/chat/completions?x=%20&y", "/a%2Fb"]))
    lines = [f"{method} {target} HTTP/1.1", f"Host:{draw(st.sampled_from(['', ' ', '  ']))}x"]
    lines += [
        f"{name.title()}: {value}{draw(st.sampled_from(['', ' ']))}"
        for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=3))
    ]
    body = draw(st.binary(max_size=40))
    framing = draw(st.sampled_from(["none", "length", "chunks"]))
    if framing == "none":
        body = b""
    elif framing == "length":
        lines.append(f"content-length: {len(body)}")
    else:
        lines.append("Transfer-Encoding: chunked")
        size = draw(st.integers(1, 20))
        body = b"".join(
            b"%X%b\r\n%b\r\n" % (len(body[at : at + size]), draw(st.sampled_from([b"", b";a=b"])), body[at : at + size])
            for at in range(0, len(body), size)
        )
        body += b"0\r\n" + draw(st.sampled_from([b"", b"x-sum: 1\r\n"])) + b"\r\n"
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@st.composite
def damaged_requests(draw: Any) -> bytes:
    """Requests with a few bytes changed."""
    sent = bytearray(b"".join(draw(st.lists(requests(), min_size=1, max_size=2))))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(sent) - 1))
        sent[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"\r", b"\n", b"\r\n", b" ", b"0", b"a", b":", b"\x00", b"\xff"])
        )
    return bytes(sent)


@st.composite
def cut(draw: Any, data: bytes) -> list[bytes]:
    places = sorted(draw(st.sets(st.integers(0, len(data)), max_size=6)) | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def h11_reads(data: bytes) -> tuple[list[tuple[str, bytes, list[tuple[bytes, bytes]], bytes]], bool]:
    """The requests h11 finds, and whether it rejects the rest."""
    found: list[Any] = []
    server = h11.Connection(h11.SERVER)
    server.receive_data(data)
    try:
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                asked = (
                    event.method.decode(),
                    bytes(event.target),
                    [(bytes(name), bytes(value)) for name, value in event.headers],
                )
                body = b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append((*asked, body))
                server.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                server.send(h11.EndOfMessage())
                if server.our_state is not h11.DONE:
                    return found, False
                server.start_next_cycle()
            else:
                return found, False
    except h11.RemoteProtocolError:
        return found, True


Found = list[tuple[str, bytes, list[tuple[bytes, bytes]], bytes]]
"""Requests as they were read: method, target, headers and body."""


def noting(found: Found) -> Any:
    """An application that records its requests in `found` and sends empty responses."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body = await whole(receive)
        if body is None:
            return
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        found.append((scope["method"], scope["raw_path"] + query, scope["headers"], body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return application


def check_as_h11(read: Any, sent: bytes, pieces: list[bytes], *, damaged: bool = False) -> None:
    """Checks that `read(pieces)`, which returns the requests an engine finds and whether it rejects the rest, agrees
    with h11 on `sent`. If the requests are `damaged`, either may reject what the other reads."""
    found, refused = asyncio.run(read(pieces))
    expected, as_well = h11_reads(sent)
    assert damaged or not (refused or as_well)
    if not refused and not as_well:
        assert found == expected


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = self.paused = self.aborted = False
        self.unsent: list[int] = []
        """What `get_write_buffer_size` returns, one after the other; then 0."""
        self.protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def writelines(self, pieces: Any) -> None:
        assert not self.closed, "nothing may be written to a closed connection"
        self.written.append(b"".join(pieces))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.unsent.pop(0) if self.unsent else 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Host:
    """See `http1.Host`."""

    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[Any] = set()
        self.default_headers: list[tuple[bytes, bytes]] = []


class Client:
    """A connection without a socket: the application's requests, and the bytes written."""

    def __init__(self, application: Any = None) -> None:
        self.asked: list[tuple[str, str, str, list[tuple[bytes, bytes]], bytes]] = []
        self.scopes: list[Any] = []
        self.transport = Transport()
        self.host = Host()
        self.connection = Http1(application or self.answer, self.host, asyncio.get_running_loop())
        self.connection.connection_made(self.transport)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        body = await whole(receive)
        if body is None:
            return
        self.scopes.append(scope)
        self.asked.append((scope["method"], scope["path"], scope["http_version"], scope["headers"], body))
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(ANSWER))]}
        )
        await send({"type": "http.response.body", "body": ANSWER})

    async def exchange(self, pieces: list[bytes], *, left: bool = True) -> "Client":
        """Sends these pieces; then the client leaves if `left`."""
        for piece in pieces:
            if not self.transport.closed:
                self.connection.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        if left:
            self.connection.connection_lost(None)
            await asyncio.sleep(0)
        return self

    @property
    def said(self) -> bytes:
        return b"".join(self.transport.written)

    @property
    def statuses(self) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", self.said)]
