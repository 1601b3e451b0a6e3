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

    def __init__(self, address: str, error: OSError) -> None:
        super().__init__(
            f"cannot listen on {address}: {error.strerror or error}; to use another address, set "
            "server.bind in gateway.yaml, or --bind 127.0.0.1:PORT"
        )


def bound_sockets(addresses: Sequence[str]) -> list[socket.socket]:
    """Sockets bound to these addresses, with which `listen` succeeds. Raises `AddressTaken`."""
    sockets = []
    for address in addresses:
        try:
            sockets.append(bound_socket(address))
        except OSError as error:
            raise AddressTaken(address, error) from None
    return sockets


def bound_socket(address: str) -> socket.socket:
    """A socket bound to this address. Raises `OSError`."""
    if address.startswith("unix:"):
        return _bound_file(address[5:])
    host, _, port = address.rpartition(":")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host.strip("[]*"), int(port)))
    return sock


def _bound_file(path: str) -> socket.socket:
    """A unix socket bound to this path, to which the group may connect, whatever the umask; a proxy's, if the folder
    has the setgid bit. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            if _is_answered(path):
                raise OSError(errno.EADDRINUSE, "another process is listening there")
            os.remove(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | stat.S_IRGRP | stat.S_IWGRP)
    return sock


def _is_answered(path: str) -> bool:
    """Whether a process listens on this unix socket: binding would replace its file, and that process would silently
    get no more connections. The file of a process that has ended may be replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # a full queue: a process listens
            pass
    return True


def bound_addresses(requested: Sequence[str], sockets: Sequence[socket.socket]) -> tuple[str, ...]:
    """The requested addresses, with the port of each socket.

    ["127.0.0.1:0"] -> ("127.0.0.1:43121",)
    """
    return tuple(
        address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{sock.getsockname()[1]}"
        for address, sock in zip(requested, sockets, strict=True)
    )
