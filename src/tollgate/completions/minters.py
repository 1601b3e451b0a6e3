"""Which provider ("minter") encrypted the items of a responses conversation: reasoning, and compacted history.

Only the service that encrypted an item can read it; others of the same format answer 400. Native answers pass
unchanged, so the items do not show who made them. If providers of more than one such service are configured, the
register of minted ids remembers it. When a conversation continues at another provider, after a failover or with another
model, reasoning that cannot be read there is left out, as in a converted request. Compacted history cannot be left out:
such a request only goes to providers that can read it. For items from elsewhere the minter is unknown: they are sent,
and left out once a provider has answered that it cannot read them.
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
COMPACTION = {"compaction", "context_compaction", "compaction_summary"}
"""The item's type, that of Codex, and an older name."""
NOBODY: Mapping[str, str] = {}
_ELSEWHERE = "\0"
"""The minter of items that a provider could not read; no `Offer.minter` has this value."""


def encrypted_in(items: Any) -> dict[str, str]:
    """The encrypted texts in the items of a request or an answer, each with its item's type. Without sealed tokens,
    which name their provider themselves."""
    return {
        content: str(item.get("type"))
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and isinstance(content := item.get(FIELD), str) and content and not unseal(content)
    }


async def minters_of(services: Services, inbound: Inbound, body: dict[str, Any], outline: str) -> Mapping[str, str]:
    """The minter (`Offer.minter`) of each encrypted text in a request, as far as this account was given it here;
    `outline` is that of `body.outline_of`."""
    if inbound.dialect != DIALECT or _MARK not in outline:
        return NOBODY
    found = encrypted_in(body.get("input"))
    return await services.minted.minters_of(inbound.key.account_id, found) if found else NOBODY


async def remember_minter(services: Services, inbound: Inbound, offer: Offer, encrypted: Iterable[str]) -> None:
    """Remember for the caller's account that this offer made these encrypted texts."""
    if inbound.dialect == DIALECT and services.runtime.current.several_minters and (texts := list(encrypted)):
        await services.minted.remember_minter(inbound.key.account_id, offer.minter, texts)


def unreadable(minters: Mapping[str, str], offer: Offer) -> frozenset[str]:
    """The encrypted texts that this offer cannot read."""
    return frozenset(content for content, minter in minters.items() if minter != offer.minter)


def readers(offers: list[Offer], minters: Mapping[str, str], body: dict[str, Any]) -> list[Offer]:
    """The offers that can read the compacted history in a request; all offers if it has none. Raises `BadRequest` when
    there are offers but none can."""
    compacted = {text for text, kind in encrypted_in(body.get("input")).items() if kind in COMPACTION}
    able = [offer for offer in offers if compacted.isdisjoint(unreadable(minters, offer))]
    if offers and not able:
        raise BadRequest(
            f"input holds a compaction item that no provider of {body['model']} can read: another one made it",
            param="input",
        )
    return able


def goes_without_unreadable(exchange: Exchange, error: UpstreamError) -> bool:
    """Whether a native request that failed with `error` should be sent once more without its encrypted reasoning,
    because the provider could not read it; `exchange.minters` then marks what to leave out. Otherwise the conversation
    would fail for ever, since its client sends the same reasoning each time."""
    offer = exchange.attempt.offer
    if offer is None or not offer.protocol == exchange.inbound.dialect == DIALECT:
        return False
    if not isinstance(error, UpstreamRejected) or not _reports_unreadable(offer, error):
        return False
    found = encrypted_in(exchange.body.get("input"))
    unread = {text: _ELSEWHERE for text, kind in found.items() if kind == "reasoning"}
    if not unread or all(exchange.minters.get(text) == _ELSEWHERE for text in unread):
        return False
    exchange.minters = {**exchange.minters, **unread}
    return True


def _reports_unreadable(offer: Offer, error: UpstreamRejected) -> bool:
    """Whether the error means that encrypted content could not be read, by the words in the format's
    `error.unreadable`."""
    code, message = (error.upstream_code or "").lower(), error.message.lower()
    return any(word == code or word in message for word in offer.mapping.unreadable)
