"""A native stream as a `stream.Stage`: what chat (`native_chat.py`) and the other formats (`native_plain.py`) share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tollgate.completions.estimate import estimate_usage, texts_of_events
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import reported_failure, unfit_answer
from tollgate.completions.native_stream import NativeStream
from tollgate.completions.opening import answers, opening_of
from tollgate.completions.route_events import Reframed, converts_frames
from tollgate.errors import AnswerLost, TollgateError, UpstreamError
from tollgate.mapping import Tap
from tollgate.mapping.streams.run import ENDED_EARLY
from tollgate.public_errors import stream_error_events
from tollgate.routing import Offer
from tollgate.sse import BLANK


class NativeStage:
    """Base of both native stages. Its parts never refer back to it, so it is freed without garbage collection."""

    def __init__(self, exchange: Exchange, offer: Offer, inner: NativeStream) -> None:
        self._exchange = exchange
        self._offer = offer
        self._dialect = exchange.inbound.dialect
        self._inner = inner
        self._sent = b""
        """The last bytes sent to the client; in a responses stream the last ones with a `sequence_number`."""
        self.begun = False
        self._opening = opening_of(exchange, offer)
        self._reframed = Reframed(offer, self._dialect) if converts_frames(offer) else None

    @property
    def error(self) -> UpstreamError | None:
        return self._inner.error

    @error.setter
    def error(self, value: UpstreamError | None) -> None:
        self._inner.error = value

    @property
    def ended(self) -> bool:
        return self._inner.ended

    def feed(self, block: bytes) -> bytes:
        if self._reframed is None:
            out = self._inner.feed(block)
        else:
            out = self._inner.feed(self._reframed.feed(block))
            self._note_unfit()
        if out and (self._dialect != "responses" or b'"sequence_number"' in out):
            self._sent = out
        if not self.begun and out:
            self.begun = answers(out, self._opening)
        return out

    def close(self) -> bytes:
        out = self._inner.feed(rest) if self._reframed is not None and (rest := self._reframed.finish()) else b""
        self._note_unfit()
        out += self._inner.close()
        if out:
            self._sent = out
            self.begun = self.begun or answers(out, self._opening)
        if self.error is None and not self._has_content():
            self.error = AnswerLost(ENDED_EARLY)
        return out

    def _has_content(self) -> bool:
        """Whether an ended answer has content or a stop reason; without both it counts as broken off."""
        raise NotImplementedError

    def _ending(self) -> Tap | None:
        """What the mapping reads in the answer's end; None where the end cannot report a failure."""
        raise NotImplementedError

    def reported_error(self) -> UpstreamError | None:
        """The failure that the answer's own end reports. The client gets that end unchanged, unless another route can
        still be tried."""
        tap = self._ending()
        if tap is None or tap.error is None and tap.stop != "error":
            return None
        return reported_failure(self._offer, tap.error)

    def _note_unfit(self) -> None:
        """Fail the answer at an event that the provider file's edits could not be applied to."""
        unfit = self._reframed.unfit if self._reframed is not None else None
        if unfit is not None and self.error is None:
            self.error = unfit_answer(self._offer, unfit)

    async def estimate(self) -> dict[str, Any]:
        inner = self._inner
        return await estimate_usage(
            self._exchange, texts_of_events(self._exchange, inner.received()), scale=inner.kept.scale
        )

    def failure(self, error: TollgateError) -> bytes:
        return self._apart() + stream_error_events(self._dialect, error)

    def encrypted(self) -> Collection[str]:
        return ()

    def _apart(self) -> bytes:
        """The blank line that must come before an event of our own, if what was sent does not end in one."""
        return b"" if not self._sent or self._sent.endswith(BLANK) else b"\n\n"
