"""What a stream says before its answer: events that its format calls opening (`stream.opening` of its mapping)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tollgate.completions.native import parsed_event
from tollgate.mapping import Context
from tollgate.sse import Decoder

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer

Opening = Callable[..., Any] | None
"""`Mapping.opening`; None where every event is of the answer."""


def opening_of(exchange: Exchange, offer: Offer) -> Opening:
    """The condition for a route's events. The last route's pass as they come: nobody else could answer."""
    return offer.mapping.opening if exchange.has_other_route() else None


def is_opening(event: Any, opening: Opening) -> bool:
    """Whether an event says nothing of the answer yet."""
    return opening is not None and type(event) is dict and bool(opening(event, Context()))


def answers(block: bytes, opening: Opening) -> bool:
    """Whether these bytes of an event stream hold something of the answer: an event that is no opening one. They hold
    whole events; comments are none."""
    if opening is None:
        return b"data" in block
    decoder, at = Decoder(), 0
    while at < len(block):  # one by one: most of what comes with the first word is not looked at
        end = block.find(b"\n\n", at) + 2
        if end < 2:
            end = len(block)
        for event in decoder.feed(block[at:end]):
            if event.data and not is_opening(parsed_event(event.data), opening):
                return True
        at = end
    return False
