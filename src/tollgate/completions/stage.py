"""What every streamed answer is, whether its bytes pass (`native_chat.py`, `native_plain.py`) or are converted
(`converted_stream.py`): the interface that `stream.py` drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tollgate.errors import TollgateError, UpstreamError


class Stage(ABC):
    """One answer on its way to the client."""

    error: UpstreamError | None = None
    """Why the answer failed: reported by the upstream, or broken off. Nothing more is fed once it is set."""

    begun = False
    """Content of the answer has arrived; until then another route may still be tried."""

    ended = False
    """The upstream has sent the event that ends its answer."""

    _closed = False
    """`close` was called."""

    @abstractmethod
    def feed(self, block: bytes) -> bytes:
        """The client's bytes for a block of upstream bytes; the end of the answer is held back for `tail`."""

    def close(self) -> bytes:
        """The upstream's body ended: the client's bytes for what was left unfinished. Sets `error` when the answer is
        incomplete. Another call (an answer may end before it has begun) returns nothing."""
        if self._closed:
            return b""
        out = self._close()
        self._closed = True
        return out

    @abstractmethod
    def _close(self) -> bytes:
        """`close`, called once."""

    @abstractmethod
    def usage(self) -> dict[str, Any] | None:
        """Hub usage as the upstream reported it so far."""

    @property
    @abstractmethod
    def counted(self) -> bool:
        """Whether the usage reported so far is that of the whole answer."""

    @abstractmethod
    def tier(self) -> str | None:
        """The service tier that the upstream reports."""

    @property
    @abstractmethod
    def answered(self) -> bool:
        """Whether the upstream has said why its answer stopped: a connection that breaks later takes nothing of it."""

    def minted(self) -> list[str]:
        """Ids in the answer under which the provider stores state (`state_ids.py`)."""
        return []

    def encrypted(self) -> Collection[str]:
        """Encrypted values in the answer, which only its provider can read (`minters.py`)."""
        return ()

    def reported_error(self) -> UpstreamError | None:
        """The failure that the answer's own last event reports; the client gets that event unchanged."""
        return None

    @abstractmethod
    async def estimate(self) -> dict[str, Any]:
        """Hub usage estimated from what was received."""

    @abstractmethod
    def tail(self) -> bytes:
        """The end of the answer, with the exchange's usage where the format shows it."""

    @abstractmethod
    def error_events(self, error: TollgateError) -> bytes:
        """The events that report `error` and end the stream."""
