"""Which keys a page lists: those that work first, the newest before others, as many as a person reads.

The rest is found by name. A page of ten thousand would keep every other request waiting for seconds while it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tollgate.accounts import KeyView

MOST = 200
_ORDER = {"active": 0, "expired": 1, "revoked": 2}


class KeyList(NamedTuple):
    """The keys to show, of how many that were looked for, of how many there are."""

    views: list[KeyView]
    found: int
    total: int
    said: str


def key_list(views: Iterable[KeyView], said: str = "", *, chosen: str = "") -> KeyList:
    """The first `MOST` keys that have `said` in their name or as their last four characters; of them all, the one with
    the id `chosen` is shown, too."""
    every = sorted(views, key=lambda view: (_ORDER[view.state], -view.key.created_at.timestamp()))
    said = said.strip()[:100]
    wanted = said.casefold()
    found = [each for each in every if wanted in each.key.name.casefold() or said == each.key.last_four]
    shown = found[:MOST]
    if chosen and not any(each.key.id == chosen for each in shown):
        shown += [each for each in found[MOST:] if each.key.id == chosen]
    return KeyList(shown, len(found), len(every), said)
