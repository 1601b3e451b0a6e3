"""Whose address a request comes from, when proxies that the settings name stand in between, and whether it is one of
a list.

`X-Forwarded-For` is what each proxy adds to what it was sent, so only the end that our own proxies wrote is to be
believed: it is read from the right, and the first address that is none of theirs is the visitor's.
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
    """`client_address` of a request."""
    client = scope.get("client")
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return client_address(client[0] if client else "", forwarded, proxies)


def client_address(peer: str, forwarded: Sequence[str], proxies: Proxies) -> str:
    """The visitor's address: `peer` is who connected (empty through a unix socket), `forwarded` the `X-Forwarded-For`
    headers as they came.

    ("127.0.0.1", ["6.6.6.6, 203.0.113.7"], (127.0.0.1/32,)) -> "203.0.113.7"
    """
    if not _trusted(_read(peer), proxies):
        return peer
    found = peer
    for text in reversed(",".join(forwarded).split(",")):
        address = _read(text.strip())
        # left out or made unreadable by the last proxy we trust: what stands further left is anybody's word
        if address is None:
            break
        found = str(address)
        if not _trusted(address, proxies):
            break
    return found


def is_among(address: str, listed: tuple[str, ...]) -> bool:
    """Whether an address as `client_address` gives it is one of these, or in one of these networks; what cannot be read
    is in none.

    ("::ffff:10.1.2.3", ("192.0.2.1", "10.0.0.0/8")) -> True
    """
    found = _read(address)
    if found is None:
        return False
    number, width = int(found), found.max_prefixlen
    return any(of == width and number >> host_bits in starts for of, host_bits, starts in _networks(listed))


@lru_cache(maxsize=1024)
def _networks(listed: tuple[str, ...]) -> tuple[tuple[int, int, frozenset[int]], ...]:
    """The networks by their widths and the bits of their hosts, so that a long list costs a look or two."""
    found: dict[tuple[int, int], set[int]] = {}
    for each in listed:
        network = ip_network(each)
        host_bits = network.max_prefixlen - network.prefixlen
        found.setdefault((network.max_prefixlen, host_bits), set()).add(int(network.network_address) >> host_bits)
    return tuple((width, host_bits, frozenset(starts)) for (width, host_bits), starts in found.items())


def _trusted(address: Address | None, proxies: Proxies) -> bool:
    """Whether this is one of the proxies; None is a peer without an address."""
    return "unix" in proxies if address is None else any(address in network for network in proxies if network != "unix")


def _read(text: str) -> Address | None:
    """An address as proxies write it: alone, `v4:port` or `[v6]:port`; a v4 address in v6 form is the v4 one."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
