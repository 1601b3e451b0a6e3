"""Events at the start of a stream that say no more than that an answer will come; which ones these are says
`stream.opening` of the format's mapping file. They are held back while another route could still answer."""

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
"""`Mapping.opening`; None where every event is part of the answer."""


def opening_of(exchange: Exchange, offer: Offer) -> Opening:
    """The condition for a route's events. None for the last route, whose events pass as they come, since nobody else
    could answer."""
    return offer.mapping.opening if exchange.attempt.routes_left else None


def is_opening(event: Any, opening: Opening) -> bool:
    """Whether an event holds nothing of the answer yet."""
    return opening is not None and type(event) is dict and bool(opening(event, Context()))


def answers(block: bytes, opening: Opening) -> bool:
    """Whether these bytes, which are whole events of a stream, hold something of the answer: an event that is neither a
    comment nor an opening one."""
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
