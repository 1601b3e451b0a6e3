"""Planning which routes a request tries, and in which order: at most three attempts, each on a different route.

A route is one provider's offer of the model. The order is decided here; whether a failure is retriable is decided in
`mapping/provider/errors.py`, and `health.py` knows which routes fail.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tollgate.config.model import model_type_of
from tollgate.mapping.provider.offer import Offer

if TYPE_CHECKING:
    from tollgate.catalog import CatalogModel
    from tollgate.config.model import Model
    from tollgate.health import Health

__all__ = ["Needs", "Offer", "Route", "Sticky", "fingerprint", "make_route", "plan"]

_PREFERENCE: Mapping[str, tuple[str, ...]] = {
    "chat": ("chat", "responses", "messages"),
    "responses": ("responses", "chat", "messages"),
    # responses before chat: it has room for the reasoning state that this format's clients send back
    "messages": ("messages", "responses", "chat"),
    "embeddings": ("embeddings",),
}
"""Upstream protocols from best to worst for a client protocol; SPEC service 4: chat and responses convert reliably."""


@dataclass(slots=True)
class Needs:
    """What a request needs of a route. `native`: only a route that speaks the client's protocol can be used."""

    tools: bool = False
    images: bool = False
    audio: bool = False
    files: bool = False
    schema: bool = False
    prompt_tokens: int = 0
    native: bool = False
    threads: bool = False
    """Only with `native`: the request begins or continues a conversation that the provider stores, so only a route
    declared with `can: {threads: true}` can be used."""
    client_tools: bool = False
    """A responses request with tools of the client that are no plain functions (free-form, in namespaces, among the
    input, ...): an endpoint with `can: {client_tools: false}` cannot be used, but a conversion makes functions of
    them."""
    effort: str = "unset"
    """The reasoning effort of a chat request; `unset` if it has none."""
    prefer_native: bool = False
    """The request has features that conversions can lose (SPEC service 4: signatures, cache marks, hosted tools): a
    native route comes first, whatever its priority."""


