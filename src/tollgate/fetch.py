"""Downloads URLs named by clients, for upstreams that need the bytes, with protection against SSRF. No other module
fetches a client's URL.

Invariants: only public addresses are connected to, for every redirect too; they are checked after resolution and pinned
(the name is not resolved again between check and connection). Size and time are limited. No proxy, cookies or
credentials are used. Error messages do not reveal what a name resolves to here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote_to_bytes, urljoin

from tollgate.config.settings import Fetch, Timeouts
from tollgate.errors import AnswerLost, BadRequest, UpstreamError, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from tollgate.media_types import type_by_bytes
from tollgate.upstream.answer import Answer
from tollgate.upstream.call import Call
from tollgate.upstream.dial import Address, Resolve, resolve
from tollgate.upstream.http import HttpTransport, split_url

MAX_REDIRECTS = 3
_LOWEST_PORT = 1024
"""Of the ports below it, only 80 and 443 are allowed, so that no request reaches a mail server or a shell."""

_THREADS = ThreadPoolExecutor(4, "tollgate-fetch-names")
"""A pool of its own for name lookups: a client's name whose DNS server hangs must not delay lookups for providers."""

_REFUSED = [
    ipaddress.ip_network(text)
    for text in (
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64 of a network's own
        "::/96",  # IPv4 in IPv6, and its two other spellings
        "::ffff:0:0/96",
        "::ffff:0:0:0/96",
        "2002::/16",  # 6to4
        "2001::/32",  # Teredo
        "fec0::/10",  # site-local
        "192.88.99.0/24",  # 6to4 relays
        "192.0.0.0/24",  # protocol assignments, among them a cloud's metadata
        "168.63.129.16/32",  # another cloud's service for its own machines, reachable only from inside
    )
]
"""Networks refused although `ipaddress` considers them global. Most embed another address that is not checked."""

_UNKNOWN = "application/octet-stream"
_LONGEST = 16 * 1024
"""Characters of an http URL, or of a data URL before its comma. Servers refuse longer ones, and parsing 30 MB of them
blocks the event loop for seconds."""
_PIECE = 16 * 1024
"""Characters of a data URL that are decoded before other tasks get a turn."""


async def _resolve(host: str, port: int) -> list[Address]:
    return await resolve(host, port, threads=_THREADS)


async def fetch_inline(url: str, settings: Fetch, *, resolver: Resolve = _resolve) -> tuple[str, bytes]:
    """The media type and bytes of an http, https or data URL: `data:text/plain,hi` gives `("text/plain", b"hi")`.

    Raises `BadRequest` if it may not or cannot be fetched, is larger than `max_bytes` or takes longer than `seconds`.
    """
    if url[:5].lower() == "data:":
        return await _decode(url, settings.max_bytes)
    if len(url) > _LONGEST:
        raise BadRequest(f"a URL cannot be fetched: it is longer than {_LONGEST} characters", code="url_not_fetched")
    transport = HttpTransport(environ={}, resolver=_guarded(resolver, settings), max_per_origin=1, idle_seconds=0)
    try:
        async with asyncio.timeout(settings.seconds):
            return await _follow(transport, url, settings)
    except (TimeoutError, UpstreamTimeout):
        raise _refused(url, f"it takes longer than {settings.seconds:g} s") from None
    finally:
        await transport.close()


async def _follow(transport: HttpTransport, url: str, settings: Fetch) -> tuple[str, bytes]:
    first = url
    for _ in range(MAX_REDIRECTS + 1):
        async with await _get(transport, url, first, settings) as answer:
            if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
                try:
                    url = urljoin(url, answer.headers["location"])
                except ValueError:  # such as an unbalanced bracket
                    raise _refused(first, "it redirects to an invalid URL") from None
                continue
            if answer.status != 200:
                raise _refused(first, f"it answered {answer.status}")
            try:
                data = await answer.read(settings.max_bytes)
            except UpstreamTimeout:
                raise
            except (AnswerLost, UpstreamUnreachable):
                raise _refused(first, "the connection broke") from None
            except UpstreamFailed:
                raise _refused(first, f"it is larger than {settings.max_bytes} bytes, or not readable") from None
            return media_type(answer.headers.get("content-type", ""), data), data
    raise _refused(first, f"it redirects more than {MAX_REDIRECTS} times")


