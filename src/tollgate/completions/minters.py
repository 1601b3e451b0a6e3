"""Who encrypted the state that a responses conversation carries along: reasoning, and a past that was compacted.

Only the service that encrypted an item can read it; any other of the same format answers 400 to it, and a native answer
passes as it came, so nothing marks whose it is. The register of minted ids therefore remembers it (where providers of
more than one such service are configured): when a conversation goes on elsewhere, after a failover or because its
client chose another model, reasoning that cannot be read there is left out, as in a converted request. A compacted past
cannot be left out: it goes to those who can read it. What a client was handed elsewhere nobody here knows; it is sent
as it is, and left out once a provider has said that it cannot read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tollgate.errors import BadRequest, UpstreamError, UpstreamRejected
from tollgate.mapping.seal import unseal
from tollgate.routing import Offer
from tollgate.services import Inbound, Services

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange

DIALECT = "responses"
FIELD = "encrypted_content"
_MARK = f'"{FIELD}"'
COMPACTION = "compaction"
NOBODY: Mapping[str, str] = {}
_ELSEWHERE = "\0"
"""Stands for who encrypted that; nobody's `Offer.minter`."""


def encrypted_in(items: Any) -> dict[str, str]:
    """The encrypted texts in these items of a request or an answer, each with the type of its item. Sealed tokens are
    left out: they say themselves whose they are."""
    return {
        content: str(item.get("type"))
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and isinstance(content := item.get(FIELD), str) and content and not unseal(content)
    }


async def minters_of(services: Services, inbound: Inbound, body: dict[str, Any], outline: str) -> Mapping[str, str]:
    """Who encrypted what a request with this outline carries, as far as this account got it here: the minter's name
    (`Offer.minter`) by the encrypted text."""
    if inbound.dialect != DIALECT or _MARK not in outline:
        return NOBODY
    found = encrypted_in(body.get("input"))
    return await services.minted.minters_of(inbound.key.account_id, found) if found else NOBODY


async def remember_minter(services: Services, inbound: Inbound, offer: Offer, encrypted: Iterable[str]) -> None:
    """Note that this offer encrypted this for the caller's account."""
    if inbound.dialect == DIALECT and services.runtime.current.several_minters and (texts := list(encrypted)):
        await services.minted.remember_minter(inbound.key.account_id, offer.minter, texts)


def unreadable(minters: Mapping[str, str], offer: Offer) -> frozenset[str]:
    """What of it this offer cannot read."""
    return frozenset(content for content, minter in minters.items() if minter != offer.minter)


def readers(offers: list[Offer], minters: Mapping[str, str], body: dict[str, Any]) -> list[Offer]:
    """Those offers that can read the compacted past which a request carries; all, where it carries none. Raises
    `BadRequest` when there are offers and none of them can."""
    compacted = {text for text, kind in encrypted_in(body.get("input")).items() if kind == COMPACTION}
    able = [offer for offer in offers if compacted.isdisjoint(unreadable(minters, offer))]
    if offers and not able:
        raise BadRequest(
            f"input holds a compaction item that no provider of {body['model']} can read: another one made it",
            param="input",
        )
    return able


def goes_without_unreadable(exchange: Exchange, error: UpstreamError) -> bool:
    """Whether a native request that failed with `error` should be sent once more without its encrypted reasoning,
    because the provider could not read it; the exchange then knows what to leave out. Without this the conversation
    would fail for ever: its client sends the same reasoning each time."""
    if not isinstance(error, UpstreamRejected) or not exchange.attempt.native or exchange.inbound.dialect != DIALECT:
        return False
    if not _says_unreadable(exchange.attempt.offer, error):
        return False
    found = encrypted_in(exchange.body.get("input"))
    unread = {text: _ELSEWHERE for text, kind in found.items() if kind == "reasoning"}
    if not unread or all(exchange.minters.get(text) == _ELSEWHERE for text in unread):
        return False
    exchange.minters = {**exchange.minters, **unread}
    return True


def _says_unreadable(offer: Offer | None, error: UpstreamRejected) -> bool:
    """Whether a provider says, as `error.unreadable` of its format lists it, that it cannot read what was encrypted."""
    code, said = (error.upstream_code or "").lower(), error.message.lower()
    return offer is not None and any(word == code or word in said for word in offer.mapping.unreadable)
