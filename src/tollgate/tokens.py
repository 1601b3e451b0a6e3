"""Counting tokens locally, when an upstream did not: off the event loop, bounded, with no network.

Used for usage that is missing, for `count_tokens` and for embeddings; a figure from here is an estimate and is marked
so. What must stay true: the loop never tokenises more than a page, a huge or pathological text costs no more than a
capped one, and an encoding that cannot be loaded is replaced by the heuristic, not by an error.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tollgate import tokenizer
from tollgate.tokenizer.texts import request_texts

if TYPE_CHECKING:
    from tiktoken import Encoding

log = logging.getLogger("tollgate.tokens")

DEFAULT_ENCODING = "o200k_base"
MAX_CHARS = 400_000
"""Longest text (in all) that is tokenised: 20 ms of a thread for prose, 100 ms at worst. Longer ones are estimated."""
MAX_WAITING = 64
"""Counts queued before further ones are estimated: usage must not wait in a long line."""
INLINE_CHARS = 2_000
"""Below this, with the encoding loaded, a count (under 0.1 ms) is cheaper than the way to a thread and back."""

AGAIN_SECONDS = 60.0
"""An encoding is first loaded in the middle of traffic, perhaps when no descriptor or memory was left: that passes."""

_CHARS_PER_TOKEN = 4

_two, _three, _four = bytes(range(0xC0, 0xE0)), bytes(range(0xE0, 0xF0)), bytes(range(0xF0, 0x100))
"""The first bytes of longer UTF-8 characters: deleting them from a text counts those characters."""

_executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokens")
_loading = threading.Lock()
_encodings: dict[str, Encoding] = {}
_again_at: dict[str, float] = {}
"""Until when an encoding that could not be loaded is not tried again."""
_waiting = 0


def estimate(chars: int) -> int:
    """Tokens of a text of so many characters (or bytes), rounded up: what holds and routing use before a call."""
    return -(-chars // _CHARS_PER_TOKEN)


def heuristic(text: str) -> int:
    """Tokens of a text by its scripts: 4 characters a token in ASCII, 2.5 in the two-byte scripts (accents, Greek,
    Cyrillic, Arabic, Hebrew), 1.5 in the three-byte ones (CJK, Indic), and 2 tokens an emoji. Linear and in C."""
    size = len(text)
    if text.isascii():
        return estimate(size)
    data = text.encode("utf-8", "surrogatepass")
    two = len(data) - len(data.translate(None, _two))
    three = len(data) - len(data.translate(None, _three))
    four = len(data) - len(data.translate(None, _four))
    plain = size - two - three - four
    return max(1, round(plain / _CHARS_PER_TOKEN + two / 2.5 + three / 1.5 + four * 2))


async def count(texts: Sequence[str], encoding: str | None = None) -> int:
    """Tokens of all `texts` together, special tokens read as plain text.

    Exact in `encoding` (o200k_base when None or unknown) up to `MAX_CHARS`; the heuristic above it, when too many
    counts wait already, or when the encoding cannot be loaded.
    """
    global _waiting
    chars = sum(map(len, texts))
    if not chars:
        return 0
    if chars > MAX_CHARS:
        return await asyncio.get_running_loop().run_in_executor(_executor, _estimated, texts)
    if _waiting >= MAX_WAITING:
        return _estimated(texts)
    name = encoding if encoding in tokenizer.NAMES else DEFAULT_ENCODING
    if chars <= INLINE_CHARS and (loaded := _encodings.get(name)) is not None:
        return _count(loaded, texts)
    _waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_executor, _load_and_count, name, texts)
    finally:
        _waiting -= 1


async def count_request(
    dialect: str, body: Mapping[str, Any], encoding: str | None = None, *, large: bool = False
) -> int:
    """Prompt tokens of a chat, responses, messages or embeddings body: texts, tools, frames, and media by constants.

    A `large` one is gone through by a thread: a body of the largest size may hold a million texts, which take a second.
    """
    texts, extra = (
        await asyncio.get_running_loop().run_in_executor(_executor, request_texts, dialect, body)
        if large
        else request_texts(dialect, body)
    )
    return extra + await count(texts, encoding)


def _load_and_count(name: str, texts: Sequence[str]) -> int:
    encoding = _load(name)
    return _estimated(texts) if encoding is None else _count(encoding, texts)


def _estimated(texts: Sequence[str]) -> int:
    return sum(map(heuristic, texts))


def _count(encoding: Encoding, texts: Sequence[str]) -> int:
    return sum([len(encoding.encode_ordinary(text)) for text in texts])


def _load(name: str) -> Encoding | None:
    """The encoding; None, said each time, while it cannot be loaded, which is tried once a minute."""
    if name in _encodings:
        return _encodings[name]
    with _loading:
        if name not in _encodings and time.monotonic() >= _again_at.get(name, 0.0):
            try:
                _encodings[name] = tokenizer.load(name)
            except (ImportError, OSError, ValueError, KeyError) as error:
                log.warning("tokens are estimated from characters: encoding %s cannot be loaded (%s)", name, error)
                _again_at[name] = time.monotonic() + AGAIN_SECONDS
    return _encodings.get(name)
