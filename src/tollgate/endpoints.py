"""The table of endpoints by path: what each requires (key, credits, body), what it calls, and its error dialect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from tollgate import embeddings
from tollgate.auth import authenticate, authenticate_optional, permit
from tollgate.catalog import ANONYMOUS, access_of
from tollgate.completions import complete, count_tokens
from tollgate.errors import InternalError, ModelNotFound, TollgateError
from tollgate.http import Receive, Responder, Scope
from tollgate.images.catalog import image_listing
from tollgate.images.service import create_generation, get_generation, list_generations
from tollgate.listing_reply import listing_reply
from tollgate.monitoring import metrics_reply, ready_reply
from tollgate.public_errors import early_error_events, stream_error_events
from tollgate.replies import error_reply
from tollgate.request_body import read_body, require_json, unpacked
from tollgate.services import Inbound, Reply, Services

if TYPE_CHECKING:
    from tollgate.catalog import Access
    from tollgate.ledger import KeyRecord


@dataclass(slots=True)
class Request:
    """The input of an endpoint: the services, the raw request, and the variable part of its path (or "")."""

    services: Services
    scope: Scope
    headers: Mapping[str, str]
    receive: Receive
    responder: Responder
    request_id: str
    argument: str


@dataclass(frozen=True, slots=True)
class Route:
    """A path's methods, error dialect and endpoint. It is refused while the gateway drains, unless `while_draining`.
    With `as_written` no other spelling of the path reaches it, so that a proxy in front can block it."""

    name: str
    methods: tuple[str, ...]
    dialect: str
    endpoint: Callable[[Request], Awaitable[Reply]]
    while_draining: bool = False
    as_written: bool = False

    @property
    def allowed(self) -> str:
        """The value of its `Allow` header. HEAD is answered wherever GET is."""
        return ", ".join(self.methods).replace("GET", "GET, HEAD")


def failure(services: Services, dialect: str, error: TollgateError, request_id: str, responder: Responder) -> Reply:
    """The error reply; if a stream has already begun (if only with a keep-alive comment), its error events."""
    if not responder.started:
        most_wait = services.runtime.current.gateway.retry.max_retry_after_seconds
        return error_reply(dialect, error, request_id, most_wait=most_wait)
    if responder.answer_begun:
        # after a bug, what the stream knows of itself may be wrong
        own = b"" if isinstance(error, InternalError) else responder.error_events(error)
        events = own or stream_error_events(dialect, error)
    else:
        events = early_error_events(dialect, error, request_id)
    return Reply(200, [], events)  # the status was sent and cannot be changed any more


async def _inbound(request: Request, dialect: str, limit: int, *, spends: bool = True) -> Inbound:
    """Check the key and its credits, then read the body: no body is read without a valid key (SPEC authentication 3
    and 4). With `spends` false, the key's spend cap, its limit on concurrent requests and the amounts on hold do not
    apply."""
    services = request.services
    key = authenticate(services.ledger, request.headers)
    endpoint = "messages" if dialect == "count_tokens" else dialect
    if key.restricted:
        _restrict(request, key, endpoint, slot=spends)
    services.ledger.require_ready()
    if spends:
        services.ledger.require_credits(key)
    else:
        services.ledger.require_balance(key.account_id)
    require_json(request.headers)
    place = request.responder.place = services.room.place()
    body = await read_body(request.receive, request.headers, limit, place)
    if "content-encoding" in request.headers:
        body = await unpacked(body, request.headers, limit, place)
    if not services.ledger.is_current(key):  # a body may take minutes: a key that was revoked meanwhile is refused
        key = authenticate(services.ledger, request.headers)
        if key.restricted:
            _restrict(request, key, endpoint, slot=spends and request.responder.slot is None)
    request.responder.watch_client(request.scope)
    query = request.scope.get("query_string", b"").decode("latin-1")
    return Inbound(dialect, key, body, request.headers, request.request_id, query, place)


def _restrict(request: Request, key: KeyRecord, endpoint: str = "", *, slot: bool = False) -> None:
    """Check the limits of a restricted key (`auth.permit`). With `slot` the request also takes one of the key's slots
    for concurrent requests until it ends. Missing credits are reported first: retrying for a slot would not help."""
    services = request.services
    permit(key, endpoint, request.scope, services.runtime.current.gateway.server.trusted_proxies)
    if slot and key.max_concurrent is not None:
        services.ledger.require_credits(key)
        request.responder.slot = services.ledger.occupy(key)


def _completion(dialect: str) -> Callable[[Request], Awaitable[Reply]]:
    async def endpoint(request: Request) -> Reply:
        server = request.services.runtime.current.gateway.server
        inbound = await _inbound(request, dialect, server.max_body_bytes)
        responder = request.responder
        return await complete(
            request.services,
            inbound,
            streaming=lambda: responder.keep_alive(server.keepalive_comment_seconds),
            status_sent=responder.status_sent,
        )

    return endpoint


async def _count_tokens(request: Request) -> Reply:
    limit = request.services.runtime.current.gateway.server.max_body_bytes
    return await count_tokens(request.services, await _inbound(request, "count_tokens", limit, spends=False))


async def _embeddings(request: Request) -> Reply:
    return await embeddings.embed(
        request.services,
        await _inbound(request, "embeddings", request.services.runtime.current.gateway.server.max_body_bytes),
    )


def _known_key(request: Request) -> KeyRecord | None:
    key = authenticate_optional(request.services.ledger, request.headers)
    if key is not None and key.restricted:
        _restrict(request, key)
    return key


def _access(request: Request) -> Access:
    key = _known_key(request)
    return access_of(key) if key else ANONYMOUS


async def _models(request: Request) -> Reply:
    catalog, access = request.services.runtime.current.catalog, _access(request)
    listing = catalog.listed(access)
    if listing is None:
        listing = await asyncio.to_thread(catalog.listing, access)
    return listing_reply(request.headers, listing)


async def _model(request: Request) -> Reply:
    entry = request.services.runtime.current.catalog.model(request.argument, _access(request))
    if entry is None:
        raise ModelNotFound(request.argument[:200])
    return Reply(200, [], orjson.dumps(entry))


async def _image_models(request: Request) -> Reply:
    return listing_reply(request.headers, image_listing(request.services.runtime.current, _known_key(request)))


async def _images(request: Request) -> Reply:
    services = request.services
    if request.scope["method"] == "POST":
        limit = services.runtime.current.gateway.server.max_small_body_bytes
        return await create_generation(services, await _inbound(request, "images", limit))
    return _not_cached(await list_generations(services, _image_reader(request)))


async def _image(request: Request) -> Reply:
    return _not_cached(await get_generation(request.services, _image_reader(request), request.argument))


def _not_cached(reply: Reply) -> Reply:
    """The reply with `cache-control: no-store`, since the state it reports may change at any moment."""
    return replace(reply, headers=[*reply.headers, (b"cache-control", b"no-store")])


def _image_reader(request: Request) -> KeyRecord:
    """The key of a request that reads image jobs. Only the balance is checked, since nothing is spent."""
    key = authenticate(request.services.ledger, request.headers)
    if key.restricted:
        _restrict(request, key, "images")
    request.services.ledger.require_balance(key.account_id)
    return key


async def _alive(request: Request) -> Reply:
    return _not_cached(Reply(200, [], b'{"status":"ok"}'))


async def _ready(request: Request) -> Reply:
    return _not_cached(ready_reply(request.services))


async def _metrics(request: Request) -> Reply:
    return _not_cached(metrics_reply(request.services))


async def _root(request: Request) -> Reply:
    return Reply(200, [], orjson.dumps({"service": "tollgate", "models": "/v1/models", "health": "/healthz"}))


_GET = ("GET",)
_POST = ("POST",)
_CATALOG = Route("models", _GET, "catalog", _models)
_ALIVE = Route("healthz", _GET, "catalog", _alive, while_draining=True)

ROUTES: dict[str, Route] = {
    "/v1/chat/completions": Route("chat", _POST, "chat", _completion("chat")),
    "/v1/responses": Route("responses", _POST, "responses", _completion("responses")),
    "/v1/messages": Route("messages", _POST, "messages", _completion("messages")),
    "/v1/messages/count_tokens": Route("count_tokens", _POST, "messages", _count_tokens),
    "/v1/embeddings": Route("embeddings", _POST, "embeddings", _embeddings),
    "/v1/models": _CATALOG,
    "/models": _CATALOG,
    "/v1/images/models": Route("image_models", _GET, "images", _image_models),
    "/v1/images/generations": Route("images", ("GET", "POST"), "images", _images),
    "/healthz": _ALIVE,
    "/health": _ALIVE,
    "/readyz": Route("readyz", _GET, "catalog", _ready, while_draining=True),
    "/metrics": Route("metrics", _GET, "catalog", _metrics, while_draining=True, as_written=True),
    "/": Route("root", _GET, "catalog", _root, while_draining=True),
}
_WITH_ARGUMENT: tuple[tuple[str, Route], ...] = (
    ("/v1/models/", Route("model", _GET, "catalog", _model)),
    ("/models/", Route("model", _GET, "catalog", _model)),
    ("/v1/images/generations/", Route("image", _GET, "images", _image)),
)


def find(path: str) -> tuple[Route | None, str]:
    """The route of a canonical path (None if there is none), and the path's variable part (or "")."""
    route = ROUTES.get(path)
    if route is not None:
        return route, ""
    for prefix, route in _WITH_ARGUMENT:
        if path.startswith(prefix) and len(path) > len(prefix):
            return route, path[len(prefix) :]
    return None, ""


def unknown_path_message(method: str, path: str) -> str:
    """The message for a path without an endpoint. If the path ends like an endpoint, it suggests that endpoint, for
    clients whose base address does not end in /v1."""
    message = f"no such endpoint: {method[:20]} {path[:200]}"
    meant = next((name for name in ROUTES if name.startswith("/v1/") and path.endswith(name[3:])), None)
    return message if meant is None else f"{message}; did you mean {meant}?"


def unknown_path_dialect(path: str) -> str:
    """The error dialect for a path without an endpoint: that of the API the path belongs to."""
    return "messages" if path.startswith("/v1/messages/") else "catalog"
