"""The responses the sandbox stores for `previous_response_id`: the newest ones, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import orjson

_MOST = 2000
_MOST_BYTES = 64 * 1024 * 1024
"""Inside a gateway this is the gateway's memory, and one conversation may hold 32 MB of pictures."""


class Stored:
    """Conversations by the id of their last response; the oldest are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def __contains__(self, response_id: object) -> bool:
        return response_id in self._kept

    def items(self, response_id: str) -> list[Mapping[str, object]]:
        """The items of a stored conversation."""
        kept: list[Mapping[str, object]] = orjson.loads(self._kept[response_id])
        return kept

    def keep(self, response_id: str, items: Sequence[Mapping[str, object]]) -> None:
        """Store a conversation that ends in this response."""
        # a copy: what orjson gives takes up to 32 KB, however short it is
        self._kept[response_id] = data = bytes(memoryview(orjson.dumps(items)))
        self._size += len(data)
        while len(self._kept) > _MOST or self._size > _MOST_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1])
