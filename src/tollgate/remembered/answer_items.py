"""Converted answers, remembered for a while for responses clients that refer to them or their items by id.

Unless they ask for `store: false`, clients expect answers to be stored: the AI SDK sends an `item_reference` for each
reasoning and text item of an earlier answer, others send the answer's id as `previous_response_id`. A provider of
another format stores nothing, so this process remembers both, in memory of limited size; the least recently used are
dropped first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from tollgate.remembered.bounded import BoundedMemory

MOST = 16 * 1024 * 1024
"""Bytes of the whole memory."""
_EACH = 500
"""Bytes counted for the overhead of each entry."""


class AnswerItems:
    """The memory. Safe to use from several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._memory: BoundedMemory[tuple[str, str, str], bytes] = BoundedMemory(most)
        """By kind, account and id."""

    def keep(self, owner: str, items: Iterable[Any]) -> None:
        """Remember the output items of an answer for this account, as JSON. An id under which another item is known
        then refers to nothing: most are derived from the answer's id, which some local servers draw from a thousand,
        and the other item may be of another conversation."""
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("id"), str):
                key, written = ("item", owner, item["id"]), _written(item)
                if self._memory.find(key) not in (None, written):
                    written = b""
                self._memory.keep(key, written, len(written) + _EACH)

    def find(self, owner: str, item_id: str) -> bytes | None:
        """The item with this id that this account was given, as JSON."""
        return self._memory.find(("item", owner, item_id)) or None

    def keep_conversation(self, owner: str, response_id: str, items: list[Any], sent: int) -> None:
        """Remember a conversation that ends with this response, with the response's own items, as a JSON list. An id
        that was used before then refers to nothing: some local servers draw their ids from a thousand. A conversation
        of which the client `sent` more bytes than the memory holds is not even encoded."""
        key = ("conversation", owner, response_id)
        written = b"" if sent > self._most or self._memory.find(key) is not None else _written(items)
        self._memory.keep(key, written, len(written) + _EACH)

    def conversation(self, owner: str, response_id: str) -> bytes | None:
        """The items of the conversation that ends with this response of this account, as a JSON list."""
        return self._memory.find(("conversation", owner, response_id)) or None


def _written(value: Any) -> bytes:
    """A value as JSON; a copy, because the bytes that orjson returns occupy up to 32 KB more than their length."""
    return bytes(memoryview(orjson.dumps(value)))
