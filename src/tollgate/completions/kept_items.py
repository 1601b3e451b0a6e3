"""What a converted answer told a responses client: kept when it is answered, put where a later request refers to it
(`tollgate.remembered.told_items` says why)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.completions.state_ids import is_reference

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.mapping import Out
    from tollgate.services import Inbound, Services


def keep_items(exchange: Exchange, answer: dict[str, Any]) -> None:
    """Remember the items of a built answer and the conversation it ends, unless its client keeps them itself."""
    if _refers(exchange):
        account, known, told = exchange.inbound.key.account_id, exchange.services.told_items, answer.get("output") or []
        known.keep(account, told)
        if isinstance(answer.get("id"), str) and not answer.get("error"):
            known.keep_conversation(account, answer["id"], [*_items_of(exchange.body.get("input")), *told])


def keep_streamed_items(exchange: Exchange, ending: Sequence[Out]) -> None:
    """The same of a stream, whose last event has them all."""
    if ending and _refers(exchange):
        event = ending[-1][1]
        told = orjson.loads(event) if isinstance(event, bytes | str) else event
        keep_items(exchange, told.get("response") or {})


def _refers(exchange: Exchange) -> bool:
    """Whether the client will take the answer for stored."""
    return exchange.inbound.dialect == "responses" and exchange.body.get("store") is not False


def _items_of(sent: Any) -> list[Any]:
    """The `input` of a request as a list."""
    return sent if isinstance(sent, list) else [{"role": "user", "content": sent}] if sent else []


def _answered(item: Any) -> str | None:
    """The call whose result an item is."""
    call = item.get("call_id") if isinstance(item, dict) and str(item.get("type")).endswith("_output") else None
    return call if isinstance(call, str) else None


async def put_in_items(services: Services, inbound: Inbound, body: dict[str, Any]) -> bool:
    """Put the items themselves into the client's bytes for references to what was told here, and before them all of the
    conversation that a `previous_response_id` from here stands for; False where there are none, and the bytes are as
    they were. Raises `Crowded` where there is no room for them."""
    large = is_large(inbound.body)
    made = await run_off_loop(_with_items, services, inbound, body) if large else _with_items(services, inbound, body)
    if made is None:
        return False
    if inbound.place is not None:
        await inbound.place.widen(len(made))
    inbound.body = made
    return True


def _with_items(services: Services, inbound: Inbound, body: dict[str, Any]) -> bytes | None:
    """The request, as JSON, with the items themselves for references to what was told here; None where it has no such.

    Each item is put in once: what refers to one again and again does not grow beyond what is remembered.
    """
    sent = _items_of(body.get("input"))
    if inbound.dialect != "responses":
        return None
    account, known = inbound.key.account_id, services.told_items
    previous = body.get("previous_response_id")
    earlier = known.conversation(account, previous) if isinstance(previous, str) else None
    if earlier is not None:
        body = {name: value for name, value in body.items() if name != "previous_response_id"}
    found: set[str] = set()
    items: list[Any] = [] if earlier is None else orjson.loads(earlier)
    answered = {call for item in items if (call := _answered(item)) is not None}
    for item in sent:
        if _answered(item) in answered:  # some clients send all results of a loop each time
            continue
        item_id = item.get("id") if isinstance(item, dict) and is_reference(item) else None
        told = None
        if isinstance(item_id, str) and item_id not in found and (told := known.find(account, item_id)) is not None:
            found.add(item_id)
        items.append(item if told is None else orjson.Fragment(told))
    return None if earlier is None and not found else orjson.dumps({**body, "input": items})
