"""The sandbox's prompt cache, so that a repeated prefix is reported as a cache read.

Two rules, as in published interfaces: with marks (`cache_control`) everything up to the last mark is written the first
time and read afterwards, whatever its length; without marks only a prefix of 1,024 tokens or more counts as read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tollgate.remembered.bounded import BoundedMemory

LEAST_UNMARKED = 1024
_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt, in order: its bytes, its tokens, and the cache mark at its end."""

    data: bytes
    tokens: int
    mark: Literal["5m", "1h"] | None = None


@dataclass(frozen=True, slots=True)
class Cached:
    """The tokens of a prompt that were read from or written to the cache; the others are plain input."""

    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def written(self) -> int:
        """Tokens written to the cache, for any duration."""
        return self.written_5m + self.written_1h


class PromptCache:
    """Remembers prefixes by digest, per model; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._seen: BoundedMemory[bytes, bool] = BoundedMemory(_REMEMBERED)

    def meet(self, model: str, segments: Sequence[Segment]) -> Cached:
        """How this prompt meets the cache; afterwards its prefixes are remembered."""
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
            if self._seen.find(key):
                read, start = tokens, index + 1
        written = {"5m": 0, "1h": 0}
        before = read
        for key, tokens, ttl in boundaries[start:]:
            written[ttl] += tokens - before
            before = tokens
        for key, _, _ in boundaries:
            self._seen.keep(key, True, 1)
        if not marked:
            return Cached(read=read)
        return Cached(read, written["5m"], written["1h"])
