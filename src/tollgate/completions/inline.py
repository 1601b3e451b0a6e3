"""URLs become bytes where the upstream cannot fetch: the guarded download, between the two hops of a conversion."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tollgate.errors import BadRequest
from tollgate.fetch import fetch_inline
from tollgate.mapping import request_from_hub

if TYPE_CHECKING:
    from tollgate.config.model import Fetch
    from tollgate.mapping import Context, Mapping
    from tollgate.routing import Offer


async def inline_urls(hub: dict[str, Any], offer: Offer, settings: Fetch) -> None:
    """Replace `url` by `mime` and `data` in the hub's images and files when the route says `can: {urls: false}`.

    Changes `hub` in place (it belongs to this request). Raises `BadRequest` when a URL may not or cannot be fetched.
    """
    if offer.can.get("urls") is not False:
        return
    for part in _media(hub):
        mime, data = await fetch_inline(part["url"], settings)
        part["mime"] = part.get("mime") or mime
        part["data"] = base64.b64encode(data).decode()
        del part["url"]


async def request_with_bytes(mapping: Mapping, hub: dict[str, Any], context: Context, settings: Fetch) -> dict[str, Any]:
    """The upstream's request. URLs whose bytes the mapping asks for (its `inline` filter) are fetched, each once.

    Raises `BadRequest` when the mapping refuses, or a URL may not or cannot be fetched.
    """
    lost = list(context.lost)
    while True:
        refused: BadRequest | None = None
        made: dict[str, Any] = {}
        try:
            made = request_from_hub(mapping, hub, context)
        except BadRequest as error:
            refused = error
        if not context.wanted:
            if refused is not None:
                raise refused
            return made
        for url in context.wanted:
            mime, data = await fetch_inline(url, settings)
            context.inlined[url] = {"mime": mime, "data": base64.b64encode(data).decode()}
        context.lost[:] = lost  # what was lost without the bytes


def _media(hub: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    waiting = [part for turn in hub.get("turns", ()) for part in turn.get("parts", ())]
    while waiting:
        part = waiting.pop()
        if part.get("kind") in ("image", "file", "audio") and part.get("url"):
            found.append(part)
        waiting.extend(part.get("parts", ()))
    return found
