"""Items of converted answers, remembered for responses clients that refer to them in a later request
(`tollgate.remembered.answer_items` says why)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tollgate.completions.body import write_json
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.completions.state_ids import ITEM, PREVIOUS, is_reference

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.config.settings import Server
    from tollgate.mapping import Out
    from tollgate.remembered.answer_items import AnswerItems
    from tollgate.services import Inbound, Services


def keep_items(exchange: Exchange, answer: dict[str, Any]) -> None:
    """Remember the items of a converted answer and the conversation so far, unless the client stores them itself."""
    if _refers(exchange):
        account, memory, items = exchange.inbound.key.account_id, exchange.services.answer_items, answer.get("output")
        memory.keep(account, items or ())
        if isinstance(answer.get("id"), str) and not answer.get("error"):
            conversation = [*_items_of(exchange.body.get("input")), *(items or ())]
            memory.keep_conversation(account, answer["id"], conversation, exchange.size)


def keep_streamed_items(exchange: Exchange, ending: Sequence[Out]) -> None:
    """`keep_items` for a stream, whose last event holds the whole answer."""
    if ending and _refers(exchange):
        event = ending[-1][1]
        last = orjson.loads(event) if isinstance(event, bytes | str) else event
        keep_items(exchange, last.get("response") or {})


def _refers(exchange: Exchange) -> bool:
    """Whether the client will expect the answer to be stored."""
    return exchange.inbound.dialect == "responses" and exchange.body.get("store") is not False


def _items_of(sent: Any) -> list[Any]:
    """The `input` of a request as a list."""
    return sent if isinstance(sent, list) else [{"role": "user", "content": sent}] if sent else []


def _answered(item: Any) -> str | None:
    """The id of the tool call whose result this item is."""
    call = item.get("call_id") if isinstance(item, dict) and str(item.get("type")).endswith("_output") else None
    return call if isinstance(call, str) else None


class _Referred(NamedTuple):
    """What the references of a request stand for, as JSON."""

    conversation: bytes | None
    items: dict[str, bytes]

    def size(self) -> int:
        return len(self.conversation or b"") + sum(map(len, self.items.values()))


async def put_in_items(
    services: Services, inbound: Inbound, body: dict[str, Any], references: list[tuple[str, str]]
) -> dict[str, Any] | None:
    """The body with its `references` replaced by the remembered items, after the conversation that a remembered
    `previous_response_id` stands for; None if nothing is remembered for them. `inbound.body` is set to the new body's
    bytes. Raises `BodyMemoryFull` if there is no room for them, `BadRequest` if they exceed the limits of a request."""
    found = _find(services.answer_items, inbound.key.account_id, references)
    if found.conversation is None and not found.items:
        return None
    server = services.runtime.current.gateway.server
    large = is_large(len(inbound.body) + found.size())
    made, raw = await run_off_loop(_with_items, body, found, server) if large else _with_items(body, found, server)
    if inbound.place is not None:
        await inbound.place.widen(len(raw))
    inbound.body = raw
    return made


def _find(known: AnswerItems, account: str, references: list[tuple[str, str]]) -> _Referred:
    conversation: bytes | None = None
    items: dict[str, bytes] = {}
    for field, named in references:
        if field == PREVIOUS:
            conversation = known.conversation(account, named)
        elif field == ITEM and (item := known.find(account, named)) is not None:
            items[named] = item
    return _Referred(conversation, items)


def _with_items(body: dict[str, Any], found: _Referred, server: Server) -> tuple[dict[str, Any], bytes]:
    """The body with the remembered items in its input, and its bytes.

    Each item is inserted once, so that repeated references cannot blow up the body.
    """
    items: list[Any] = orjson.loads(found.conversation) if found.conversation is not None else []
    answered = {call for item in items if (call := _answered(item)) is not None}
    waiting = dict(found.items)
    for item in _items_of(body.get("input")):
        if _answered(item) in answered:  # some clients send all tool results of a loop again
            continue
        item_id = item.get("id") if isinstance(item, dict) and is_reference(item) else None
        known = waiting.pop(item_id, None) if isinstance(item_id, str) else None
        items.append(item if known is None else orjson.loads(known))
    made = {**body, "input": items}
    if found.conversation is not None:
        del made[PREVIOUS]
    return made, write_json(made, server)
