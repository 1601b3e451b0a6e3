"""State stored at a provider: who may refer to it, and which provider has it.

A request that refers to state goes to the provider that created it, and only if the same account was given the id; any
other id is "not found", in the format of that API. Nobody reads another account's conversation.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tollgate.completions.minters import remember_minter
from tollgate.completions.state_ids import ITEM, PREVIOUS, THREAD
from tollgate.errors import BadRequest, NotFound
from tollgate.services import Inbound, Services

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer

_NOT_STORED = {
    field: f" Converted answers are only remembered for a while: set `store` to false and send the {what}."
    for field, what in ((ITEM, "item itself"), (PREVIOUS, "whole conversation"))
}
"""Clients refer to earlier answers unless they ask for `store: false`, even if the answer said that it was not stored
(`tollgate.remembered.answer_items`)."""
_NOT_KEPT = " Files and vector stores cannot be created here: send their content in the request itself."
_NEVER_MINTED = ("file_id", "vector_store_id")


async def check_looked_up(services: Services, inbound: Inbound, looked_up: list[tuple[str, list[str]]]) -> None:
    """Refuse ids (of `looked_up_ids`) that were given to another account. Raises `StateNotFound`. Unknown ids pass,
    since clients also send conversations that they had elsewhere."""
    for field, ids in looked_up:
        if ids and (foreign := await services.minted.foreign(inbound.key.account_id, ids)) is not None:
            raise StateNotFound(field, foreign)


async def provider_for(services: Services, inbound: Inbound, references: list[tuple[str, str]]) -> str | None:
    """The provider that has the state of all references; None without references. Raises `NotFound` naming the first id
    that this account was not given, or that belongs to another provider."""
    provider: str | None = None
    for field, minted_id in references:
        owner = await services.minted.provider_of(inbound.key.account_id, minted_id)
        if owner is None or (provider is not None and owner != provider):
            raise StateNotFound(field, minted_id)
        provider = owner
    return provider


async def remember_state(exchange: Exchange, offer: Offer, ids: list[str], encrypted: Collection[str]) -> None:
    """Remember for the caller's account the ids of provider state in a native answer, and its encrypted values, which
    only that provider can read."""
    if ids:
        await exchange.services.minted.remember(exchange.inbound.key.account_id, offer.provider, ids)
    if encrypted:
        await remember_minter(exchange.services, exchange.inbound, offer, encrypted)


class ThreadUnsupported(BadRequest):
    """A `thread` for a model whose provider stores none. This code makes the official clients send the whole
    conversation instead."""

    code = "thread_unsupported_request"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"thread: no provider of {model[:200]} stores conversations; send the full conversation without thread",
            "thread",
        )


class StateNotFound(NotFound):
    """A state id that this account was not given, or that belongs to a provider which does not serve the model (DESIGN
    section 4); `param` names the field, `cure` says what to do instead."""

    def __init__(self, field: str, minted_id: str, cure: str = "") -> None:
        what = (
            "Previous response"
            if field == PREVIOUS
            else field.removesuffix(".id").rpartition(".")[2].removesuffix("_id").replace("_", " ").capitalize()
        )
        cure = cure or _NOT_STORED.get(field) or (_NOT_KEPT if field.endswith(_NEVER_MINTED) else "")
        super().__init__(f"{what} with id '{minted_id[:100]}' not found.{cure}")
        self.param = field
        if field == PREVIOUS:
            self.code = "previous_response_not_found"
        elif field == THREAD:
            self.code = "thread_not_found"
