"""Whose address a request comes from, when proxies that the settings name stand in between.

`X-Forwarded-For` is what each proxy adds to what it was sent, so only the end that our own proxies wrote is to be
believed: it is read from the right, and the first address that is none of theirs is the visitor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

UNIX = "unix"
"""Among the proxies: whoever connects through a unix socket; such a peer has no address."""

Address = IPv4Address | IPv6Address


def visitor_address(peer: str, forwarded: Sequence[str], proxies: Sequence[str]) -> str:
    """The visitor's address: `peer` is who connected (empty through a unix socket), `forwarded` the `X-Forwarded-For` headers as they came.

    `proxies` are addresses, networks or `unix`. ("127.0.0.1", ["6.6.6.6, 203.0.113.7"], ["127.0.0.1"]) -> "203.0.113.7"
    """
    if not proxies:
        return peer
    networks = [ip_network(each) for each in proxies if each != UNIX]

    def trusted(address: Address) -> bool:
        return any(address in network for network in networks)

    nearest = _read(peer)
    if not (UNIX in proxies if nearest is None else trusted(nearest)):
        return peer
    found = peer
    for said in reversed(",".join(forwarded).split(",")):
        address = _read(said.strip())
        if address is None:  # left out or made unreadable by the last proxy we trust: what stands further left is anybody's word
            break
        found = str(address)
        if not trusted(address):
            break
    return found


def _read(said: str) -> Address | None:
    """An address as proxies write it: alone, `v4:port` or `[v6]:port`; a v4 address in v6 form is the v4 one."""
    if said.startswith("["):
        said = said[1:].partition("]")[0]
    elif said.count(":") == 1:
        said = said.partition(":")[0]
    try:
        address = ip_address(said)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
