"""Downloading the URLs in a request for upstreams that need the bytes inline."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tollgate.completions.off_loop import run_off_loop
from tollgate.errors import BadRequest
from tollgate.fetch import fetch_inline
from tollgate.process.concurrency import few_at_once

if TYPE_CHECKING:
    from tollgate.config.settings import Fetch
    from tollgate.mapping import Context

AT_ONCE = 4
"""Downloads at the same time: each may use `fetch.max_bytes` of memory before the sum is checked."""
MAX_URLS = 16
"""Most URLs in a request: more pictures than any provider takes, and few enough to download at once."""


async def with_bytes(make: Callable[[], Any], context: Context, settings: Fetch, *, long: bool = False) -> Any:
    """What `make`, a conversion or edits in this context, returns once the URLs are downloaded whose bytes it needs
    (filter `inline`), each once. What it loses or refuses without them does not count. With `long` it runs in a thread.

    Raises `BadRequest` when `make` refuses, or when URLs may not or cannot be fetched, are too many or too large.
    """
    lost = list(context.lost)
    while True:
        if context.wanted:
            if len(context.inlined) + len(context.wanted) > MAX_URLS:
                raise BadRequest(
                    f"the request names more than {MAX_URLS} URLs whose content this model needs inline",
                    code="url_not_fetched",
                )
            await _fetch_all(list(dict.fromkeys(context.wanted)), context, settings)
            context.wanted.clear()
            context.lost[:] = lost  # forget what the attempt without the bytes noted
        refused: BadRequest | None = None
        made: Any = {}
        try:
            made = await run_off_loop(make) if long else make()
        except BadRequest as error:
            refused = error
        if not context.wanted:
            if refused is not None:
                raise refused
            return made


async def _fetch_all(urls: list[str], context: Context, settings: Fetch) -> None:
    """Download into `context.inlined`, a few at a time. The first failure, or a sum that is too large, with what was
    downloaded before, cancels the rest.
    """
    total = sum(len(each["data"]) for each in context.inlined.values()) * 3 // 4

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
