"""Limits attempts to sign in: failures by address and by account, in memory, over a quarter of an hour."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address, ip_network

WINDOW = 15 * 60
BY_ADDRESS = 30
"""Many people can share an address, behind a company's proxy or one that `server.trusted_proxies` does not name."""
BY_ACCOUNT = 10
_MOST = 10_000
_LONGEST_NAME = 64
"""Characters of the account in the form that are kept; a form may have a megabyte of them."""


class Throttle:
    """Failures of each address and account."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    def wait(self, address: str, account: str) -> float:
        """Seconds until the next attempt is allowed; 0 if it is allowed now."""
        address, account = _counted(address, account)
        return max(self._left(("address", address), BY_ADDRESS), self._left(("account", account), BY_ACCOUNT))

    def failed(self, address: str, account: str) -> None:
        """Count a wrong password."""
        address, account = _counted(address, account)
        now = self._clock()
        for name in (("address", address), ("account", account)):
            if name[1]:
                recent = [moment for moment in self._failures.get(name, []) if moment > now - WINDOW]
                self._failures[name] = [*recent, now][-BY_ADDRESS:]
                self._failures.move_to_end(name)
        while len(self._failures) > _MOST:
            self._failures.popitem(last=False)

    def succeeded(self, address: str, account: str) -> None:
        """A correct password: this attempt no longer counts for the address, nor earlier failures for the account."""
        address, account = _counted(address, account)
        self._failures.pop(("account", account), None)
        if mine := self._failures.get(("address", address)):
            mine.pop()

    def _left(self, name: tuple[str, str], most: int) -> float:
        now = self._clock()
        recent = [moment for moment in self._failures.get(name, []) if moment > now - WINDOW]
        return recent[-most] + WINDOW - now if len(recent) >= most else 0.0


def _counted(address: str, account: str) -> tuple[str, str]:
    """The keys for counting: a visitor with IPv6 has a whole network of addresses (a /64), and account names are
    shortened."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:  # a unix socket
        return address, account[:_LONGEST_NAME]
    return str(ip_network((ip, 64), strict=False)) if ip.version == 6 else address, account[:_LONGEST_NAME]
