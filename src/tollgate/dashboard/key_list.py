"""The keys that a page lists: working ones first, newer before older ones, as many as a person reads.

The others are found by name. Making a page of ten thousand keys would block all other requests for seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tollgate.accounts import KeyView

MOST = 200
_ORDER = {"active": 0, "expired": 1, "revoked": 2}


class KeyList(NamedTuple):
    """The keys to show, the number of keys that match the search, and the number of all keys."""

    views: list[KeyView]
    found: int
    total: int
    search: str


def key_list(views: Iterable[KeyView], search: str = "", *, chosen: str = "") -> KeyList:
    """The first `MOST` keys with `search` in their name or as their last four characters; also the key with the id
    `chosen`."""
    every = sorted(views, key=lambda view: view.key.created_at, reverse=True)
    every.sort(key=lambda view: _ORDER[view.state])
    search = search.strip()[:100]
    wanted = search.casefold()
    found = [each for each in every if wanted in each.key.name.casefold() or search == each.key.last_four]
    shown = found[:MOST] + [each for each in found[MOST:] if each.key.id == chosen]
    return KeyList(shown, len(found), len(every), search)
