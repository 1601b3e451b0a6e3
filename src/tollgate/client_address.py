"""Determines the address of a request's client behind trusted proxies, and matches addresses against a list.

Each proxy appends to `X-Forwarded-For`, so only the part written by trusted proxies is reliable: it is read from the
right, and the first address that is not a trusted proxy's is the client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from tollgate.config.settings import Proxies

if TYPE_CHECKING:
    from tollgate.http import Scope

Address = IPv4Address | IPv6Address


def address_of(scope: Scope, proxies: Proxies) -> str:
    """The `client_address` of a request."""
    client = scope.get("client")
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return client_address(client[0] if client else "", forwarded, proxies)


def client_address(peer: str, forwarded: Sequence[str], proxies: Proxies) -> str:
    """The client's address. `peer` is the address of the connection (empty for a unix socket), `forwarded` are the
    `X-Forwarded-For` headers in order.

    ("127.0.0.1", ["6.6.6.6, 203.0.113.7"], (127.0.0.1/32,)) -> "203.0.113.7"
    """
    if not _trusted(_read(peer), proxies):
        return peer
    found = peer
    for entry in reversed(",".join(forwarded).split(",")):
        address = _read(entry.strip())
        # the last trusted proxy left it out or obfuscated it; entries further left cannot be trusted
        if address is None:
            break
        found = str(address)
        if not _trusted(address, proxies):
            break
    return found


def is_among(address: str, listed: tuple[str, ...]) -> bool:
    """Whether an address (from `client_address`) is one of these, or in one of these networks. False for an address
    that cannot be parsed.

    ("::ffff:10.1.2.3", ("192.0.2.1", "10.0.0.0/8")) -> True
    """
    found = _read(address)
    if found is None:
        return False
    number, width = int(found), found.max_prefixlen
    return any(of == width and number >> host_bits in starts for of, host_bits, starts in _networks(listed))


@lru_cache(maxsize=1024)
def _networks(listed: tuple[str, ...]) -> tuple[tuple[int, int, frozenset[int]], ...]:
    """The networks grouped by address width and number of host bits, so that a long list takes few set lookups."""
    found: dict[tuple[int, int], set[int]] = {}
    for each in listed:
        network = ip_network(each)
        host_bits = network.max_prefixlen - network.prefixlen
        found.setdefault((network.max_prefixlen, host_bits), set()).add(int(network.network_address) >> host_bits)
    return tuple((width, host_bits, frozenset(starts)) for (width, host_bits), starts in found.items())


def _trusted(address: Address | None, proxies: Proxies) -> bool:
    """Whether this is a trusted proxy. None is a peer without an address (a unix socket)."""
    return "unix" in proxies if address is None else any(address in network for network in proxies if network != "unix")


def _read(entry: str) -> Address | None:
    """Parse an address, which proxies may write as `v4:port` or `[v6]:port`. An IPv4-mapped address becomes IPv4."""
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    try:
        address = ip_address(entry)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
