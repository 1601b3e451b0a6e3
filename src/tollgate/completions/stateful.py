"""State that lives at a provider: who may refer to it, and which provider keeps it.

A request that refers to state goes to the provider that minted it, and only for the account that got the id; any
other id is "not found" in the words of that API. Nobody reads another account's conversation.
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
    field: f" What was converted for this format is remembered a while only: set `store` to false and send the {what}."
    for field, what in ((ITEM, "item itself"), (PREVIOUS, "whole conversation"))
}
"""Clients refer to what they were told unless they ask for `store: false`, also where the answer said that nothing was
stored (`tollgate.remembered.told_items`)."""


_NOT_KEPT = " Files and vector stores cannot be made here: send what they hold in the request itself."
_NEVER_MINTED = ("file_id", "vector_store_id")


async def check_looked_up(services: Services, inbound: Inbound, looked_up: list[tuple[str, list[str]]]) -> None:
    """Refuse what was handed to another account and is looked up by its id (`looked_up_ids`). Raises `StateNotFound`.
    Ids that nobody got here pass: clients bring along conversations they had elsewhere."""
    for field, ids in looked_up:
        if ids and (foreign := await services.minted.foreign(inbound.key.account_id, ids)) is not None:
            raise StateNotFound(field, foreign)


async def provider_for(services: Services, inbound: Inbound, references: list[tuple[str, str]]) -> str | None:
    """The one provider all references belong to, or None without references. Raises `NotFound` naming the first that
    this account was never handed, or that another provider keeps."""
    provider: str | None = None
    for field, minted_id in references:
        owner = await services.minted.provider_of(inbound.key.account_id, minted_id)
        if owner is None or (provider is not None and owner != provider):
            raise StateNotFound(field, minted_id)
        provider = owner
    return provider


async def remember_state(exchange: Exchange, offer: Offer, ids: list[str], encrypted: Collection[str]) -> None:
    """Note for the caller's account what a native answer handed out: ids under which the provider keeps something, and
    what only it can read."""
    if ids:
        await exchange.services.minted.remember(exchange.inbound.key.account_id, offer.provider, ids)
    if encrypted:
        await remember_minter(exchange.services, exchange.inbound, offer, encrypted)


class ThreadUnsupported(BadRequest):
    """A `thread` towards a model whose provider keeps none. The code makes the official clients send the whole
    conversation instead."""

    code = "thread_unsupported_request"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"thread: no provider of {model[:200]} keeps conversations; send the full conversation without thread",
            "thread",
        )


class StateNotFound(NotFound):
    """A state id that this account was never handed, or that the model in question cannot be asked about (DESIGN
    section 4); `param` names the field, `cure` says what else to do."""

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
