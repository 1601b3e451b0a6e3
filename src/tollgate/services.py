"""What a running gateway is made of, and the two values every endpoint trades in: `Inbound` and `Reply`.

Owns the wiring, no behaviour: the pipelines (`completions`, `embeddings`, `images`) take `Services` and an `Inbound`
and give a `Reply`; only the surface knows ASGI.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tollgate.remembered.answer_items import AnswerItems
from tollgate.remembered.thoughts import Thoughts
from tollgate.room import Place, Room

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.errors import TollgateError
    from tollgate.health import Health
    from tollgate.images.runner import Jobs
    from tollgate.ledger import KeyRecord, Ledger
    from tollgate.metrics import Metrics
    from tollgate.remembered.minted import Minted
    from tollgate.routing import Sticky
    from tollgate.runtime import RuntimeHolder
    from tollgate.upstream import Client

Headers = list[tuple[bytes, bytes]]

CLIENT_LEFT = 499
"""The status of a request whose client left before its answer was there."""


@dataclass(slots=True)
class Inbound:
    """One authenticated request. `headers` have lower-case names; `query` is the raw query string; times are
    `time.perf_counter()` seconds in `started` and UTC in `received_at`."""

    dialect: str
    key: KeyRecord
    body: bytes
    headers: Mapping[str, str]
    request_id: str
    query: str = ""
    place: Place | None = None
    """The body's part of the room for all of them: kept by whoever needs the body when the request is over."""
    started: float = field(default_factory=time.perf_counter)
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def strict(self) -> bool:
        """Whether a request that a conversion would lose a part of is to be refused."""
        return self.key.strict or self.headers.get("x-tollgate-strict") == "true"

    def elapsed_ms(self) -> float:
        """Milliseconds since the request arrived."""
        return (time.perf_counter() - self.started) * 1000


@dataclass(slots=True)
class Reply:
    """A reply: a whole `body`, or a `stream` of byte blocks. `headers` are without those that the surface adds.

    Closing the stream (`aclose`) before its end means that the client left: the iterator cancels its upstream call and
    settles the request.
    """

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None
    media_type: bytes = b"application/json"
    error_events: Callable[[TollgateError], bytes] | None = None
    """The events that report an error where `stream` was broken off: they fit what was sent of it."""


class Background:
    """Tasks that outlive their request: settlements after a client left, refreshers. SIGTERM waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], *, place: Place | None = None) -> asyncio.Task[Any]:
        """Run `work` in a task of its own, and keep a reference to it until it ends. The task also keeps `place`, that
        of the request body which it reads."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if place is not None:
            place.keep()
            task.add_done_callback(lambda _: place.leave())
        return task

    async def drain(self, seconds: float) -> None:
        """Wait for the running tasks, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def cancel(self) -> None:
        """Cancel the tasks that are left."""
        for task in tuple(self._tasks):
            task.cancel()


@dataclass(slots=True)
class Services:
    """Everything a pipeline may use. `settlements` are waited for at shutdown; `tasks` (refreshers) are cancelled."""

    runtime: RuntimeHolder
    ledger: Ledger
    client: Client
    health: Health
    sticky: Sticky
    metrics: Metrics
    minted: Minted
    room: Room = field(default_factory=lambda: Room(1 << 62))
    """For the bodies of the requests that run."""
    thoughts: Thoughts = field(default_factory=Thoughts)
    answer_items: AnswerItems = field(default_factory=AnswerItems)
    settlements: Background = field(default_factory=Background)
    tasks: Background = field(default_factory=Background)
    draining: bool = False
    cut: bool = False
    """The time to drain is over: the gateway ends the requests that still run."""
    images: Jobs | None = None
    """The image jobs of this process, made at first use (`images.service.jobs_of`)."""
    live: set[Exchange] = field(default_factory=set)
    """Requests being answered now, from `Exchange.begin` until they are settled or released; for the operator's
    page."""


_CONTROLS = bytes(code if 32 <= code < 127 else 32 for code in range(256))


def dropped_text(lost: Sequence[str]) -> bytes:
    """The value of `x-tollgate-dropped`: what was dropped, as one line of printable ASCII of limited length.

    It holds names from the caller's request; clients and proxies would refuse an answer with a control character in it.
    """
    text = ", ".join(dict.fromkeys(lost))
    return text.encode("ascii", "replace")[:1000].translate(_CONTROLS).strip()


class LastBlock(bytes):
    """The last block of a stream, marked so that it is sent together with the end of the body."""


_ID_HEX = 24
_drawn: list[str] = []


def new_request_id() -> str:
    """`req_` and 24 random hexadecimal characters (CLIENTS 3c); random bytes are drawn for many ids at a time."""
    if not _drawn:
        drawn = secrets.token_hex(_ID_HEX * 128)
        _drawn.extend(drawn[at : at + _ID_HEX] for at in range(0, len(drawn), _ID_HEX))
    return "req_" + _drawn.pop()
