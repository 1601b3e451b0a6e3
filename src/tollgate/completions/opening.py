"""Opening events: those at the start of a stream that hold nothing of the answer yet, as defined by `stream.opening` in
the format's mapping file. They are held back while another route may still be tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tollgate.completions.native import parsed_event
from tollgate.mapping import Context
from tollgate.sse import Decoder, is_end_mark

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer

Opening = Callable[..., Any] | None
"""`Mapping.opening`; None where every event is part of the answer."""


def opening_of(exchange: Exchange, offer: Offer) -> Opening:
    """The condition for a route's opening events. None for the last route, whose events are passed on at once."""
    return offer.mapping.opening if exchange.attempt.routes_left else None


def is_opening(event: Any, opening: Opening) -> bool:
    """Whether an event is an opening event."""
    return opening is not None and type(event) is dict and bool(opening(event, Context()))


def answers(block: bytes, opening: Opening) -> bool:
    """Whether `block`, which consists of whole events, has one that is neither a comment, an end mark nor an opening
    event."""
    if opening is None and b"[DONE]" not in block:
        return b"data" in block
    decoder, at = Decoder(), 0
    while at < len(block):  # one by one: usually the answer begins early in the block, and the rest need not be parsed
        end = block.find(b"\n\n", at) + 2
        if end < 2:
            end = len(block)
        for event in decoder.feed(block[at:end]):
            if event.data and not is_end_mark(event.data) and not is_opening(parsed_event(event.data), opening):
                return True
        at = end
    return False
