"""What one conversion carries: the engine's values a mapping may read, and the list of what got lost."""

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
"""Calls of recursive functions in one conversion: far above any real body (32 MiB), far below a stalled process."""
_MAX_LOST = 200
"""Distinct entries of a loss list; a caller reads the first few."""

_MAX_WANTED = 100
"""URLs that are noted: more than a request may name (`completions/inline.py`), few enough to look through for each."""

_NO_HEADERS: dict[str, str] = {}


class Context:
    """The engine's values for one request: `$model`, `$can`, `$request`; and `lost`, what could not be carried.

    `strict` refuses a request that would lose anything. `lenient` is set while an answer is converted. `run_id` and
    `now` stand in for an id and a time that an upstream does not give.
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
        "strict",
        "wanted",
    )

    _nonce: str

    def __init__(
        self,
        model: Mapping[str, object] | None = None,
        can: Mapping[str, object] | None = None,
        request: dict[str, object] | None = None,
        strict: bool = False,
        *,
        run_id: str = "",
        now: int | None = None,
    ) -> None:
        self.model: dict[str, object] = model if type(model) is dict else dict(model) if model else {}
        self.can: dict[str, object] = can if type(can) is dict else dict(can) if can else {}
        self.request = request
        self.strict = strict
        self.asked: dict[str, object] | None = None
        """The client's request as it came; set when it is converted."""
        self.asked_model: str | None = None
        """What the answer calls its model, where the client must hear the name it asked for (`request.asked_model`)."""
        self.estimate: dict[str, object] | None = None
        """Token counts for the start of a stream, while the upstream has told none."""
        self.headers: Mapping[str, str] = _NO_HEADERS
        """The client's headers by lower-case name, for the places that read them (`request.base64_vectors`,
        `request.asked_model`, request edits)."""
        self.inlined: dict[str, dict[str, str]] = {}
        """What was fetched: URL -> {mime, data}."""
        self.wanted: list[str] = []
        """URLs a mapping asked for with `inline` that were not fetched yet."""
        self.run_id = run_id
        self.now = int(time.time()) if now is None else now
        self.lost: list[str] = []
        self.lenient = False
        self.calls = 0

    @property
    def nonce(self) -> str:
        """What `$nonce` reads: made when it is first asked for, because few do and randomness has its price."""
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

    def hear(self, headers: Mapping[str, str]) -> None:
        """Set what `$headers` reads of a client's headers (lower-case names)."""
        self.headers = readable_headers(headers)

    def lose(self, words: str) -> None:
        """Note that something is not carried over; each thing once."""
        if words not in self.lost and len(self.lost) < _MAX_LOST:
            self.lost.append(words)

    def inline(self, url: object) -> dict[str, str] | None:
        """The bytes behind a URL, when they were fetched; else the wish is noted, and it is absent for now."""
        if type(url) is not str or not url:
            return None
        found = self.inlined.get(url)
        if found is None and len(self.wanted) < _MAX_WANTED and url not in self.wanted:
            self.wanted.append(url)
        return found

    def refuse(self, words: str, param: str | None = None) -> None:
        """Refuse the request, as its mapping says. While an answer is converted there is nobody to refuse, so it is
        noted as a loss."""
        if self.lenient:
            self.lose(words)
        else:
            raise Refused(words, param)

    def refuse_loss(self, lost: list[str]) -> NoReturn:
        """Refuse a request that would lose something, for a caller in strict mode."""
        raise Refused(f"strict mode: this model cannot take {', '.join(lost)}", lost[0])

    def where(self, value: object) -> str | None:
        """Where in the client's own request this very value stands: `messages[1].tool_calls[0].function.arguments`."""
        return next(iter(places_of((value,), self.asked)), None)

    def count(self) -> None:
        """One more call of a recursive function; bounded, so that no input can keep a mapping busy."""
        self.calls += 1
        if self.calls > _MAX_CALLS:
            raise Fault("too many nested parts")


def new_nonce() -> str:
    """32 hexadecimal digits that nobody can foresee."""
    return token_hex(16)
