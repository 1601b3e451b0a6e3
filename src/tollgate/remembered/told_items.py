"""Converted answers, remembered a while for responses clients that refer to them or their items by their ids.

Where nobody asks for `store: false`, clients take what they were told for stored: the AI SDK sends `item_reference`
for each thought and text of an earlier answer, others send the answer's id as `previous_response_id`. A provider of
another format stores nothing that could be referred to, so both stay here. They are in this process's memory, up to a
limit, the longest unused go first; what is not found is "not found".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from tollgate.remembered.bounded import BoundedMemory

MOST = 16 * 1024 * 1024
"""Bytes of all that is remembered together."""
_EACH = 500
"""What one takes beside its bytes, counted as such."""


class ToldItems:
    """The memory. Safe to use from several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._told: BoundedMemory[tuple[str, str, str], bytes] = BoundedMemory(most)
        """By what it is, the account and the id."""

    def keep(self, owner: str, items: Iterable[Any]) -> None:
        """Remember the output items of an answer for this account, as JSON."""
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("id"), str):
                written = _written(item)
                self._told.keep(("item", owner, item["id"]), written, len(written) + _EACH)

    def find(self, owner: str, item_id: str) -> bytes | None:
        """The item that this account was told under this id, as JSON."""
        return self._told.find(("item", owner, item_id))

    def keep_conversation(self, owner: str, response_id: str, items: list[Any], sent: int) -> None:
        """Remember what an answer ends, the answer's own items included, as a JSON list. An id that stood for another
        answer before stands for neither: some local servers draw theirs from a thousand. One of which a client `sent`
        more bytes than all of the memory holds is not written out to find that it does not fit."""
        key = ("conversation", owner, response_id)
        written = b"" if sent > self._most or self._told.find(key) is not None else _written(items)
        self._told.keep(key, written, len(written) + _EACH)

    def conversation(self, owner: str, response_id: str) -> bytes | None:
        """The items up to the end of the answer that this account was told under this id, as a JSON list."""
        return self._told.find(("conversation", owner, response_id)) or None


def _written(value: Any) -> bytes:
    """A value as JSON, in a copy: orjson's own bytes take up to 32 KB more than they say."""
    return bytes(memoryview(orjson.dumps(value)))
