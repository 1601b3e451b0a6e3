"""Which hosts and origins may use the tool server: by DNS rebinding, a web page can reach servers on its reader's
machine.

Allowed are the configured address, the legacy ones, the bind addresses and this machine's own names, with any port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tollgate.cors import admits
from tollgate.errors import PermissionDenied

if TYPE_CHECKING:
    from tollgate.config.settings import Server

_OWN = frozenset({"localhost", "127.0.0.1", "::1"})
_FOREIGN = frozenset("@/\\?#")
"""Characters that neither header has: they begin user names or paths, or some programs take them for such."""
_EVERYWHERE = frozenset({"", "0.0.0.0", "::", "*"})


def allowed_hosts(server: Server) -> frozenset[str]:
    """The host names of this gateway, lower-case, without ports."""
    names = {_host(urlsplit(base).netloc) for base in (server.base_url, *server.legacy_base_urls)}
    names |= {_host(bind) for bind in server.bind if not bind.startswith("unix:")}
    return frozenset(names - _EVERYWHERE) | _OWN


class HostRefused(PermissionDenied):
    """The Host of a request is not ours."""

    status = 421
    code = "host_refused"


class OriginRefused(PermissionDenied):
    """The Origin of a request is not ours, and not an allowed one."""

    code = "origin_refused"


def require_own(headers: Mapping[str, str], hosts: frozenset[str], origins: tuple[str, ...] = ()) -> None:
    """Raises `HostRefused` or `OriginRefused` for a request that may not use the tool server."""
    if _named(headers.get("host", "")) not in hosts:
        raise HostRefused("Invalid Host header")
    origin = headers.get("origin")
    if origin is not None and _named(origin.partition("://")[2]) not in hosts and not admits(origins, origin):
        raise OriginRefused("Invalid Origin header")


def _named(authority: str) -> str:
    """The host in a header; empty when there is more or less than a host and a port, which no browser sends."""
    open_ended = "[" in authority and "]" not in authority
    return "" if open_ended or set(authority) & _FOREIGN else _host(authority)


def _host(authority: str) -> str:
    """The name of `host:port` or `[v6]:port`, lower-case."""
    authority = authority.rpartition("@")[2].strip().lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    name, colon, port = authority.rpartition(":")
    return (name if colon and port.isdigit() else authority).rstrip(".")
