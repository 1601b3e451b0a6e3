"""The state of one conversion: the engine's values that a mapping may read, and the list of losses."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import NoReturn

from tollgate.mapping.client_words import places_of
from tollgate.mapping.failures import Fault, Refused
from tollgate.mapping.names import readable_headers

_MAX_CALLS = 1_000_000
"""Calls of recursive functions in one conversion: far more than any real body (32 MiB) needs, and few enough to end
soon."""
_MAX_LOST = 200
"""Distinct entries of a loss list; a caller reads the first few."""

_MAX_WANTED = 100
"""URLs that are noted: more than a request may name (`completions/inline.py`), and few enough to search for each
one."""

_NO_HEADERS: dict[str, str] = {}
_NOTHING_SPARED: frozenset[str] = frozenset()


class Context:
    """The engine's values for one request, `$model`, `$can` and `$request`; and `lost`, what could not be carried over.

    `strict` refuses a request that would lose anything. `lenient` is true while an answer is converted: then what would
    be refused is a loss. `run_id` and `now` replace an id and a time that an upstream does not give.
    """

    __slots__ = (
        "_nonce",
        "asked",
        "asked_model",
        "calls",
        "can",
        "estimate",
        "headers",
        "inlined",
        "lenient",
        "lost",
        "model",
        "now",
        "request",
        "run_id",
        "spared",
        "strict",
        "wanted",
    )

    _nonce: str
    in_pieces = False

    def __init__(
        self,
        model: Mapping[str, object] | None = None,
        can: Mapping[str, object] | None = None,
        strict: bool = False,
        *,
        run_id: str = "",
        now: int | None = None,
        lenient: bool = False,
    ) -> None:
        self.model: dict[str, object] = model if type(model) is dict else dict(model) if model else {}
        self.can: dict[str, object] = can if type(can) is dict else dict(can) if can else {}
        self.request: dict[str, object] | None = None
        """The request in the hub, which `$request` reads; set when it is converted."""
        self.strict = strict
        self.asked: dict[str, object] | None = None
        """The client's request as received; set when it is converted."""
        self.asked_model: str | None = None
        """The model's name in the answer, where it must be the requested one (`request.asked_model`)."""
        self.estimate: dict[str, object] | None = None
        """Token counts for the start of a stream, until the upstream reports some."""
        self.headers: Mapping[str, str] = _NO_HEADERS
        """The client's headers by lower-case name, for the places that read them (`request.base64_vectors`,
        `request.asked_model`, request edits)."""
        self.inlined: dict[str, dict[str, str]] = {}
        """What was fetched: URL -> {mime, data}."""
        self.wanted: list[str] = []
        """URLs for which a mapping has used `inline`, and which are not fetched yet."""
        self.run_id = run_id
        self.now = int(time.time()) if now is None else now
        self.lost: list[str] = []
        self.spared = _NOTHING_SPARED
        """Paths of what `harmless` edits have removed: no loss, nor is an object with nothing else in it."""
        self.lenient = lenient
        self.calls = 0

    @property
    def nonce(self) -> str:
        """What `$nonce` reads; made when first read, because few mappings use it and randomness is slow."""
        try:
            return self._nonce
        except AttributeError:
            self._nonce = new_nonce()
            return self._nonce

    @nonce.setter
    def nonce(self, value: str) -> None:
        self._nonce = value

    def answer_id(self) -> str:
        """An id for an answer that has none."""
        if not self.run_id:
            # unique, not secret: the system's randomness costs 50 µs a draw
            self.run_id = f"gen_{random.getrandbits(96):024x}"
        return self.run_id

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Set the client's headers (lower-case names) that `$headers` reads."""
        self.headers = readable_headers(headers)

    def lose(self, words: str) -> None:
        """Note that something is not carried over; each thing once."""
        if words not in self.lost and len(self.lost) < _MAX_LOST:
            self.lost.append(words)

    def spare(self, path: str) -> None:
        """Note that what was at a path says nothing."""
        self.spared |= {path}

    def inline(self, url: object) -> dict[str, str] | None:
        """The content of a URL if it was fetched; otherwise the URL is noted as wanted, and the content is absent
        for now."""
        if type(url) is not str or not url:
            return None
        found = self.inlined.get(url)
        if found is None and len(self.wanted) < _MAX_WANTED and url not in self.wanted:
            self.wanted.append(url)
        return found

    def refuse(self, words: str, param: str | None = None) -> None:
        """Refuse the request, as its mapping demands. While an answer is converted this is noted as a loss instead."""
        if self.lenient:
            self.lose(words)
        else:
            raise Refused(words, param)

    def refuse_loss(self, lost: list[str]) -> NoReturn:
        """Refuse a request that would lose something, in strict mode."""
        raise Refused(f"strict mode: this model cannot take {', '.join(lost)}", lost[0])

    def where(self, value: object) -> str | None:
        """Where this value is in the client's own request: `messages[1].tool_calls[0].function.arguments`."""
        return next(iter(places_of((value,), self.asked)), None)

    def count(self) -> None:
        """Count a call of a recursive function; limited, so that no input can keep a mapping busy."""
        self.calls += 1
        if self.calls > _MAX_CALLS:
            raise Fault("too many nested parts")


def new_nonce() -> str:
    """32 hexadecimal digits that cannot be predicted."""
    return token_hex(16)


class PieceContext(Context):
    """The context in which `inner_of` reads the pieces of a stream: `from_base64` keeps bytes that are not UTF-8."""

    __slots__ = ()
    in_pieces = True
