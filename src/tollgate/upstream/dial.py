"""Opens connections: name resolution, racing connection attempts, proxy tunnels and TLS.

The caller applies the `connect` budget to all of it. Messages contain host and port, never a path or header.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from tollgate.errors import OutOfSockets, UpstreamUnreachable
from tollgate.process import descriptors
from tollgate.process.concurrency import shielded
from tollgate.upstream.connection import Connection
from tollgate.upstream.proxies import Proxy

if TYPE_CHECKING:
    from tollgate.upstream.pool import Pool

log = logging.getLogger("tollgate.upstream")

Address = tuple[socket.AddressFamily, str, int]
Resolve = Callable[[str, int], Awaitable[list[Address]]]

STAGGER = 0.25
"""Seconds after which the next address is tried in parallel (RFC 8305 recommends 250 ms)."""

_MAX_REPLY = 16 * 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """The target of a connection with its proxy and TLS settings. Calls with equal origins share connections."""

    secure: bool
    host: str
    port: int
    proxy: Proxy | None = None
    verify_tls: bool = True
    ca_file: str | None = None
    client_certificate: str | None = None

    @property
    def label(self) -> str:
        """The host and port for messages."""
        return f"{self.host}:{self.port}"


_LOCAL_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
"""The errors if this process or machine has no descriptor, local port (EADDRNOTAVAIL) or memory left."""


async def resolve(host: str, port: int, *, threads: Executor | None = None) -> list[Address]:
    """The addresses of `host` in the system's order, looked up in `threads` or the event loop's default pool. Raises
    `UpstreamUnreachable` if there are none."""
    loop = asyncio.get_running_loop()
    try:
        if threads is None:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        else:
            found = await loop.run_in_executor(
                threads, functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            )
    except OSError as error:
        raise UpstreamUnreachable(f"cannot resolve {host}: {error.strerror or error}") from None
    except UnicodeError:  # from the IDNA codec, which also checks lengths
        raise UpstreamUnreachable(f"cannot resolve {host[:100]}: it is not a valid host name") from None
    addresses = [
        (socket.AddressFamily(family), str(where[0]), port)
        for family, _, _, _, where in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]
    if not addresses:
        raise UpstreamUnreachable(f"cannot resolve {host}: no address")
    return list(dict.fromkeys(addresses))


class Lookups:
    """A resolver that shares one running lookup of a name among all callers. The event loop has four threads for
    lookups; a name whose DNS server hangs must take only one of them."""

    def __init__(self, resolver: Resolve) -> None:
        self._resolver = resolver
        self._running: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def __call__(self, host: str, port: int) -> list[Address]:
        """See `Resolve`. Cancelling one caller does not cancel the lookup for the others."""
        running = self._running.get((host, port))
        if running is None:
            running = self._running[host, port] = asyncio.ensure_future(self._resolver(host, port))
            running.add_done_callback(lambda _: self._running.pop((host, port)))
        try:
            return await shielded(running)
        except UpstreamUnreachable as error:
            raise error.copy() from None

    def close(self) -> None:
        """Cancel running lookups."""
        for running in tuple(self._running.values()):
            running.cancel()


async def dial(origin: Origin, resolver: Resolve, pool: Pool) -> Connection:
    """Open a connection to `origin` for its pool. Raises `UpstreamUnreachable`, or `OutOfSockets` if this process has
    no file descriptor left: then lookups and certificates fail too, with errors that do not show the cause."""
    try:
        return await _dial(origin, resolver, pool)
    except UpstreamUnreachable as error:
        if descriptors.none_left():
            raise OutOfSockets(f"{error.message}: no file descriptor is left") from None
        raise


async def _dial(origin: Origin, resolver: Resolve, pool: Pool) -> Connection:
    if origin.proxy is not None:
        host, port, kind = origin.proxy.host, origin.proxy.port, "proxy "
    else:
        host, port, kind = origin.host, origin.port, ""
    sock = await _race(f"{kind}{host}:{port}", await resolver(host, port))
    try:
        if origin.proxy is not None and origin.secure:
            await _tunnel(sock, origin, origin.proxy)
        files = origin.ca_file, origin.client_certificate
        context = await asyncio.to_thread(_tls_context, origin.verify_tls, *files) if origin.secure else None
    except OSError as error:
        sock.close()
        raise UpstreamUnreachable(f"cannot connect to {origin.label}: {error.strerror or error}") from None
    except BaseException:
        sock.close()
        raise
    return await _start_transport(sock, context, origin, Connection(pool, origin.label))


async def _start_transport(
    sock: socket.socket, context: ssl.SSLContext | None, origin: Origin, connection: Connection
) -> Connection:
    """Start `connection` on `sock`, with a TLS handshake if there is a `context`. From here on the transport closes the
    socket in every case: if we did too, we might close a new connection with the same descriptor."""
    loop = asyncio.get_running_loop()
    # the dot that ends an absolute name, which skips a cluster's search domains, is in no certificate (RFC 6066, 3)
    name = origin.host.rstrip(".") if context is not None else None
    try:
        await loop.create_connection(lambda: connection, sock=sock, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        raise UpstreamUnreachable(f"{origin.label} has no trusted certificate: {error.verify_message}") from None
    except OSError as error:
        if context is None:
            raise UpstreamUnreachable(f"cannot connect to {origin.label}: {error.strerror or error}") from None
        why = getattr(error, "reason", None) or str(error) or "the connection was closed"
        raise UpstreamUnreachable(f"the TLS handshake with {origin.label} failed: {why}") from None
    except BaseException:
        if connection.transport is not None:  # cancelled just after the handshake: skip the TLS shutdown
            connection.transport.abort()
        raise
    return connection


async def _race(label: str, addresses: list[Address]) -> socket.socket:
    """Connect to the first address that accepts. Address families alternate, and attempts start `STAGGER` apart (RFC
    8305)."""
    first = addresses[0][0]
    same = [a for a in addresses if a[0] == first]
    other = [a for a in addresses if a[0] != first]
    queue = [a for a in chain.from_iterable(zip_longest(same, other)) if a is not None]
    running: set[asyncio.Task[socket.socket]] = set()
    failures: list[str] = []
    local = True
    try:
        while queue or running:
            if queue:
                running.add(asyncio.ensure_future(_connect(queue.pop(0))))
            done, running = await asyncio.wait(
                running, timeout=STAGGER if queue else None, return_when=asyncio.FIRST_COMPLETED
            )
            winner: socket.socket | None = None
            for task in done:
                error = task.exception()
                if error is None and winner is None:
                    winner = task.result()
                elif error is None:
                    task.result().close()
                elif isinstance(error, OSError):
                    local = local and error.errno in _LOCAL_ERRNOS
                    failures.append(os.strerror(error.errno) if error.errno else type(error).__name__)
                else:
                    raise error
            if winner is not None:
                return winner
    finally:
        for task in running:
            task.add_done_callback(_discard)
            task.cancel()
    kind = OutOfSockets if failures and local else UpstreamUnreachable
    raise kind(f"cannot connect to {label}: {', '.join(dict.fromkeys(failures)) or 'no address'}")


def _discard(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect(address: Address) -> socket.socket:
    family, host, port = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, (host, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _tunnel(sock: socket.socket, origin: Origin, proxy: Proxy) -> None:
    """Open a tunnel through the proxy (CONNECT). The TLS client sends first, so nothing may follow the reply's head."""
    loop = asyncio.get_running_loop()
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"host: {host}:{origin.port}"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    reply = b""
    name = f"proxy {proxy.host}:{proxy.port}"
    while b"\r\n\r\n" not in reply:
        data = await loop.sock_recv(sock, 4096)
        reply += data
        if not data or len(reply) > _MAX_REPLY:
            raise UpstreamUnreachable(f"{name} did not open a tunnel to {origin.label}")
    version, _, rest = reply.partition(b"\r\n")[0].partition(b" ")
    status = rest[:3]
    if not version.startswith(b"HTTP/1.") or not status.startswith(b"2"):
        reason = status.decode("latin-1") if status.isdigit() else "a malformed reply"
        raise UpstreamUnreachable(
            f"{name} refused a tunnel to {origin.label}: {reason}", alarm="proxy" if reason == "407" else None
        )
    if not reply.endswith(b"\r\n\r\n"):
        raise UpstreamUnreachable(f"{name} sent bytes of its own into the tunnel to {origin.label}")


