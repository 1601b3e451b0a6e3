"""Whose address a request comes from, when proxies that the settings name stand in between.

`X-Forwarded-For` is what each proxy adds to what it was sent, so only the end that our own proxies wrote is to be
believed: it is read from the right, and the first address that is none of theirs is the visitor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from tollgate.config.model import Proxies

Address = IPv4Address | IPv6Address


def client_address(peer: str, forwarded: Sequence[str], proxies: Proxies) -> str:
    """The visitor's address: `peer` is who connected (empty through a unix socket), `forwarded` the `X-Forwarded-For`
    headers as they came.

    ("127.0.0.1", ["6.6.6.6, 203.0.113.7"], (127.0.0.1/32,)) -> "203.0.113.7"
    """
    if not _trusted(_read(peer), proxies):
        return peer
    found = peer
    for said in reversed(",".join(forwarded).split(",")):
        address = _read(said.strip())
        # left out or made unreadable by the last proxy we trust: what stands further left is anybody's word
        if address is None:
            break
        found = str(address)
        if not _trusted(address, proxies):
            break
    return found


def _trusted(address: Address | None, proxies: Proxies) -> bool:
    """Whether this is one of the proxies; None is a peer without an address."""
    return "unix" in proxies if address is None else any(address in network for network in proxies if network != "unix")


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
