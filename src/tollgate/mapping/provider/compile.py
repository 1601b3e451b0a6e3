"""A provider's configuration becomes routes and offers: everything a request needs, computed once.

Scopes are layered provider, endpoint, policies top to bottom, model; the later wins, and edits run in that order.
Mistakes of the whole file are collected. A provider that is off is compiled (so its mistakes show) but offers nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from tollgate.config.authorisation import Authorisation
from tollgate.config.fields import Fields
from tollgate.config.load import Map, Node, Problem, find
from tollgate.config.model import Edits, EditSet, Endpoint, Model, Provider, Timeouts
from tollgate.config.provider_model import serves
from tollgate.config.secrets import Secrets
from tollgate.errors import ConfigErrors
from tollgate.forms import FORM
from tollgate.mapping.edits import EditList, chain, compile_scope
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.images import ImageOffer, Surroundings, compile_images
from tollgate.mapping.in_text import InText, compile_in_text
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.address import address_of
from tollgate.mapping.provider.auth import compile_auth
from tollgate.mapping.provider.discover import Discovery, compile_discovery
from tollgate.mapping.provider.error_reading import compile_errors
from tollgate.mapping.provider.errors import ErrorRules
from tollgate.mapping.provider.headers import Headers, compile_headers, split_headers, unasked_headers
from tollgate.mapping.provider.model_facts import facts_of, prices_text
from tollgate.mapping.provider.offer import Offer
from tollgate.mapping.provider.pieces import Pieces, reads_beside_usage, reads_headers, total
from tollgate.mapping.provider.polling import Polling, compile_polling
from tollgate.mapping.provider.signing import Signing, compile_signing
from tollgate.mapping.provider.token_request import TokenRequest, compile_token_request
from tollgate.tariff import Tariff
from tollgate.wire import CLIENT_FORMATS

if TYPE_CHECKING:
    from tollgate.mapping import Mapping as ProtocolMapping

KINDS = ("request", "response", "stream")


@dataclass(frozen=True, slots=True)
class ScopeEdits:
    """The three compiled edit lists of one scope."""

    request: EditList | None = None
    response: EditList | None = None
    stream: EditList | None = None


@dataclass(frozen=True, slots=True)
class Spoken:
    """One endpoint, compiled: what all its models share."""

    endpoint: Endpoint
    mapping: ProtocolMapping | None
    edits: ScopeEdits
    errors: ErrorRules
    url: Template | None
    stream_url: Template | None
    count_url: Template | None
    headers: Headers
    query: Mapping[str, Template]
    excludes: frozenset[str]
    read_usage: Template | None
    usage_apart: bool
    usage_hears: bool
    words: Template | None
    unwrap: Template | None
    polling: Polling | None


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProvider:
    """A provider ready to serve. `offers` has its chat and embedding offers by model (none while it is off), `images`
    its image models (for their examples also while it is off)."""

    config: Provider
    errors: ErrorRules
    spoken: Mapping[str, Spoken]
    scope: ScopeEdits
    policies: tuple[ScopeEdits, ...]
    model_scopes: Mapping[str, ScopeEdits]
    offers: Mapping[str, tuple[Offer, ...]]
    images: tuple[ImageOffer, ...]
    discovery: Discovery | None
    variables: Mapping[str, Any]
    marks: Mapping[int, InText | None]
    """Every `in_text:` of the file, by its node's identity."""
    signing: Signing | None = None
    token_request: TokenRequest | None = None
    warnings: tuple[Problem, ...] = ()
    """What its templates, edits and functions are warned of."""

    def in_text(self, endpoint: Endpoint, model: Model | None) -> InText | None:
        """The marks of the nearest scope that says some; an empty list says that there are none."""
        scopes: list[Any] = [endpoint, self.config]
        if model is not None:
            policies = [policy for policy in self.config.policies if policy.holds(model, endpoint.protocol)]
            scopes = [model, *reversed(policies), *scopes]
        nearest = next((scope.in_text for scope in scopes if scope.in_text is not None), None)
        return self.marks.get(id(nearest))

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.config.name

    def can(self, endpoint: Endpoint | None, model: Model | None) -> dict[str, Any]:
        """What is declared for a model through an endpoint, the nearest scope's word for each; without them, the
        provider's own."""
        can: dict[str, Any] = {**self.config.can, **(endpoint.can if endpoint else {})}
        if endpoint and model:
            for policy in self.config.policies:
                if policy.holds(model, endpoint.protocol):
                    can.update(policy.can)
        return {**can, **(model.can if model else {})}

    def edits(self, kind: str, endpoint: str, model: Model | None) -> EditList | None:
        """The edits that apply to a model through an endpoint, in scope order; without a model,
        those of every model."""
        spoken = self.spoken.get(endpoint)
        lists = [getattr(self.scope, kind), getattr(spoken.edits, kind) if spoken else None]
        if model is not None:
            lists += [
                getattr(scope, kind)
                for policy, scope in zip(self.config.policies, self.policies, strict=True)
                if policy.holds(model, endpoint)
            ]
            lists.append(getattr(self.model_scopes.get(model.id, ScopeEdits()), kind))
        return chain(lists)