_Stamp = tuple[int, int, int]
_contexts: dict[tuple[bool, str | None, str | None], tuple[tuple[_Stamp | None, ...], ssl.SSLContext]] = {}


def _tls_context(verify: bool, ca_file: str | None, client_certificate: str | None = None) -> ssl.SSLContext:
    """The TLS context for these settings, cached until a file changes, because loading the system's certificates
    takes tens of milliseconds: call it in a thread."""
    settings = verify, ca_file, client_certificate
    stamps = _stamp(ca_file), _stamp(client_certificate)
    kept = _contexts.get(settings)
    if kept is not None and kept[0] == stamps:
        return kept[1]
    try:
        context = _new_context(*settings)
    except OutOfSockets:
        raise
    except UpstreamUnreachable as error:
        if kept is None:
            raise
        log.warning("%s; its earlier content stays in use", error.message)
        context = kept[1]
    _contexts[settings] = stamps, context
    return context


def _stamp(path: str | None) -> _Stamp | None:
    """Changes when the file changes; None without a file."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _new_context(verify: bool, ca_file: str | None, client_certificate: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not any(path and os.path.exists(path) for path in (paths.cafile, paths.capath)):
        import certifi  # a dependency of httpx; for images without system certificates

        context.load_verify_locations(cafile=certifi.where())
    if ca_file is not None:  # in addition to the system's authorities
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UpstreamUnreachable(f"cannot read ca_file {ca_file}: {error}") from None
    if client_certificate is not None:
        try:
            context.load_cert_chain(client_certificate, password="")  # without one, OpenSSL asks at the terminal
        except (OSError, ssl.SSLError) as error:
            raise UpstreamUnreachable(f"cannot read client_certificate {client_certificate}: {error}") from None
    if descriptors.none_left():  # the authorities may be missing without an error, and the context would be cached
        raise OutOfSockets("the trusted certificates cannot be read: no file descriptor is left")
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
