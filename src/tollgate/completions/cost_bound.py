"""The most a request can cost: what is held while it runs (DESIGN section 5).

Its length and its limit say most of it. What comes from elsewhere is not in its body and is foreseen here: pictures and
files by their address, a conversation the provider keeps, what tools that the provider runs find and what they cost.
Nobody knows how much that will be, so it is a plausible most: who has little left gets such requests one after another
instead of all at once.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tollgate.completions.estimate import own_tokens
from tollgate.completions.needs import MEDIA_BYTES
from tollgate.tariff import upper_bound
from tollgate.tokenizer.texts import count_pictures
from tollgate.tokens import estimate
from tollgate.wire import CLIENT_FORMATS

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Needs, Offer

_DEFAULT_OUTPUT = 4096
"""Tokens an answer may have when neither the caller nor the catalog bounds it."""
_PICTURE = 5_000
"""Tokens of a picture by its address: some more than the largest in full detail at most providers."""
_ELSEWHERE = estimate(MEDIA_BYTES)
"""Tokens of films, of files by address, of a conversation kept elsewhere, of what tools read: as much as of files that
are sent along."""
_SEARCHES = 10
"""Searches of a request that names no limit of them."""
_READERS = re.compile(r"(?<!tool_)search|fetch|mcp|code|browser|advisor")
"""Hosted tools that bring text into the prompt, or have another model read it, by their type. Those that find further
tools bring none that is not declared."""
_ADDRESSES = {
    "chat": ('"url":"http', '"url": "http'),
    "responses": ('"image_url":"http', '"image_url": "http'),
    "messages": ('"type":"url"', '"type": "url"'),
}
"""How a picture by its address stands in a body of the format."""
_KEPT = frozenset({"previous_response_id", "conversation", "thread", "prompt"})
"""Members that name what the provider has of the conversation."""


def most_it_costs(exchange: Exchange, offer: Offer, needs: Needs, outline: str) -> Decimal:
    """USD to hold for a request with these needs and this outline (`body.py`), as `offer` is priced."""
    dialect, body, tariff = exchange.inbound.dialect, exchange.body, offer.tariff
    most = 0
    for name in CLIENT_FORMATS[dialect].limit_fields:
        limit = body.get(name)
        if isinstance(limit, int) and limit > most:
            most = limit
    most = most or offer.model.max_output or _DEFAULT_OUTPUT
    several = body.get("n")
    if isinstance(several, int) and several > 1:
        most *= several
    searches = 1 if offer.can.get("always_searches") else _searches(body, needs)
    tokens = own_tokens(needs.prompt_tokens, offer.can)
    unseen = _unseen(dialect, body, needs, outline, tools=searches > 0)
    if unseen:
        tokens += min(unseen, max(0, offer.model.context - tokens)) if offer.model.context else unseen
    images = count_pictures(dialect, body) if needs.images and tariff is not None and tariff.of_pictures else 0
    words = (
        [value for value in body.values() if isinstance(value, str)]
        if tariff is not None and tariff.pricing.multipliers
        else ()
    )
    return upper_bound(
        tokens,
        most,
        tariff,
        exchange.rates,
        service_tier=exchange.asked_tier(),
        hour_cache='"1h"' in outline,
        multipliers=words,
        searches=searches,
        images=images,
    )


def _unseen(dialect: str, body: dict[str, Any], needs: Needs, outline: str, *, tools: bool) -> int:
    """Tokens the prompt may have beside those of the body."""
    elsewhere = tools or dialect == "chat" and '"video_url"' in outline
    if not body.keys().isdisjoint(_KEPT):
        elsewhere = elsewhere or any(body.get(name) is not None for name in _KEPT)
    pictures = 0
    if needs.images:
        for mark in _ADDRESSES[dialect]:
            pictures += outline.count(mark)
    if not elsewhere and (
        needs.files and '"http' in outline or needs.native and not needs.images and '"file_id"' in outline
    ):
        elsewhere = True
    return pictures * _PICTURE + (_ELSEWHERE if elsewhere else 0)


def _searches(body: dict[str, Any], needs: Needs) -> int:
    """How often tools that the provider runs may search, if it runs any: {"tools": [{"type": "web_search_20250305",
    "max_uses": 3}]} -> 3"""
    declared = body.get("tools") if needs.prefer_native else None  # it is set wherever there are hosted tools
    readers = (
        [tool for tool in declared if isinstance(tool, dict) and _reads(tool.get("type"))]
        if isinstance(declared, list)
        else []
    )
    if not readers and body.get("web_search_options") is None and not body.get("plugins"):
        return 0
    limits = [
        limit
        for tool in readers
        if type(limit := tool.get("max_uses", body.get("max_tool_calls"))) is int and limit > 0
    ]
    return sum(limits) if readers and len(limits) == len(readers) else _SEARCHES


def _reads(kind: Any) -> bool:
    return isinstance(kind, str) and kind not in ("function", "custom") and _READERS.search(kind) is not None
