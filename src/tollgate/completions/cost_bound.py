"""The upper bound of a request's cost, which is held while it runs (DESIGN section 5).

Most of it follows from the request's length and its limit on output. Input that is not in the body is estimated here:
pictures and files given by URL, a conversation that the provider stores, what the provider's own tools read and cost.
Its real amount cannot be known, so the bound is a plausible one: an account with little credit left can then make such
requests one after another, but not all at once.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tollgate.charge import upper_bound
from tollgate.completions.estimate import own_tokens
from tollgate.completions.needs import MEDIA_BYTES
from tollgate.tokenizer.texts import count_pictures
from tollgate.tokens import estimate

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Needs, Offer

_DEFAULT_OUTPUT = 4096
"""Output tokens when neither the caller nor the catalog limits them."""
_PICTURE = 5_000
"""Tokens of a picture given by URL: slightly more than the largest picture has at most providers."""
_ELSEWHERE = estimate(MEDIA_BYTES)
"""Tokens of videos, of files given by URL, of a stored conversation, of what tools read: as many as of inline files."""
_SEARCHES = 10
"""Searches of a request that sets no limit on them."""
_READERS = re.compile(r"(?<!tool_)search|fetch|mcp|code|browser|advisor")
"""Types of hosted tools that add text to the prompt, or have another model read it. Tool search (`tool_search_...`)
adds only tools that the request declares anyway."""
_ADDRESSES = {
    "chat": ('"url":"http', '"url": "http'),
    "responses": ('"image_url":"http', '"image_url": "http'),
    "messages": ('"type":"url"', '"type": "url"'),
}
"""Substrings of bodies with a picture given by URL, by format."""
_KEPT = frozenset({"previous_response_id", "conversation", "thread", "prompt"})
"""Fields that refer to a part of the prompt which the provider stores."""


def most_it_costs(exchange: Exchange, offer: Offer, needs: Needs, outline: str) -> Decimal:
    """USD to hold for a request at the prices of `offer`; `outline` is that of `body.outline_of`."""
    dialect, body, tariff = exchange.inbound.dialect, exchange.body, offer.tariff
    most = exchange.most_output or offer.model.max_output or _DEFAULT_OUTPUT
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
        exchange.runtime.gateway.credits.rates,
        at=exchange.inbound.received_at,
        service_tier=exchange.asked_tier(),
        hour_cache='"1h"' in outline,
        multipliers=words,
        searches=searches,
        images=images,
    )


def _unseen(dialect: str, body: dict[str, Any], needs: Needs, outline: str, *, tools: bool) -> int:
    """Prompt tokens for input that is not in the body."""
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
    """How many searches the provider's own tools may make:
    {"tools": [{"type": "web_search_20250305", "max_uses": 3}]} -> 3"""
    declared = body.get("tools") if needs.prefer_native else None  # set whenever there are hosted tools
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
