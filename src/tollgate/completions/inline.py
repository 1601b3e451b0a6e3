"""URLs become bytes where the upstream cannot fetch: the guarded download, between the two hops of a conversion."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tollgate.completions.off_loop import run_off_loop
from tollgate.errors import BadRequest
from tollgate.fetch import fetch_inline
from tollgate.mapping import request_from_hub
from tollgate.process.outlived import few_at_once

if TYPE_CHECKING:
    from tollgate.config.model import Fetch
    from tollgate.mapping import Context, Mapping

AT_ONCE = 4
"""Downloads at the same time: each may take `fetch.max_bytes` of memory before their sum is known."""
MAX_URLS = 16
"""More pictures than any provider takes from URLs in one request, few enough to fetch at once."""


async def request_with_bytes(
    mapping: Mapping, hub: dict[str, Any], context: Context, settings: Fetch, *, long: bool = False
) -> Any:
    """The upstream's request. URLs whose bytes the mapping asks for (its `inline` filter) are fetched, each once. A
    `long` one is converted beside the event loop.

    Raises `BadRequest` when the mapping refuses, or when URLs may not or cannot be fetched, are too many or too large.
    """
    lost = list(context.lost)
    total = 0
    while True:
        refused: BadRequest | None = None
        made: Any = {}
        try:
            made = (
                await run_off_loop(request_from_hub, mapping, hub, context)
                if long
                else request_from_hub(mapping, hub, context)
            )
        except BadRequest as error:
            refused = error
        if not context.wanted:
            if refused is not None:
                raise refused
            return made
        if len(context.inlined) + len(context.wanted) > MAX_URLS:
            raise BadRequest(
                f"the request names more than {MAX_URLS} URLs whose content this model needs inline",
                code="url_not_fetched",
            )
        total = await _fetch_all(list(dict.fromkeys(context.wanted)), context, settings, total)
        context.lost[:] = lost  # what was lost without the bytes


async def _fetch_all(urls: list[str], context: Context, settings: Fetch, total: int) -> int:
    """Fetch into `context.inlined`, a few at a time; the first that fails, or makes the sum too large, ends the others.

    `total` bytes came before; gives the new sum.
    """

    async def fetch(url: str) -> None:
        nonlocal total
        mime, data = await fetch_inline(url, settings)
        total += len(data)
        if total > settings.max_bytes:
            raise BadRequest(
                f"the URLs of the request hold more than {settings.max_bytes} bytes together", code="url_not_fetched"
            )
        context.inlined[url] = {"mime": mime, "data": base64.b64encode(data).decode()}

    await few_at_once(AT_ONCE, fetch, urls)
    return total
