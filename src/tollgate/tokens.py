"""Counts tokens locally, off the event loop and without network, for usage that no upstream reported, for
`count_tokens` and for embeddings. The results are marked as estimates.

Invariants: the event loop never tokenises more than about a page, the cost of a count is bounded for any text, and if
an encoding cannot be loaded, the heuristic is used instead of an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tollgate import tokenizer
from tollgate.tokenizer.texts import request_texts

if TYPE_CHECKING:
    from tiktoken import Encoding

log = logging.getLogger("tollgate.tokens")

DEFAULT_ENCODING = "o200k_base"
MAX_CHARS = 400_000
"""Total length of texts that are tokenised, which takes a thread 20 ms for prose and at most 100 ms. Longer ones are
estimated."""
MAX_WAITING = 64
"""Queued counts after which further ones are estimated, so that usage is not delayed."""
INLINE_CHARS = 2_000
"""Up to this length, if the encoding is loaded, counting on the event loop (under 0.1 ms) costs less than a thread."""

RETRY_SECONDS = 60.0
"""When to retry loading an encoding. It may have failed for lack of descriptors or memory, which passes."""

_CHARS_PER_TOKEN = 4

_two, _three, _four = bytes(range(0xC0, 0xE0)), bytes(range(0xE0, 0xF0)), bytes(range(0xF0, 0x100))
"""The first bytes of longer UTF-8 characters: deleting them from a text counts those characters."""

_executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokens")
_loading = threading.Lock()
_encodings: dict[str, Encoding] = {}
_retry_at: dict[str, float] = {}
"""When to retry loading an encoding that could not be loaded."""
_waiting = 0
_threads: set[asyncio.Future[int]] = set()
_only_estimates = False


def estimate(chars: int) -> int:
    """Estimated tokens of a text with `chars` characters (or bytes), rounded up; used for holds and routing."""
    return -(-chars // _CHARS_PER_TOKEN)


def heuristic(text: str) -> int:
    """Estimated tokens of a text by script: 4 characters a token in ASCII, 2.5 in scripts with two bytes a character
    (accents, Greek, Cyrillic, Arabic, Hebrew), 1.5 with three bytes (CJK, Indic), and 2 tokens per emoji. Runs in C, in
    linear time."""
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
    """Total tokens of `texts`; special tokens count as plain text.

    Exact for `encoding` (o200k_base if None or unknown) up to `MAX_CHARS`. Above that, if too many counts are queued,
    or if the encoding cannot be loaded, it is the heuristic's estimate.
    """
    global _waiting
    chars = sum(map(len, texts))
    if not chars:
        return 0
    if chars > MAX_CHARS:
        return await _in_thread(lambda: _estimated(texts), texts)
    if _waiting >= MAX_WAITING:
        return _estimated(texts)
    name = encoding if encoding in tokenizer.NAMES else DEFAULT_ENCODING
    if chars <= INLINE_CHARS and (loaded := _encodings.get(name)) is not None:
        return _count(loaded, texts)
    _waiting += 1
    try:
        return await _in_thread(lambda: _load_and_count(name, texts), texts)
    finally:
        _waiting -= 1


def in_threads() -> int:
    """How many counts are waiting for a thread."""
    return len(_threads)


@contextlib.contextmanager
def only_estimates() -> Iterator[None]:
    """Inside this context nothing waits for a thread: counts that would are the heuristic's estimates, also those that
    already wait. For a stop: on a very slow machine, loading an encoding may take longer than a stop may."""
    global _only_estimates
    _only_estimates = True
    for counting in tuple(_threads):
        _threads.discard(counting)
        counting.cancel()
    try:
        yield
    finally:
        _only_estimates = False


async def _in_thread(work: Callable[[], int], texts: Sequence[str]) -> int:
    """The result of `work`, or the heuristic's estimate of `texts` once there is no time for it."""
    if _only_estimates:
        return _estimated(texts)
    counting = asyncio.get_running_loop().run_in_executor(_executor, work)
    _threads.add(counting)
    try:
        return await counting
    except asyncio.CancelledError:
        if counting in _threads:  # else `only_estimates` cancelled the count, and nobody its request
            raise
        return _estimated(texts)
    finally:
        _threads.discard(counting)


async def count_request(
    dialect: str, body: Mapping[str, Any], encoding: str | None = None, *, large: bool = False
) -> int:
    """Prompt tokens of a chat, responses, messages or embeddings body: texts, tools, message frames and media.

    The texts of a `large` body are collected in a thread: there may be a million, which takes a second.
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
    """The encoding, loaded at its first use. None if it cannot be loaded; it is retried, and logged, once a minute."""
    if name in _encodings:
        return _encodings[name]
    with _loading:
        if name not in _encodings and time.monotonic() >= _retry_at.get(name, 0.0):
            try:
                _encodings[name] = tokenizer.load(name)
            except (ImportError, OSError, ValueError, KeyError) as error:
                log.warning("tokens are estimated from characters: encoding %s cannot be loaded (%s)", name, error)
                _retry_at[name] = time.monotonic() + RETRY_SECONDS
    return _encodings.get(name)
