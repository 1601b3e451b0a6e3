"""What both servers make of the head of an HTTP/1 request: what is refused, and the wish for another protocol, which is overlooked."""

from __future__ import annotations

Headers = list[tuple[bytes, bytes]]
"""With lower-case names."""


def refusal_of(version: str, headers: Headers) -> int | None:
    """The status a request is refused with, whatever its path: refusal_of("1.1", []) -> 400"""
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if version not in {"1.0", "1.1"} or hosts > 1 or (hosts == 0 and version == "1.1"):  # RFC 9112, 3.2
        return 400
    if b"transfer-encoding" in names and [value.lower() for name, value in headers if name == b"transfer-encoding"] != [b"chunked"]:
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
