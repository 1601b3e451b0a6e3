"""What a converted answer told a responses client: kept when it is answered, put where a later request refers to it
(`tollgate.remembered.told_items` says why)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tollgate.completions.body import write_json
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.completions.state_ids import ITEM, PREVIOUS, is_reference

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.config.model import Server
    from tollgate.mapping import Out
    from tollgate.remembered.told_items import ToldItems
    from tollgate.services import Inbound, Services


def keep_items(exchange: Exchange, answer: dict[str, Any]) -> None:
    """Remember the items of a built answer and the conversation it ends, unless its client keeps them itself."""
    if _refers(exchange):
        account, known, told = exchange.inbound.key.account_id, exchange.services.told_items, answer.get("output") or []
        known.keep(account, told)
        if isinstance(answer.get("id"), str) and not answer.get("error"):
            conversation = [*_items_of(exchange.body.get("input")), *told]
            known.keep_conversation(account, answer["id"], conversation, exchange.size)


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


class _Told(NamedTuple):
    """What references stand for, as JSON."""

    conversation: bytes | None
    items: dict[str, bytes]

    def size(self) -> int:
        return len(self.conversation or b"") + sum(map(len, self.items.values()))


async def put_in_items(
    services: Services, inbound: Inbound, body: dict[str, Any], references: list[tuple[str, str]]
) -> dict[str, Any] | None:
    """The body with the items themselves for those of its `references` to what was told here, and before them all of
    the conversation that a `previous_response_id` from here stands for; None where there are none. The client's bytes
    are then those of this body. Raises `Crowded` where there is no room for them, `BadRequest` where they are more than
    a request may hold."""
    told = _find(services.told_items, inbound.key.account_id, references)
    if told.conversation is None and not told.items:
        return None
    server = services.runtime.current.gateway.server
    large = is_large(len(inbound.body) + told.size())
    made, raw = await run_off_loop(_with_items, body, told, server) if large else _with_items(body, told, server)
    if inbound.place is not None:
        await inbound.place.widen(len(raw))
    inbound.body = raw
    return made


def _find(known: ToldItems, account: str, references: list[tuple[str, str]]) -> _Told:
    conversation: bytes | None = None
    items: dict[str, bytes] = {}
    for field, named in references:
        if field == PREVIOUS:
            conversation = known.conversation(account, named)
        elif field == ITEM and (item := known.find(account, named)) is not None:
            items[named] = item
    return _Told(conversation, items)


def _with_items(body: dict[str, Any], told: _Told, server: Server) -> tuple[dict[str, Any], bytes]:
    """The body with what was told in its input, and as JSON.

    Each item is put in once: what refers to one again and again does not grow beyond what is remembered.
    """
    items: list[Any] = orjson.loads(told.conversation) if told.conversation is not None else []
    answered = {call for item in items if (call := _answered(item)) is not None}
    waiting = dict(told.items)
    for item in _items_of(body.get("input")):
        if _answered(item) in answered:  # some clients send all results of a loop each time
            continue
        item_id = item.get("id") if isinstance(item, dict) and is_reference(item) else None
        known = waiting.pop(item_id, None) if isinstance(item_id, str) else None
        items.append(item if known is None else orjson.loads(known))
    made = {**body, "input": items}
    if told.conversation is not None:
        del made[PREVIOUS]
    return made, write_json(made, server)
