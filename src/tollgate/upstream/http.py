"""The http and https transport, with its own connections over httptools, because the client determines the gateway's
speed.

A general client takes 80 to 4,600 µs per call; this one takes about 20 and does only what a gateway needs. It follows
no redirects (they would leak credentials), has no cookies, and retries in one case only: if a reused connection turns
out closed right after a write and before a byte of the answer, the call is sent again on a new connection, once.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  (the host name codec: importing it at its first use would block the loop for 5 ms)
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote

from tollgate import __version__
from tollgate.config.settings import ConnectionSettings
from tollgate.errors import UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream.answer import Answer
from tollgate.upstream.call import Call
from tollgate.upstream.connection import WRITE_WHOLE, Connection
from tollgate.upstream.dial import Lookups, Origin, Resolve, dial, resolve
from tollgate.upstream.pool import IDLE_SECONDS, MAX_PER_ORIGIN, Pool
from tollgate.upstream.proxies import ProxyRules, parse_proxy

_ROUTES = 4096
_LONG = 2048
"""Longest URL that is cached: some contain callers' query strings, which may have 60 kB."""
_RACE_SECONDS = 2.0
"""If the upstream closed a reused connection while we wrote to it, that shows within a round trip. If it closes later,
it has received the request and may have processed it, and a retry could be charged twice."""
_HEADS = 64
"""Cached heads per route. A provider needs one; further ones are of earlier configurations."""
_SAFE = "%/:?#[]@!$&'()*+,;=-._~\"<>\\^`{|}"
"""Characters of a target that are sent as written: all printable ASCII. Blanks, controls and the rest are escaped."""

CONNECTION_HEADERS = frozenset(
    {"content-length", "transfer-encoding", "connection", "te", "upgrade", "proxy-authorization"}
)
"""Headers of the connection. Configured ones are not sent."""


@dataclass(frozen=True, slots=True)
class _Route:
    """A parsed URL: its pool, the text between method and headers, and its `host` header."""

    pool: Pool
    target: str
    host: str
    proxy: str = ""
    """Host and port of a proxy that gets the request itself (without a tunnel), and may answer it."""
    heads: dict[tuple[str, int], tuple[Mapping[str, str], bytes]] = field(default_factory=dict)
    """Cached heads without `content-length`, for read-only headers, by method and `id(headers)`; the reference to the
    headers keeps that id valid."""