async def _get(transport: HttpTransport, url: str, first: str, settings: Fetch) -> Answer:
    try:
        port = split_url(url)[2]
    except UpstreamError:
        raise _refused(first, "only http, https and data URLs with a plain host are") from None
    if port < _LOWEST_PORT and port not in (80, 443):
        raise _refused(first, f"port {port} is not allowed")
    budgets = Timeouts(
        connect=min(10.0, settings.seconds), first_byte=settings.seconds, idle=settings.seconds, total=settings.seconds
    )
    try:
        return await transport.open(Call("GET", url, timeouts=budgets))
    except UpstreamTimeout:
        raise
    except UpstreamError:
        # the same text for unknown, private and unreachable, so that callers cannot map our network
        raise _refused(first, "its host is unknown, unreachable or not a public address") from None


def _guarded(resolver: Resolve, settings: Fetch) -> Resolve:
    """A resolver that returns public addresses only. The transport connects to exactly these."""

    async def public(host: str, port: int) -> list[Address]:
        found = await resolver(host, port)
        if not settings.allow_private:
            found = [address for address in found if is_public(address[1])]
        if not found:
            raise UpstreamFailed("no public address")
        return found

    return public


def is_public(address: str) -> bool:
    """Whether an address is on the public internet and does not embed another address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if not ip.is_global or ip.is_multicast or ip.is_reserved:  # loopback, link-local and private ones are not global
        return False
    return not any(ip in network for network in _REFUSED)


def media_type(header: str, data: bytes) -> str:
    """The type detected from the bytes, else the one in the header. Some servers send `image/jpeg` for every picture,
    and upstreams check."""
    known = type_by_bytes(data)
    if known is not None:
        return known
    sent = header.partition(";")[0].strip().lower()
    return sent if "/" in sent and sent.isascii() and sent.isprintable() and " " not in sent else _UNKNOWN


async def _decode(url: str, limit: int) -> tuple[str, bytes]:
    head, comma, body = url[5:].partition(",")
    if not comma:
        raise BadRequest("a data URL has no comma", code="url_not_fetched")
    if len(head) > _LONGEST:
        raise BadRequest(f"the type of a data URL is longer than {_LONGEST} characters", code="url_not_fetched")
    mime, *parameters = (part.strip() for part in head.split(";"))
    encoded = any(parameter.lower() == "base64" for parameter in parameters)
    if len(body) > (limit * 4 // 3 + 1024 if encoded else limit * 3):
        raise BadRequest(f"a data URL holds more than {limit} bytes", code="url_not_fetched")
    data = await _unescaped(body)
    if encoded:
        try:
            data = data.translate(None, b" \t\r\n")
            data = base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
        except binascii.Error:
            raise BadRequest("a data URL is not valid base64", code="url_not_fetched") from None
    if len(data) > limit:
        raise BadRequest(f"a data URL holds more than {limit} bytes", code="url_not_fetched")
    return (mime.lower() if "/" in mime else "text/plain"), data


async def _unescaped(body: str) -> bytes:
    """Percent-decode a data URL: `%41` -> `A`. Other tasks run between two pieces: 30 MB of escapes take seconds."""
    if "%" not in body:
        return body.encode()
    pieces, at = [], 0
    while at < len(body):
        end = at + _PIECE
        if end < len(body) and (cut := body.rfind("%", end - 2, end)) >= 0:
            end = cut  # do not split an escape
        pieces.append(unquote_to_bytes(body[at:end]))
        at = end
        await asyncio.sleep(0)
    return b"".join(pieces)


def _refused(url: str, why: str) -> BadRequest:
    return BadRequest(f"{_shown(url)} cannot be fetched: {why}", code="url_not_fetched")


def _shown(url: str) -> str:
    """The caller's URL for messages, without path and query, which may contain a signature."""
    try:
        scheme, host, _, _ = split_url(url)
    except UpstreamError:
        return "a URL"
    return f"the URL at {scheme}://{host[:100]}"
