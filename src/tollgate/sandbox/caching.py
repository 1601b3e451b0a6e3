"""The sandbox's memory of prompts, so that a repeated beginning is reported as read from a cache.

Two rules, as published interfaces have them: with marks (`cache_control`) everything up to the last mark is written the
first time and read afterwards, whatever its length; without marks only a prefix of 1,024 tokens or more counts as read.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LEAST_UNMARKED = 1024
_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt in its order: its bytes, its tokens and the cache mark at its end."""

    data: bytes
    tokens: int
    mark: Literal["5m", "1h"] | None = None


@dataclass(frozen=True, slots=True)
class Cached:
    """How the prompt's tokens met the cache; the rest is plain input."""

    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def written(self) -> int:
        """Tokens written to the cache, for however long."""
        return self.written_5m + self.written_1h


class PromptCache:
    """Remembers prefixes by digest, per model; the oldest are forgotten."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def meet(self, model: str, segments: Sequence[Segment]) -> Cached:
        """What of this prompt was seen before; afterwards it has been."""
        digest = hashlib.blake2b(model.encode(), digest_size=16)
        total = 0
        marked = any(s.mark for s in segments)
        boundaries: list[tuple[bytes, int, str]] = []
        for segment in segments:
            digest.update(len(segment.data).to_bytes(8, "big") + segment.data)
            total += segment.tokens
            if segment.mark or (not marked and total >= LEAST_UNMARKED):
                boundaries.append((digest.digest(), total, segment.mark or "5m"))
        read, start = 0, 0
        for index, (key, tokens, _) in enumerate(boundaries):
            if key in self._seen:
                read, start = tokens, index + 1
        written = {"5m": 0, "1h": 0}
        before = read
        for key, tokens, ttl in boundaries[start:]:
            written[ttl] += tokens - before
            before = tokens
        for key, _, _ in boundaries:
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        if not marked:
            return Cached(read=read)
        return Cached(read, written["5m"], written["1h"])