class HttpTransport:
    """Connection pools by origin. `environ` is read once, for proxies; `resolver` is for `fetch` and for tests."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        resolver: Resolve = resolve,
        max_per_origin: int = MAX_PER_ORIGIN,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._rules = ProxyRules(os.environ if environ is None else environ)
        self._lookups = Lookups(resolver)
        self._limit = max_per_origin
        self._idle_seconds = idle_seconds
        self._pools: dict[Origin, Pool] = {}
        self._routes: dict[tuple[str, ConnectionSettings], _Route] = {}
        self._closed = False

    async def open(self, call: Call) -> Answer:
        """See `Transport.open`."""
        route = self._routes.get((call.url, call.connection)) or self._route(call)
        head = _head(call, route)
        pool = route.pool
        loop = asyncio.get_running_loop()
        started = loop.time()
        fresh = False
        while True:
            connection = None if fresh else pool.take(started)
            if connection is None:
                connection = await self._acquire(call, pool, started, fresh=fresh)
            reused = connection.served > 0
            answer = Answer(connection, call, loop, started)
            call.sent = True
            written = loop.time()
            connection.send(answer, head, call.body, bodiless=call.method == "HEAD")
            try:
                if len(call.body) > WRITE_WHOLE:
                    await connection.upload(answer, call.body)
                await answer.headed()
                if answer.status == 407 and route.proxy:
                    raise UpstreamUnreachable(
                        f"proxy {route.proxy} refused a request to {connection.label}: 407", alarm="proxy"
                    )
            except UpstreamUnreachable:
                answer.abort()
                if reused and not connection.answered and not fresh and loop.time() - written < _RACE_SECONDS:
                    fresh = True
                    continue
                raise
            except BaseException:
                answer.abort()
                raise
            return answer

    async def _acquire(self, call: Call, pool: Pool, started: float, *, fresh: bool) -> Connection:
        """A connection, within the connect budget (or the total one if that is smaller), including the time in the
        queue."""
        if self._closed:
            raise UpstreamUnreachable("the upstream client is closed")
        connect, total = call.timeouts.connect, call.timeouts.total
        try:
            async with asyncio.timeout_at(started + min(connect, total)):
                return await pool.acquire(started, fresh=fresh)
        except TimeoutError:
            if total < connect:
                raise UpstreamTimeout("total", total) from None
            raise UpstreamTimeout("connect", connect) from None

    def _route(self, call: Call) -> _Route:
        scheme, host, port, target = split_url(call.url)
        secure = scheme == "https"
        settings = call.connection
        if settings.proxy is None:
            proxy = self._rules.find(scheme, host, port)
        else:
            proxy = parse_proxy(settings.proxy) if settings.proxy else None
        files = settings.ca_file, settings.client_certificate
        origin = Origin(secure, host, port, proxy, settings.verify_tls, *files)
        pool = self._pools.get(origin)
        if pool is None:
            opened = functools.partial(dial, origin, self._lookups)
            pool = self._pools[origin] = Pool(opened, limit=self._limit, idle_seconds=self._idle_seconds)
        named = authority(scheme, host, port)
        rest = f"{target} HTTP/1.1\r\n"
        asked = ""
        if proxy is not None and not secure:
            asked = f"{proxy.host}:{proxy.port}"
            rest = f"http://{named}{rest}"
            if proxy.authorization:
                rest += f"proxy-authorization: {proxy.authorization}\r\n"
        route = _Route(pool, rest, named, asked)
        if len(call.url) <= _LONG:
            if len(self._routes) >= _ROUTES:  # every polled job has its own URL
                self._routes.clear()
            self._routes[call.url, settings] = route
        return route

    async def close(self) -> None:
        """See `Transport.close`."""
        self._closed = True
        self._lookups.close()
        for pool in self._pools.values():
            pool.close()
        await asyncio.sleep(0)  # let the loop close the sockets before it ends


def split_url(url: str) -> tuple[str, str, int, str]:
    """Split a URL: `https://host:8443/a%3Ab?c` -> `("https", "host", 8443, "/a%3Ab?c")`. Escapes are not decoded.

    Raises `UpstreamUnreachable` for anything but a valid http(s) URL. The message contains at most the host.
    """
    scheme, mark, rest = url.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in ("http", "https"):
        raise UpstreamUnreachable("an upstream address must begin with http:// or https://")
    rest = rest.partition("#")[0]
    cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    authority, target = rest[:cut], rest[cut:]
    if "@" in authority or "\\" in authority:
        raise UpstreamUnreachable("an upstream address may not hold a user name")
    host, port = authority, ""
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    elif ":" in authority:
        host, _, port = authority.rpartition(":")
    try:
        host = host.encode("idna").decode("ascii")
    except UnicodeError:
        raise UpstreamUnreachable("an upstream address has an invalid host name") from None
    if not host or any(c <= " " or c == "\x7f" for c in host) or (port and not (port.isascii() and port.isdigit())):
        raise UpstreamUnreachable("an upstream address has no usable host and port")
    number = int(port[:6]) if port else (443 if scheme == "https" else 80)
    if not 0 < number < 65536:
        raise UpstreamUnreachable(f"{host} has a port out of range")
    if not target.startswith("/"):
        target = "/" + target
    return scheme, host.lower(), number, quote(target, safe=_SAFE)


def authority(scheme: str, host: str, port: int) -> str:
    """The value of the `host` header, without the scheme's default port."""
    named = f"[{host}]" if ":" in host else host
    return named if port == (443 if scheme == "https" else 80) else f"{named}:{port}"


def _head(call: Call, route: _Route) -> bytes:
    """The request's head; cached for read-only headers."""
    headers = call.headers
    if type(headers) is MappingProxyType:
        kept = route.heads.get((call.method, id(headers)))
        if kept is None:
            if len(route.heads) >= _HEADS:
                route.heads.clear()
            kept = route.heads[call.method, id(headers)] = (headers, _head_start(call, route))
        start = kept[1]
    else:
        start = _head_start(call, route)
    if call.body or call.method in ("POST", "PUT", "PATCH"):
        return b"%bcontent-length: %d\r\n\r\n" % (start, len(call.body))
    return start + b"\r\n"


def _head_start(call: Call, route: _Route) -> bytes:
    """The head without `content-length`. Raises `UpstreamUnreachable` if a header contains a line break."""
    lines = [f"{call.method} {route.target}"]
    add = lines.append
    seen = set()
    for name, value in call.headers.items():
        lower = name.lower()
        if lower in CONNECTION_HEADERS:
            continue
        seen.add(lower)
        add(f"{name}: {value}\r\n")
    if "host" not in seen:
        lines.insert(1, f"host: {route.host}\r\n")
    if "user-agent" not in seen:
        add(f"user-agent: tollgate/{__version__}\r\n")
    if "accept" not in seen:
        add("accept: */*\r\n")
    if "accept-encoding" not in seen:
        add("accept-encoding: identity\r\n")
    breaks = len(lines) - 1 + route.target.count("\n")  # one per line
    try:
        head = "".join(lines).encode("latin-1")
    except UnicodeEncodeError:
        raise UpstreamUnreachable("a header for the upstream has characters outside Latin-1") from None
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        raise UpstreamUnreachable("a header for the upstream contains a line break")
    return head
