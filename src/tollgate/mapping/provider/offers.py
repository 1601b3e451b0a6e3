"""The offers of a provider's models: for each model, what its scopes and endpoints set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from tollgate.config.authorisation import Authorisation
from tollgate.config.model import Model
from tollgate.config.settings import Timeouts
from tollgate.mapping.edits import EditList
from tollgate.mapping.model_facts import facts_of, prices_text
from tollgate.mapping.provider.address import address_of
from tollgate.mapping.provider.endpoint import CompiledEndpoint
from tollgate.mapping.provider.headers import split_headers
from tollgate.mapping.provider.offer import CONTENT_TYPES, Offer
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.provider.scopes import Scopes
from tollgate.tariff import Tariff

if TYPE_CHECKING:
    from tollgate.mapping import CompiledMapping


@dataclass(slots=True, eq=False)
class Offers:
    """Makes the offers of one provider. Equal parts of them are one object."""

    _pieces: Pieces
    _endpoints: Mapping[str, CompiledEndpoint]
    _scopes: Scopes
    _timeouts: Timeouts
    _auth: Authorisation | None
    _headers_sent: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = field(default_factory=dict)
    _chains: dict[tuple[int, tuple[Any, ...]], EditList] = field(default_factory=dict)

    def of(self, model: Model) -> tuple[Offer, ...]:
        """The offers of a chat or embedding model, in the order of its protocols."""
        tariff = self._tariff(model)
        serving = self._pieces.provider.serving(model)
        made = (self._offer(model, self._endpoints[endpoint.name], tariff) for endpoint in serving)
        return tuple(offer for offer in made if offer is not None)

    def _tariff(self, model: Model) -> Tariff | None:
        if model.price is None:
            return None
        try:
            return Tariff(model.price)
        except ValueError as error:
            self._pieces.mistake(model.mark, str(error), f"models.{model.id}.price")
            return None

    def _offer(self, model: Model, endpoint: CompiledEndpoint, tariff: Tariff | None) -> Offer | None:
        pieces, config = self._pieces, endpoint.config
        provider = pieces.provider
        facts = facts_of(model, provider.name, config.mapping)
        address = address_of(pieces, endpoint, facts)
        if address is None:
            return None
        can = self._scopes.can(config, model)
        values: dict[str, Any] = {"model": facts, "can": can, "vars": pieces.variables, "secret": pieces.secrets}
        fixed, made = split_headers(endpoint.headers, values)
        kind = CONTENT_TYPES[config.encoding]
        offer = Offer(
            provider=provider.name,
            route=f"{provider.name}/{model.upstream}",
            model=model,
            protocol=config.mapping,
            endpoint=config.name,
            mapping=cast("CompiledMapping", endpoint.mapping),
            address=address,
            errors=endpoint.errors,
            timeouts=replace(self._timeouts, **model.timeouts),
            fixed_headers=self._shared({"content-type": kind, **fixed}),
            made_headers=made,
            request_edits=self._edits("request", endpoint, model),
            response_edits=self._edits("response", endpoint, model),
            stream_edits=self._edits("stream", endpoint, model),
            can=can,
            model_facts=facts,
            usage=endpoint.usage.excluding("cache_write") if can.get("cache_write_apart") else endpoint.usage,
            framing=config.framing,
            inner=config.inner,
            inner_of=endpoint.inner_of,
            unwrap=endpoint.unwrap,
            in_text=self._scopes.in_text(config, model),
            batch=config.batch,
            encoding=config.encoding,
            polling=endpoint.polling,
            prepares=endpoint.prepares,
            sends=endpoint.sends,
            tariff=tariff,
            own_tariff=tariff,
            prices_text=prices_text(model),
            auth=self._auth,
            connection=provider.connection,
        )
        # embeddings are whole always, and `whole: 100` of a provider's chat models is not about them
        if model.type == "chat" and not offer.streams and not (offer.whole and offer.longest_whole is None):
            message = f"`{config.name}` has neither streams nor whole answers of any length"
            hint = "its mapping, `poll:` or `can: {streams:, whole:}` excludes both"
            pieces.mistake(config.url, message, f"speaks.{config.name}", hint)
        return offer

    def _shared(self, headers: dict[str, str]) -> Mapping[str, str]:
        """One read-only map for all offers with the same headers, because the upstream client serialises such a map
        only once."""
        return self._headers_sent.setdefault(tuple(headers.items()), MappingProxyType(headers))

    def _edits(self, kind: str, endpoint: CompiledEndpoint, model: Model) -> EditList | None:
        made = self._scopes.edits(kind, endpoint.config, model)
        if kind == "request":
            made = endpoint.sparing(made)
        return self._chains.setdefault((id(endpoint.mapping), made.steps), made) if made is not None else None
