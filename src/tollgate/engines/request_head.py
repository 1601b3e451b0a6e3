"""Checks the heads of HTTP/1 requests, and builds the answers to those that are refused. Upgrades are ignored."""

from __future__ import annotations

from http import HTTPStatus

from tollgate.engines import MAX_HEAD_BYTES
from tollgate.services import new_request_id

Headers = list[tuple[bytes, bytes]]
"""Headers, with lower-case names."""

REFUSALS = {
    400: b"not a valid HTTP/1.1 request",
    431: b"the headers or trailers of the request exceed %d bytes" % MAX_HEAD_BYTES,
    501: b"the only supported transfer encoding is chunked",
}
"""The text of the answer to a refused request, by status."""
STATUS_LINES = {status: f"HTTP/1.1 {status} \r\n".encode() for status in range(100, 600)}
STATUS_LINES |= {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


IN_HOSTS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%!$&'()*+,;=:[]"
"""The characters of host names, addresses and ports (RFC 3986, 3.2.2 and 3.2.3)."""


class Refused(Exception):
    """The request is answered with `status` (a key of `REFUSALS`) because of its framing, before it is routed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def checked_headers(version: str, headers: Headers) -> dict[bytes, bytes]:
    """Check the headers. Returns them by name, the last one of each name. Raises `Refused`, such as `Refused(400)` for
    checked_headers("1.1", []), which has no host."""
    by_name = dict(headers)
    host = by_name.get(b"host")
    if version not in ("1.0", "1.1") or (host is None and version == "1.1"):  # RFC 9112, 3.2
        raise Refused(400)
    if host and host.translate(None, IN_HOSTS):
        raise Refused(400)
    if len(by_name) != len(headers) and [name for name, _ in headers].count(b"host") > 1:
        raise Refused(400)
    if b"transfer-encoding" in by_name:
        codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
        if codings != [b"chunked"]:
            raise Refused(501)  # RFC 9112, 6.1: other codings are not decoded here
    return by_name


def last_answer(status: int, text: bytes, headers: Headers) -> tuple[bytes, str]:
    """The bytes of an answer that does not come from the application, with `connection: close`, and its request id.
    `headers` are those of every answer."""
    request_id = new_request_id()
    tag = request_id.encode()
    about = [
        *headers,
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
        (b"x-request-id", tag),
        (b"request-id", tag),
    ]
    return STATUS_LINES[status] + b"\r\n".join([*map(b": ".join, about), b"", text]), request_id


def without_upgrade(method: bytes, target: bytes, version: str, headers: Headers, rest: bytes) -> bytes:
    """The bytes to parse again after a head with an `upgrade` header: the head without that header, and the `rest`.

    A server may ignore the header (RFC 9110, 7.8). Java's client sends it with its first request, and httptools would
    take the request's body for bytes of the new protocol.
    """
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % header for header in headers if header[0] != b"upgrade"]
    return b"\r\n".join([*lines, b"", rest])
