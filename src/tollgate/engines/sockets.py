"""Sockets: binds addresses to listen on (`host:port`, `[v6]:port`, `:port` or `unix:/path`), and queries and closes
connections in ways that asyncio does not offer."""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import stat
import termios
from collections.abc import Sequence

from tollgate.errors import TollgateError


def has_unread(transport: asyncio.BaseTransport) -> bool:
    """Whether unread bytes have arrived on a connection."""
    held = transport.get_extra_info("socket")
    count = array.array("i", [0])
    if held is not None and held.fileno() >= 0:
        with contextlib.suppress(OSError):
            fcntl.ioctl(held.fileno(), termios.FIONREAD, count)
    return bool(count[0])


def end_unused(transport: asyncio.WriteTransport) -> bool:
    """Shut down an idle connection for writing. Returns False, and does nothing, if unread bytes of a request have
    arrived: closing would reset the connection, and the client could not know whether its request was processed.

    The shutdown is immediate. The event loop closes connections in a later turn, and with many of them to close,
    requests still arrive in between.
    """
    held = transport.get_extra_info("socket")
    if held is None or held.fileno() < 0 or transport.get_write_buffer_size():
        return True
    if has_unread(transport):
        return False
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(held.fileno())) as same:
        same.shutdown(socket.SHUT_WR)
    return True


def addresses_of(transport: asyncio.BaseTransport) -> tuple[tuple[str, int | None] | None, tuple[str, int] | None]:
    """The local and the remote address of a connection, in the form of ASGI's `server` and `client`. A unix socket has
    a path without a port, and its client no address."""
    try:
        server, client = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    except OSError:  # closed already
        return None, None
    if isinstance(server, str):
        return (server, None), None
    return (server and (server[0], server[1])), (client and (client[0], client[1]))


class AddressTaken(TollgateError):
    """An address cannot be bound."""

    code = "address_taken"

    def __init__(self, addresses: Sequence[str], error: OSError) -> None:
        super().__init__(
            f"cannot listen on {' or '.join(addresses)}: {error.strerror or error}; to use another address, set "
            "server.bind in gateway.yaml, or --bind 127.0.0.1:PORT"
        )


def check_unanswered(address: str) -> None:
    """Raises `OSError` for a unix socket on which another process listens: binding replaces its file, and that process
    would silently get no more connections. The file of a process that has ended may be replaced."""
    if not address.startswith("unix:"):
        return
    path = address[5:]
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return  # not a socket: binding to it fails anyway
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # a full queue: a process listens
                probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return
    raise OSError(errno.EADDRINUSE, "another process is listening there")


def bound_socket(address: str) -> socket.socket:
    """A socket bound to an address that passed `check_unanswered`. Raises `OSError`."""
    if address.startswith("unix:"):
        path = address[5:]
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.remove(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(path)
        return sock
    host, _, port = address.rpartition(":")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host.strip("[]*"), int(port)))
    return sock


def allow_group(addresses: Sequence[str]) -> None:
    """Let the group of a unix socket's file connect, whatever the umask; a proxy's, if the folder has the setgid bit.
    Raises `OSError`."""
    for address in addresses:
        if address.startswith("unix:"):
            path = address[5:]
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | stat.S_IRGRP | stat.S_IWGRP)


def bound_addresses(requested: Sequence[str], sockets: Sequence[socket.socket]) -> tuple[str, ...]:
    """The requested addresses, with the port of each socket in place of port 0.

    ["127.0.0.1:0"] -> ("127.0.0.1:43121",)
    """
    return tuple(_bound_address(address, sock) for address, sock in zip(requested, sockets, strict=True))


def _bound_address(address: str, sock: socket.socket) -> str:
    host, _, port = address.rpartition(":")
    return address if address.startswith("unix:") or int(port) else f"{host}:{sock.getsockname()[1]}"
