"""What a converted answer told a responses client: kept when it is answered, put where a later request refers to it
(`tollgate.told_items` says why)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.state_ids import is_reference

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.mapping import Out
    from tollgate.services import Inbound, Services


def keep_items(exchange: Exchange, answer: dict[str, Any]) -> None:
    """Remember the items of a built answer, unless its client keeps them itself."""
    if _refers(exchange):
        exchange.services.told_items.keep(exchange.inbound.key.account_id, answer.get("output") or ())


def keep_streamed_items(exchange: Exchange, ending: Sequence[Out]) -> None:
    """The same of a stream, whose last event has them all."""
    if ending and _refers(exchange):
        event = ending[-1][1]
        told = orjson.loads(event) if isinstance(event, bytes | str) else event
        keep_items(exchange, told.get("response") or {})


def _refers(exchange: Exchange) -> bool:
    """Whether the client will take the answer for stored."""
    return exchange.inbound.dialect == "responses" and exchange.body.get("store") is not False


def with_items(services: Services, inbound: Inbound, body: dict[str, Any]) -> dict[str, Any] | None:
    """The request with the items themselves for references to what was told here; None where it has no such.

    Each item is put in once: what refers to one again and again does not grow beyond what is remembered.
    """
    sent = body.get("input")
    if inbound.dialect != "responses" or not isinstance(sent, list):
        return None
    account, known = inbound.key.account_id, services.told_items
    found: dict[str, dict[str, Any]] = {}
    items = []
    for item in sent:
        item_id = item.get("id") if isinstance(item, dict) and is_reference(item) else None
        told = None
        if isinstance(item_id, str) and item_id not in found and (told := known.find(account, item_id)) is not None:
            found[item_id] = told
        items.append(told or item)
    return {**body, "input": items} if found else None
