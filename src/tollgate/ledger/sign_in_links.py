"""One-time sign-in links: a random token for an account, valid once and for a quarter of an hour.

Only their hashes are kept, in the memory of the process whose dashboard accepts them; a restart forgets them all.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from tollgate.ledger.keys import digest

LINK_SECONDS = 15 * 60
_MOST = 1000
"""Links waiting at once; the oldest is forgotten beyond that."""


class SignInLinks:
    """The links that have not been used yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.address = ""
        """The address to which a token is appended; set by the dashboard, empty without one."""
        self._clock = clock
        self._waiting: dict[bytes, tuple[str, float]] = {}

    async def make(self, account_id: str) -> str:
        """A new token for this account."""
        self._forget()
        while len(self._waiting) >= _MOST:
            del self._waiting[next(iter(self._waiting))]
        token = secrets.token_urlsafe(32)
        self._waiting[digest(token)] = (account_id, self._clock() + LINK_SECONDS)
        return token

    async def look(self, token: str) -> str | None:
        """The account a token is for, without using it up; None when it is unknown, used or too old."""
        self._forget()
        found = self._waiting.get(digest(token))
        return found[0] if found is not None else None

    async def take(self, token: str) -> str | None:
        """The same, and the token is used up: of all callers with the same token, one gets the account."""
        self._forget()
        found = self._waiting.pop(digest(token), None)
        return found[0] if found is not None else None

    def _forget(self) -> None:
        now = self._clock()
        self._waiting = {digest: entry for digest, entry in self._waiting.items() if entry[1] > now}
