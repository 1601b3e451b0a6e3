"""The client's request: its body, parsed and checked, and what it requires of a route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tollgate.completions.body import check_fields, outline_of, read_json
from tollgate.completions.kept_items import put_in_items
from tollgate.completions.needs import needs_of
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.completions.state_ids import PREVIOUS, looked_up_ids, referenced_ids

if TYPE_CHECKING:
    from tollgate.config.settings import Server
    from tollgate.routing import Needs
    from tollgate.services import Inbound, Services


@dataclass(slots=True, eq=False)
class CompletionRequest:
    """A chat, responses or messages request."""

    body: dict[str, Any]
    outline: str
    """The body without its plain text (`body.outline_of`)."""
    needs: Needs
    references: list[tuple[str, str]]
    """Ids of provider state that it continues from (`referenced_ids`)."""
    looked_up: list[tuple[str, list[str]]]
    """Ids of stored objects that a provider would look up for it (`looked_up_ids`)."""
    continues: str | None = None
    """The `previous_response_id` in place of which the body has the conversation that it stands for."""


async def read_request(services: Services, inbound: Inbound) -> CompletionRequest:
    """Parse and check the request. Ids that refer to items this gateway remembers are replaced by the items
    (`kept_items.py`). Raises `RequestError`."""
    server = services.runtime.current.gateway.server
    request = await run_off_loop(_read, inbound, server) if is_large(len(inbound.body)) else _read(inbound, server)
    if request.references:
        made = await put_in_items(services, inbound, request.body, request.references)
        if made is not None:
            large, named = is_large(len(inbound.body)), request.body.get(PREVIOUS)
            request = await run_off_loop(_read, inbound, server, made) if large else _read(inbound, server, made)
            request.continues = named if PREVIOUS not in made else None
        if request.references:
            request.needs.native = True
    return request


def _read(inbound: Inbound, server: Server, made: dict[str, Any] | None = None) -> CompletionRequest:
    """Parse the client's bytes; `made` is the body where this gateway wrote those bytes itself."""
    dialect, raw = inbound.dialect, inbound.body
    if made is None:
        body, outline = read_json(raw, server)
        check_fields(dialect, body)
    else:
        body, outline = made, outline_of(raw, made, server)
    return CompletionRequest(
        body,
        outline,
        needs_of(dialect, body, outline, len(raw)),
        referenced_ids(dialect, body, outline),
        looked_up_ids(dialect, body, outline),
    )
