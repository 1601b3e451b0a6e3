"""What both servers make of the head of an HTTP/1 request: what is refused, in which words, and the wish for another protocol, which is overlooked."""

from __future__ import annotations

from http import HTTPStatus

from tollgate.engines import MAX_HEAD_BYTES

Headers = list[tuple[bytes, bytes]]
"""With lower-case names."""

REFUSALS = {
    400: b"what was sent cannot be read as an HTTP/1.1 request",
    431: b"the headers or trailers of a request may have %d bytes" % MAX_HEAD_BYTES,
    501: b"the only transfer encoding read here is chunked",
}
"""What is said of what cannot be read, by status."""
STATUS_LINES = {status: f"HTTP/1.1 {status} \r\n".encode() for status in range(100, 600)}
STATUS_LINES |= {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def refusal_of(version: str, headers: Headers, told: dict[bytes, bytes]) -> int | None:
    """The status a request is refused with, whatever its path; `told` is a dictionary of the headers: refusal_of("1.1", [], {}) -> 400"""
    if version not in ("1.0", "1.1") or (b"host" not in told and version == "1.1"):  # RFC 9112, 3.2
        return 400
    if len(told) != len(headers) and [name for name, _ in headers].count(b"host") > 1:
        return 400
    if b"transfer-encoding" in told and [value.lower() for name, value in headers if name == b"transfer-encoding"] != [b"chunked"]:
        return 501  # RFC 9112, 6.1: nobody here would undo the others
    return None


def without_wish(method: bytes, target: bytes, version: str, headers: Headers, rest: bytes) -> bytes:
    """A head that wishes for another protocol, again without the wish, and the `rest` behind it.

    A server may overlook the wish (RFC 9110, 7.8), which Java's client sends with its first request; httptools takes the body for the
    other protocol, and the request for empty.
    """
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % header for header in headers if header[0] != b"upgrade"]
    return b"\r\n".join([*lines, b"", rest])