NO_NEEDS = Needs()


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A model at one provider, offered in one or more protocols; `ranked` has the offers for each client protocol, the
    one that loses least first."""

    key: str
    provider: str
    model: Model
    offers: tuple[Offer, ...]
    priority: int = 0
    weight: int = 1
    ranked: Mapping[str, tuple[Offer, ...]] = field(default_factory=dict)

    def offer(self, protocol: str) -> Offer | None:
        """The offer of this route in exactly this wire format."""
        return next((offer for offer in self.offers if offer.protocol == protocol), None)


class Plan(NamedTuple):
    """The offers to try for one request, in order, and how many of them may be called. There may be more offers than
    that, because an offer that cannot carry the request is skipped without a call."""

    offers: list[Offer]
    calls: int


def make_route(model: Model, offers: tuple[Offer, ...], *, priority: int = 0, weight: int = 1) -> Route:
    """A route from the offers of one model at one provider (in the order of its file)."""
    clients = [client for client in _PREFERENCE if offers and model_type_of(client) == model.type]
    ranked = {client: _ranked(offers, client) for client in clients}
    key = offers[0].route if offers else f"{model.provider}/{model.upstream}"
    return Route(key, model.provider, model, offers, priority, weight, ranked)


def plan(
    model: CatalogModel,
    client_protocol: str,
    needs: Needs = NO_NEEDS,
    health: Health | None = None,
    sticky: str | None = None,
    *,
    attempts: int = 3,
    pinned: str | None = None,
    cooling: bool = True,
    rng: Callable[[], float] = random.random,
) -> Plan:
    """The offers to try, best first, each of a different route; none when no route can serve this protocol.

    Order: routes that fit the request's needs (others only if none fits, since declared abilities may be out of date),
    the conversation's last route (`sticky`), lower `priority`, the client's own protocol before a converted one, then a
    random order by weight. Routes that cool down come last; if all do, only the one that recovers first is called.
    `pinned` is the only provider that may answer (it has the state that the request refers to). `cooling` False leaves
    out routes that cool down, for a caller that can do without an answer.
    """
    routes = model.routes if pinned is None else [route for route in model.routes if route.provider == pinned]
    found = [(route, offer) for route in routes if (offer := _serving(route, client_protocol, needs)) is not None]
    if len(found) < 2 and cooling:
        return Plan([offer for _, offer in found], 1)
    found = [(route, offer) for route, offer in found if fits(offer, needs)] or found
    now = health.now() if health is not None else 0.0
    ranked = []
    for route, offer in found:
        until = health.cooling_until(route.key, route.provider) if health is not None else 0.0
        if until > now and not cooling:
            continue
        converted = offer.protocol != client_protocol
        rank = (
            until if until > now else 0.0,
            route.key != sticky,
            converted and needs.prefer_native,
            route.priority,
            converted,
            _draw(route.weight, rng),
        )
        ranked.append((rank, offer))
    ranked.sort(key=itemgetter(0))
    all_cool = bool(ranked) and ranked[0][0][0] > 0.0
    return Plan([offer for _, offer in ranked], 1 if all_cool else attempts)


def _ranked(offers: tuple[Offer, ...], client_protocol: str) -> tuple[Offer, ...]:
    liked = _PREFERENCE[client_protocol]
    return tuple(
        sorted(offers, key=lambda offer: liked.index(offer.protocol) if offer.protocol in liked else len(liked))
    )


def _serving(route: Route, client_protocol: str, needs: Needs) -> Offer | None:
    """The offer of a route for this request: that in the protocol which loses least among those that fit its needs.
    None if the route serves no such clients, or cannot do what only a native route can."""
    ranked = route.ranked.get(client_protocol)
    if ranked is None:
        return None
    if needs.native:
        native = ranked[0]  # the client's own protocol is ranked first
        able = native.protocol == client_protocol and (not needs.threads or native.can.get("threads") is True)
        return native if able else None
    if len(ranked) == 1:
        return ranked[0]
    return next((offer for offer in ranked if fits(offer, needs)), ranked[0])


def fits(offer: Offer, needs: Needs) -> bool:
    """Whether the offer has the abilities that the request needs. Abilities that the file does not mention are
    assumed."""
    if needs is NO_NEEDS:
        return True
    model, can = offer.model, offer.can
    if needs.prompt_tokens and model.context and needs.prompt_tokens > model.context:
        return False
    wanted = model.input_modalities
    return not (
        (needs.tools and not _takes_tools(can, model.parameters, needs.effort))
        or (needs.client_tools and can.get("client_tools") is False)
        or (needs.schema and can.get("schema") is False)
        or (needs.images and "image" not in wanted)
        or (needs.audio and "audio" not in wanted)
        or (needs.files and "file" not in wanted and can.get("files") is not True)
    )


def _takes_tools(can: Mapping[str, Any], parameters: tuple[str, ...], effort: str) -> bool:
    efforts = can.get("tools_with_effort")
    if efforts is not None and effort not in efforts:
        return False
    declared = can.get("tools")
    return declared if isinstance(declared, bool) else not parameters or "tools" in parameters


def _draw(weight: int, rng: Callable[[], float]) -> float:
    """A random rank, smaller comes first: a route of weight 3 comes before one of weight 1 in three of four cases."""
    if weight <= 0:
        return 1.0
    return -math.pow(rng(), 1.0 / weight)


_CACHED_SECONDS = 3600.0
"""How long a prompt cache outlives its last use: five minutes to an hour at most providers."""


class Sticky:
    """Remembers which route a conversation used last, so that the provider's prompt cache is used again. An entry older
    than such a cache is ignored; the least recently used ones are forgotten."""

    def __init__(self, capacity: int = 20_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._clock = clock
        self._routes: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, conversation: bytes) -> str | None:
        """The route this conversation used last."""
        known = self._routes.get(conversation)
        if known is None or self._clock() - known[1] > _CACHED_SECONDS:
            return None
        self._routes.move_to_end(conversation)
        return known[0]

    def remember(self, conversation: bytes, route: str) -> None:
        """Note the route that answered."""
        self._routes[conversation] = route, self._clock()
        self._routes.move_to_end(conversation)
        if len(self._routes) > self._capacity:
            self._routes.popitem(last=False)


def fingerprint(account: str, model: str, body: Mapping[str, Any]) -> bytes:
    """A hash of what is the same in all requests of a conversation: account, model, and the caller's cache key or else
    the system text and everything up to the first user message (at most 8 KB of text)."""
    digest = hashlib.blake2b(f"{account}\0{model}\0".encode(), digest_size=16)
    named = body.get("prompt_cache_key")
    if isinstance(named, str) and named:
        digest.update(named.encode("utf-8", "surrogatepass"))
        return digest.digest()
    room = 8192
    for text in _opening(body):
        piece = text[:room].encode("utf-8", "surrogatepass")
        digest.update(piece + b"\0")
        room -= len(piece)
        if room <= 0:
            break
    return digest.digest()


def _opening(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("system", "instructions"):
        yield from _texts(body.get(name))
    turns = body.get("messages")
    if turns is None:
        turns = body.get("input")
    if not isinstance(turns, list):
        yield from _texts(turns)
        return
    for turn in turns:
        yield from _texts(turn)
        if isinstance(turn, dict) and turn.get("role") == "user":
            return


def _texts(value: Any) -> Iterator[str]:
    """Every text inside a value, depth first; bodies are bounded in nesting before they get here."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