def compile_provider(
    provider: Provider,
    mappings: Mapping[str, ProtocolMapping],
    secrets: Secrets,
    *,
    timeouts: Timeouts | None = None,
    plugins: Mapping[str, Filter] | None = None,
) -> CompiledProvider:
    """Everything of a provider compiled. Raises `ConfigErrors` with every mistake of its file."""
    return _Compiling(provider, mappings, secrets, timeouts or Timeouts(), plugins).run()


class _Compiling:
    """One run over one provider."""

    def __init__(
        self,
        provider: Provider,
        mappings: Mapping[str, ProtocolMapping],
        secrets: Secrets,
        timeouts: Timeouts,
        plugins: Mapping[str, Filter] | None,
    ) -> None:
        self.provider = provider
        self.mappings = mappings
        self.secrets = secrets
        self.pieces = Pieces(provider, secrets, plugins)
        self._headers_sent: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self.timeouts = _nearer(timeouts, provider.timeouts)
        self._marks: dict[int, InText | None] = {}
        self._chains: dict[tuple[int, ...], EditList | None] = {}

    def run(self) -> CompiledProvider:
        provider, pieces = self.provider, self.pieces
        errors = compile_errors(pieces, [provider.errors], self.secrets.redact)
        scope = self._scope(provider.edits)
        headers = compile_headers(pieces, provider.headers)
        query = self._query(provider.query)
        spoken = {name: self._endpoint(endpoint, headers, query) for name, endpoint in provider.endpoints.items()}
        policies = tuple(self._scope(policy.edits) for policy in provider.policies)
        model_scopes = {model.id: self._scope(model.edits) for model in provider.models if model.edits != EditSet()}
        signing = compile_signing(pieces, provider)
        token_request = compile_token_request(pieces)
        auth = compile_auth(pieces, provider, signing, token_request)
        self._read_marks()
        discovery = pieces.tried(lambda: compile_discovery(pieces, headers, auth))
        compiled = CompiledProvider(
            provider,
            errors,
            spoken,
            scope,
            policies,
            model_scopes,
            {},
            (),
            discovery,
            pieces.variables,
            self._marks,
            signing,
            token_request,
        )
        images = self._images(errors, headers, auth)
        offers: dict[str, tuple[Offer, ...]] = {}
        if not provider.off and not pieces.problems:
            for model in provider.models:
                if model.type != "image":
                    offers[model.id] = self._offers(compiled, model, auth)
        if pieces.problems:
            raise ConfigErrors(
                sorted(dict.fromkeys(pieces.problems), key=lambda problem: (problem.mark.line, problem.mark.column))
            )
        noted = [*(pieces.functions.warnings if pieces.functions is not None else ()), *pieces.warnings]
        return replace(compiled, offers=offers, images=tuple(images), warnings=tuple(dict.fromkeys(noted)))

    # -- scopes

    def _scope(self, edits: EditSet) -> ScopeEdits:
        return ScopeEdits(*(self._edits(getattr(edits, kind), kind) for kind in KINDS))

    def _edits(self, edits: Edits | None, kind: str) -> EditList | None:
        pieces = self.pieces
        return pieces.tried(lambda: compile_scope(edits, of=kind, defines=pieces.functions, variables=pieces.variables))

    def _query(self, nodes: Mapping[str, Node]) -> dict[str, Template]:
        names = self.pieces.names("model", "vars", "secret")
        return {
            name: template
            for name, node in nodes.items()
            if (template := self.pieces.template(node, names)) is not None
        }

    def _endpoint(self, endpoint: Endpoint, headers: Headers, query: Mapping[str, Template]) -> Spoken:
        pieces = self.pieces
        excludes, read, words = self._usage(endpoint)
        own = endpoint.errors
        mapping = self.mappings.get(endpoint.mapping)
        foreign = mapping is not None and endpoint.mapping not in CLIENT_FORMATS  # a client's own format may just pass
        if mapping is not None and (serves(endpoint.protocol) == "embedding") != (mapping.hub == "embeddings"):
            said = "is not for embeddings, as its endpoint" if not mapping.hub else "is for embeddings"
            hint = "hub: embeddings" if not mapping.hub else "their endpoint is `embeddings` or ends in `-embeddings`"
            at = find(self.provider.document.root, ["speaks", endpoint.protocol])
            pieces.mistake(at, f"mapping `{endpoint.mapping}` {said}", f"speaks.{endpoint.protocol}", hint)
        polling = compile_polling(pieces, endpoint.poll, f"speaks.{endpoint.protocol}.poll")
        missing = _missing(mapping, polling) if foreign and mapping is not None else []
        if missing:
            at = find(self.provider.document.root, ["speaks", endpoint.protocol])
            pieces.mistake(
                at,
                f"mapping `{endpoint.mapping}` has no {' and no '.join(missing)}, "
                "which a provider that speaks it needs",
                f"speaks.{endpoint.protocol}",
            )
        return Spoken(
            endpoint=endpoint,
            mapping=mapping,
            edits=self._scope(endpoint.edits),
            errors=compile_errors(pieces, [own, self.provider.errors], self.secrets.redact, mapping),
            url=pieces.url(endpoint.url),
            stream_url=pieces.url(endpoint.stream_url),
            count_url=pieces.url(endpoint.count_tokens_url),
            headers={**headers, **compile_headers(pieces, endpoint.headers)},
            query={**query, **self._query(endpoint.query)},
            excludes=excludes,
            read_usage=read,
            usage_apart=reads_beside_usage(self._usage_node(endpoint)),
            usage_hears=reads_headers(self._usage_node(endpoint)),
            words=words,
            unwrap=pieces.expression(endpoint.unwrap) if endpoint.unwrap is not None else None,
            polling=polling,
        )

    def _usage_node(self, endpoint: Endpoint) -> Node | None:
        return endpoint.usage if endpoint.usage is not None else self.provider.usage

    def _usage(self, endpoint: Endpoint) -> tuple[frozenset[str], Template | None, Template | None]:
        """What the endpoint says of usage, else what the provider says."""
        node = self._usage_node(endpoint)
        if not isinstance(node, Map):
            return frozenset(), None, None
        read, words = (
            self.pieces.template(said, names) if (said := node.get(key)) is not None else None
            for key, names in (("read", ("$", "answer_headers")), ("words", ("$",)))
        )
        return frozenset(Fields(node).texts("excludes")), read, words

    def _images(self, errors: ErrorRules, headers: Headers, auth: Authorisation | None) -> list[ImageOffer]:
        known: dict[str, Any] = {"vars": self.pieces.variables, "secret": self.pieces.secrets}
        made = partial(unasked_headers, headers, known)
        return compile_images(self.pieces, Surroundings(errors, made, self.timeouts, auth, self.secrets.redact))

    def _read_marks(self) -> None:
        """Every `in_text:` of the file, once for all of its offers; also where no model is of it."""
        provider = self.provider
        scopes: tuple[Any, ...] = (provider, *provider.endpoints.values(), *provider.policies, *provider.models)
        for scope in scopes:
            if (node := scope.in_text) is not None and id(node) not in self._marks:
                self._marks[id(node)] = self.pieces.tried(
                    partial(compile_in_text, provider.document, node, defines=self.pieces.functions)
                )

    # -- offers

    def _offers(self, compiled: CompiledProvider, model: Model, auth: Authorisation | None) -> tuple[Offer, ...]:
        tariff = self._tariff(model)
        names = model.protocols or tuple(compiled.spoken)
        made = [
            self._offer(compiled, model, compiled.spoken[name], tariff, auth)
            for name in names
            if name in compiled.spoken and serves(name) == model.type and compiled.spoken[name].endpoint.serves(model)
        ]
        return tuple(offer for offer in made if offer is not None)

    def _tariff(self, model: Model) -> Tariff | None:
        if model.price is None:
            return None
        try:
            return Tariff(model.price)
        except ValueError as error:
            self.pieces.mistake(model.mark, str(error), f"models.{model.id}.price")
            return None

    def _offer(
        self,
        compiled: CompiledProvider,
        model: Model,
        spoken: Spoken,
        tariff: Tariff | None,
        auth: Authorisation | None,
    ) -> Offer | None:
        provider, endpoint = self.provider, spoken.endpoint
        facts = facts_of(model, provider.name, endpoint.mapping)
        address = address_of(self.pieces, spoken, facts)
        if address is None:
            return None
        can = compiled.can(endpoint, model)
        values: dict[str, Any] = {
            "model": facts,
            "can": can,
            "vars": self.pieces.variables,
            "secret": self.pieces.secrets,
        }
        fixed, made = split_headers(spoken.headers, values)
        kind = "application/json" if endpoint.encoding == "json" else FORM
        return Offer(
            provider=provider.name,
            route=f"{provider.name}/{model.upstream}",
            model=model,
            protocol=endpoint.mapping,
            endpoint=endpoint.protocol,
            mapping=cast("ProtocolMapping", spoken.mapping),
            address=address,
            errors=spoken.errors,
            timeouts=_nearer(self.timeouts, model.timeouts),
            fixed_headers=self._shared({"content-type": kind, **fixed}),
            made_headers=made,
            request_edits=self._chained(compiled, "request", endpoint, model),
            response_edits=self._chained(compiled, "response", endpoint, model),
            stream_edits=self._chained(compiled, "stream", endpoint, model),
            can=can,
            model_facts=facts,
            usage_excludes=spoken.excludes,
            usage_apart=spoken.usage_apart,
            usage_hears=spoken.usage_hears,
            usage_read=total(spoken.read_usage) if spoken.read_usage is not None else None,
            words=spoken.words,
            framing=endpoint.framing,
            inner=endpoint.inner,
            unwrap=spoken.unwrap,
            in_text=compiled.in_text(endpoint, model),
            batch=endpoint.batch,
            encoding=endpoint.encoding,
            polling=spoken.polling,
            tariff=tariff,
            own_tariff=tariff,
            prices_text=prices_text(model),
            auth=auth,
            proxy=provider.proxy,
            verify=provider.verify_tls,
            ca_file=provider.ca_file,
        )

    def _shared(self, headers: dict[str, str]) -> Mapping[str, str]:
        """One read-only map for all offers with the same headers:
        the upstream client writes out a map that cannot change only once."""
        return self._headers_sent.setdefault(tuple(headers.items()), MappingProxyType(headers))

    def _chained(self, compiled: CompiledProvider, kind: str, endpoint: Endpoint, model: Model) -> EditList | None:
        made = compiled.edits(kind, endpoint.protocol, model)
        if made is None:
            return None
        return self._chains.setdefault(made.identity(), made)


def _missing(mapping: ProtocolMapping, polling: Polling | None) -> list[str]:
    """The sections that a format lacks for being spoken to an upstream. For one that answers in streams only,
    `stream.to_hub` stands in for `response.to_hub`, but where the answer is asked for again, which is a whole one."""
    wanted = ["request.from_hub"]
    if polling is not None and polling.again is not None or mapping.stream_in is None or mapping.hub:
        wanted.append("response.to_hub")
    missing = [name for name in wanted if name not in mapping.sections]
    streams = polling is not None and polling.stream is not None
    return [*missing, "stream.to_hub"] if streams and mapping.stream_in is None else missing


def _nearer(base: Timeouts, own: Mapping[str, float]) -> Timeouts:
    """The budgets of a scope laid over those of the wider scope, field by field."""
    known = {field.name for field in fields(Timeouts)}
    return replace(base, **{name: value for name, value in own.items() if name in known}) if own else base
