"""Signed reasoning of converted answers with tool calls: remembered, and restored in the request that brings the tools'
results (`tollgate.remembered.thoughts` says why)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.remembered.thoughts import Maker
    from tollgate.routing import Offer


def keep_thoughts(exchange: Exchange, offer: Offer, parts: Sequence[dict[str, Any]]) -> None:
    """Remember the signed reasoning in the hub `parts` of a converted answer."""
    if not parts:
        return
    exchange.services.thoughts.keep(exchange.inbound.key.account_id, _maker(offer), parts)


def with_thoughts(exchange: Exchange, offer: Offer, hub: dict[str, Any]) -> dict[str, Any]:
    """The hub request with the reasoning of this route's model that the client did not send back."""
    turns = exchange.services.thoughts.restored(exchange.inbound.key.account_id, _maker(offer), hub)
    return hub if turns is None else {**hub, "turns": turns}


def _maker(offer: Offer) -> Maker:
    return offer.mapping.name, offer.minter, offer.model.upstream
