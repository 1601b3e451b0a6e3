"""A gateway's services around a fake provider of image jobs. Everything but the provider is real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from support.offers import make_catalog
from support.stores import empty_store, reused_duckdb
from support.waiting import until
from tollgate.config.load import Mark
from tollgate.config.model import Gateway, Model
from tollgate.config.settings import Credits, Retry, Store, Timeouts
from tollgate.health import Health
from tollgate.ledger import Ledger
from tollgate.mapping.images.offer import ImageOffer, ImageOffers, Step
from tollgate.mapping.images.price import ImagePrice
from tollgate.mapping.images.schema import InputSchema
from tollgate.mapping.provider import ErrorRules
from tollgate.metrics import Metrics
from tollgate.routing import make_route
from tollgate.services import Services
from tollgate.upstream import Client

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string"}, "n": {"type": "integer", "minimum": 1, "maximum": 4, "default": 1}},
}


@dataclass
class Provider:
    """An in-process upstream: `answer(method, path, body)` returns (status, JSON), and may be a coroutine; `calls` are
    the requests."""

    answer: Callable[..., Any]
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)

    async def __call__(self, method, path, headers, body):
        given = json.loads(body) if body[:1] in (b"{", b"[") else body
        self.calls.append((method, path, given))
        self.bodies.append(body)
        self.headers.append(headers)
        found = self.answer(method, path, given)
        if asyncio.iscoroutine(found):
            found = await found
        status, content = found
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        kind = "text/html" if data[:1] == b"<" else "application/json"

        async def chunks():
            yield data

        return status, {"content-type": kind}, chunks()


def at(*path):
    def read(values):
        found = values
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return found

    return read


def image_model(id="acme/draw", provider="acme", **facts) -> Model:
    return Model(
        id=id,
        provider=provider,
        upstream=facts.pop("upstream", "draw-1"),
        mark=Mark("p.yaml", 1, 1),
        name="Draw",
        type="image",
        description="Draws.",
        tags=("text-to-image",),
        **facts,
    )


def job(values):
    body = values["$"]
    return {name: body.get(name) for name in ("id", "status", "images", "error")}


def make_offer(provider="acme", *, poll=True, model=None, price=None, schema=SCHEMA, **more) -> ImageOffer:
    """An offer whose steps use the fake provider's simple format."""
    base = f"app://{provider}"
    steps: dict[str, Any] = {
        "submit": Step(
            "submit",
            "POST",
            lambda values: f"{base}/jobs",
            job,
            {},
            lambda values: {"model": values["$"]["model"], "input": values["$"]["input"]},
        ),
    }
    if isinstance(poll, Step):
        steps["poll"] = poll
    elif poll:
        steps["poll"] = Step("poll", "GET", lambda values: f"{base}/jobs/{values['$job']['id']}", job)
    more = {**steps, **more}
    return ImageOffer(
        provider=provider,
        model=model or image_model(provider=provider),
        facts={"upstream": "draw-1"},
        schema=InputSchema(schema),
        price=price or ImagePrice(Decimal("0.04"), asked=at("$input", "n")),
        headers=lambda: {"authorization": "Bearer secret"},
        variables={},
        errors=ErrorRules(),
        timeouts=Timeouts(),
        every=more.pop("every", (0.01,)),
        **more,
    )


def runtime_of(*offers: ImageOffer, **gateway: Any) -> Any:
    routes = [make_route(offer.model, (), priority=place) for place, offer in enumerate(offers)]
    return SimpleNamespace(
        gateway=Gateway(root=None, **gateway), catalog=make_catalog(routes), images=ImageOffers(offers)
    )


async def open_services(folder, *offers: ImageOffer, apps=None, credits="10", **gateway: Any):
    """Services with a real ledger in `folder`, one account with credits, and these in-process providers."""
    store = Store(directory=folder / "var", usage_directory=folder / "usage", publish_seconds=60, apply_seconds=0.05)
    runtime = runtime_of(*offers, store=store, retry=Retry(cooldown_failures=1000), credits=Credits(), **gateway)
    ledger = Ledger(store, runtime.gateway.credits)
    empty_store(store)
    with reused_duckdb():
        await ledger.open()
    secret = await ledger.ensure_default_account(Decimal(credits))
    client = Client(environ={})
    for name, app in (apps or {}).items():
        client.register_app(name, app)
    services = Services(
        SimpleNamespace(current=runtime), ledger, client, Health(runtime.gateway.retry), None, Metrics(), None
    )
    return services, (ledger.find_key(secret) if secret else None, secret)


async def close_services(services) -> None:
    services.draining = True
    services.tasks.cancel()
    await services.settlements.drain(0.05)
    await services.client.close()
    await services.ledger.close()


async def settled(services) -> None:
    """Waits until no background work is left."""
    await until(lambda: not services.settlements._tasks)
