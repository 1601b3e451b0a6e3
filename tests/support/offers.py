"""Models, offers and routes built directly, for tests of code that only reads them."""

from decimal import Decimal

from tollgate.catalog import catalog_of, grouped, make_model
from tollgate.config.load import Mark
from tollgate.config.model import Model
from tollgate.config.pricing import Pricing
from tollgate.config.settings import Timeouts
from tollgate.mapping.provider.offer import Address, Offer
from tollgate.routing import make_route
from tollgate.tariff import Tariff


def price(unit=1, currency="USD", **written):
    prices = {name: Decimal(text) for name, text in written.items() if text != ""}
    return Pricing(prices, written, unit=unit, currency=currency)


def model(id="acme/large", provider="acme", **facts):
    return Model(
        id=id,
        provider=provider,
        upstream=facts.pop("upstream", "large-1"),
        mark=Mark("providers/acme.yaml", 1, 1),
        **facts,
    )


def offer(of, protocol="chat", **more):
    name = f"{of.provider}/{of.upstream}"
    own = Tariff(of.price) if of.price else None
    return Offer(
        provider=of.provider,
        route=name,
        model=of,
        protocol=protocol,
        endpoint=protocol,
        mapping=None,
        address=Address("https://x.example/", "https://x.example/"),
        errors=None,
        timeouts=Timeouts(),
        fixed_headers={},
        own_tariff=own,
        can=dict(of.can),
        **more,
    )


def route(provider="acme", protocols=("chat",), id="acme/large", priority=0, weight=1, **facts):
    of = model(id, provider, **facts)
    return make_route(of, tuple(offer(of, protocol) for protocol in protocols), priority=priority, weight=weight)


def make_catalog(routes, aliases=None):
    return catalog_of([make_model(name, found) for name, found in grouped(routes).items()], aliases or {})
