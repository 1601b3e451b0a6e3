"""The http and https transport: our own connections over httptools, because the client decides a gateway's speed.

A general client costs 80 to 4,600 µs a call; this costs about 20 and does only what a gateway needs. No redirects
(they would carry credentials elsewhere), no cookies, no automatic retries but one: a kept connection that turns out
dead right after it was written to, before a byte of the answer came, is replaced by a fresh one, once.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  (the codec of host names: looked up at its first use, 5 ms of the event loop)
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote

from tollgate import __version__
from tollgate.errors import UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream.answer import Answer
from tollgate.upstream.call import Call
from tollgate.upstream.connection import WRITE_WHOLE, Connection
from tollgate.upstream.dial import Lookups, Origin, Resolve, dial, resolve
from tollgate.upstream.pool import IDLE_SECONDS, MAX_PER_ORIGIN, Pool
from tollgate.upstream.proxies import ProxyRules, parse_proxy

_ROUTES = 4096
_LONG = 2048
"""Characters of an address that is not kept: callers' query strings stand in some, and may have 60 kB each."""
_RACE_SECONDS = 2.0
"""A kept connection that was closed while we wrote to it tells so within a round trip. One that dies later had our
request and may have worked on it: repeating that one could be paid for twice."""
_HEADS = 64
"""Made once per provider; more than a few are those of reloads gone by."""
_SAFE = "%/:?#[]@!$&'()*+,;=-._~\"<>\\^`{|}"
"""What a target keeps as written: every printable ASCII character. Blanks, controls and the rest are escaped."""

CONNECTION_HEADERS = frozenset(
    {"content-length", "transfer-encoding", "connection", "te", "upgrade", "proxy-authorization"}
)
"""Headers that belong to the connection; a configured one is not sent."""


@dataclass(frozen=True, slots=True)
class _Route:
    """A URL taken apart once: its pool, the text between method and headers, and its `host` header."""

    pool: Pool
    target: str
    host: str
    proxy: str = ""
    """Host and port of a proxy that gets the request itself, and may answer it."""
    heads: dict[tuple[str, int], tuple[Mapping[str, str], bytes]] = field(default_factory=dict)
    """Heads of read-only headers, but for their length, by method and identity; the headers are kept so that they stay
    who they are."""


class HttpTransport:
    """Connections by origin. `environ` is read once for proxies; `resolver` is for the guarded fetch and for tests."""

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
        self._routes: dict[tuple[str, str | None, bool, str | None], _Route] = {}
        self._closed = False

    async def open(self, call: Call) -> Answer:
        """See `Transport.open`."""
        route = self._routes.get((call.url, call.proxy, call.verify, call.ca_file)) or self._route(call)
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
        """A connection within the connect budget (or what the total one leaves), waiting in line included."""
        if self._closed:
            raise UpstreamUnreachable("the upstream client is closed")
        budgets = call.timeouts
        at = min(started + budgets.connect, started + budgets.total)
        try:
            async with asyncio.timeout_at(at):
                return await pool.acquire(started, fresh=fresh)
        except TimeoutError:
            if budgets.total < budgets.connect:
                raise UpstreamTimeout("total", budgets.total) from None
            raise UpstreamTimeout("connect", budgets.connect) from None

    def _route(self, call: Call) -> _Route:
        scheme, host, port, target = split_url(call.url)
        secure = scheme == "https"
        if call.proxy is None:
            proxy = self._rules.find(scheme, host, port)
        else:
            proxy = parse_proxy(call.proxy) if call.proxy else None
        origin = Origin(secure, host, port, proxy, call.verify, call.ca_file)
        pool = self._pools.get(origin)
        if pool is None:
            make = functools.partial(_dial, origin, self._lookups)
            pool = self._pools[origin] = Pool(make, limit=self._limit, idle_seconds=self._idle_seconds)
        named = authority(scheme, host, port)
        rest = f"{target} HTTP/1.1\r\n"
        if proxy is not None and not secure:
            rest = f"http://{named}{rest}"
            if proxy.authorization:
                rest += f"proxy-authorization: {proxy.authorization}\r\n"
        route = _Route(pool, rest, named, f"{proxy.host}:{proxy.port}" if proxy is not None and not secure else "")
        if len(call.url) <= _LONG:
            if len(self._routes) >= _ROUTES:  # polled job addresses are all different
                self._routes.clear()
            self._routes[(call.url, call.proxy, call.verify, call.ca_file)] = route
        return route

    async def close(self) -> None:
        """See `Transport.close`."""
        self._closed = True
        self._lookups.close()
        for pool in self._pools.values():
            pool.close()
        await asyncio.sleep(0)  # let the sockets go before the loop does


async def _dial(origin: Origin, resolver: Resolve, pool: Pool) -> Connection:
    return await dial(origin, lambda: Connection(pool, origin.label), resolver)


def split_url(url: str) -> tuple[str, str, int, str]:
    """`https://host:8443/a%3Ab?c` as `("https", "host", 8443, "/a%3Ab?c")`: what is escaped stays as written.

    Raises `UpstreamUnreachable` for anything that is no http(s) address; the message holds no more than the host.
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
        raise UpstreamUnreachable("an upstream address has a host name that cannot be one") from None
    if not host or any(c <= " " or c == "\x7f" for c in host) or (port and not (port.isascii() and port.isdigit())):
        raise UpstreamUnreachable("an upstream address has no usable host and port")
    number = int(port[:6]) if port else (443 if scheme == "https" else 80)
    if not 0 < number < 65536:
        raise UpstreamUnreachable(f"{host} has a port out of range")
    if not target.startswith("/"):
        target = "/" + target
    return scheme, host.lower(), number, quote(target, safe=_SAFE)


def authority(scheme: str, host: str, port: int) -> str:
    """What the `host` header says: no port where it is the scheme's own."""
    named = f"[{host}]" if ":" in host else host
    return named if port == (443 if scheme == "https" else 80) else f"{named}:{port}"


def _head(call: Call, route: _Route) -> bytes:
    """The request's head; for headers that cannot change it is made once."""
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
    """The head up to `content-length`. A line break smuggled into a header is refused, not sent."""
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
    breaks = len(lines) - 1 + route.target.count("\n")  # each line's own
    try:
        head = "".join(lines).encode("latin-1")
    except UnicodeEncodeError:
        raise UpstreamUnreachable("a header for the upstream has characters outside Latin-1") from None
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        raise UpstreamUnreachable("a header for the upstream holds a line break")
    return head
