"""Discovered models: the address of a provider's own list, and how its entries become models (`discover:` of its file).

A template converts an entry into the shape of a `models:` entry (with its `id`), which is then read by the same code as
a written one, so discovered models obey the same rules. An entry that does not fit is left out and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from tollgate.config.authorisation import Authorisation
from tollgate.config.fields import Fields
from tollgate.config.load import Document, List, Map, Mark, Node, Problem, Scalar, entries_of, lookup, plain
from tollgate.config.model import Model, Provider, currency_of, model_type_of
from tollgate.config.model_schema import model as model_schema
from tollgate.config.model_schema import price as price_schema
from tollgate.config.provider_model import read_model
from tollgate.config.provider_schema import DISCOVER_EVERY
from tollgate.config.reading import Reading
from tollgate.config.shape import check_shape
from tollgate.errors import UpstreamFailed
from tollgate.mapping.failures import MappingFailure
from tollgate.mapping.provider.errors import ErrorRules
from tollgate.mapping.provider.headers import Headers, compile_headers, headers_without_request
from tollgate.money import decimal_of, decimal_text
from tollgate.wording import nearest_or_all

if TYPE_CHECKING:
    from tollgate.mapping.pieces import Template
    from tollgate.mapping.provider.pieces import Pieces, Read

MAX_MODELS = 5000
MAX_PAGES = 100
"""A list with more pages, or one that comes back to an earlier page, is not read to its end."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """How to request a provider's models. `read` turns the response body into models."""

    provider: Provider
    url: str
    headers: Callable[[], Mapping[str, str]]
    """Computed again for every call."""
    query: Mapping[str, str]
    """The provider's query parameters, also those of further pages."""
    every: float
    auth: Authorisation | None
    errors: ErrorRules
    _list: Read
    _model: Template
    _when: Read | None
    _next: Read | None
    _variables: Mapping[str, Any]

    def following(self, url: str, body: Any) -> str | None:
        """The address of the page after the one that `url` gave; None at the end. Raises `UpstreamFailed` for
        another host, because it would get our key."""
        following = self._next(body) if self._next is not None else None
        if not isinstance(following, str) or not following:
            return None
        try:
            address = urljoin(url, following)
            same = urlsplit(address)[:2] == urlsplit(self.url)[:2]
        except ValueError:
            same = False
        if not same:
            raise UpstreamFailed("the list goes on at another host, which is not asked: discover.next")
        return address

    def read(self, *pages: Any) -> tuple[tuple[Model, ...], tuple[Problem, ...]]:
        """The models of a list's pages (usually one), and the problems of entries that were left out."""
        entries: list[Any] = []
        for body in pages:
            found = self._list(body)
            if isinstance(found, dict):
                found = list(found.values())
            if not isinstance(found, list):
                return (), (self._problem("the list of models was not found in the answer", "discover.list"),)
            entries += found
        made: dict[str, dict[str, Any]] = {}
        problems: list[Problem] = []
        for entry in entries[:MAX_MODELS]:
            if self._when is not None and not self._when(entry):
                continue
            try:
                fields = self._model(entry, vars=self._variables)
            except MappingFailure as failure:
                problems.append(self._problem(str(failure)))
                continue
            name = fields.pop("id", None) if isinstance(fields, dict) else None
            if isinstance(name, str) and name and name.isprintable():
                made.setdefault(name, fields)
            else:
                kind = "an unprintable" if isinstance(name, str) and name else "no"
                problems.append(self._problem(f"found {kind} id for an entry with {_fields(entry)}, wanted a text"))
        if len(entries) > MAX_MODELS:
            problems.append(
                self._problem(f"found {len(entries)} entries, wanted at most {MAX_MODELS}: the others are left out")
            )
        models, more = self._models(made)
        return models, (*problems, *more)

    def unbillable(self, models: Iterable[Model], rates: Collection[str]) -> tuple[Problem, ...]:
        """The problems of those of these models whose price is in a currency without an exchange rate."""
        known = ", ".join(sorted(rates))
        return tuple(
            self._problem(f"found {model.id} with a price in {currency}, wanted a currency with a rate: {known}")
            for model in models
            if (currency := currency_of(model)) not in (None, *rates)
        )

    def _models(self, made: Mapping[str, dict[str, Any]]) -> tuple[tuple[Model, ...], list[Problem]]:
        document = Document(f"{self.provider.document.file}#discovered", "", Map({}, {}, self._mark))
        provider_node = Scalar(self.provider.name, self.provider.name, True, self._mark)
        written = self._node(dict(made))
        assert isinstance(written, Map)
        entries: dict[str, Node] = {"provider": provider_node, "models": written}
        document.root = Map(entries, dict.fromkeys(entries, self._mark), self._mark)
        problems, root = check_shape(document, "provider")
        listed = root.get("models") if root is not None else None
        models: list[Model] = []
        for name, node in entries_of(listed).items():
            if plain(node) != plain(written.entries[name]):
                continue  # a part does not fit (reported above); without it the model might be served at no price
            reading = Reading(document)
            model = read_model(reading, self.provider, name, node, self._mark)
            if reading.problems:
                problems.extend(reading.problems)
            elif not self._is_served(model):
                problems.append(self._problem(f"found {model.id} of type {model.type}, which no endpoint serves"))
            else:
                models.append(model)
        return tuple(models), problems

    def _is_served(self, model: Model) -> bool:
        """Whether an endpoint of the provider is for models of this type."""
        if model.type == "image":
            return self.provider.images is not None
        return any(model_type_of(name) == model.type for name in self.provider.endpoints)

    @property
    def _mark(self) -> Mark:
        return (self.provider.discover or self.provider.document.root).mark

    def _problem(self, message: str, path: str = "discover.model") -> Problem:
        return self.provider.document.problem(self._mark, message, path=path)

    def _node(self, value: Any) -> Node:
        """A value as a configuration node; numbers keep the digits they were sent with."""
        mark = self._mark
        if isinstance(value, dict):
            return Map(
                {str(key): self._node(item) for key, item in value.items()}, {str(key): mark for key in value}, mark
            )
        if isinstance(value, list):
            return List(tuple(self._node(item) for item in value), mark)
        if isinstance(value, float):
            try:
                exact = decimal_of(repr(value))
            except ValueError:
                return Scalar(str(value), str(value), True, mark)
            whole = exact == exact.to_integral_value()
            return Scalar(int(exact) if whole else Decimal(decimal_text(exact)), decimal_text(exact), False, mark)
        if isinstance(value, str):
            return Scalar(value, value, True, mark)
        return Scalar(value, "null" if value is None else str(value).lower(), False, mark)


def _fields(entry: Any) -> str:
    """The names of an entry's fields, which help to find a mistake in the template; never its values."""
    if not isinstance(entry, dict):
        return "no fields"
    names = (str(key)[:40] for key in list(entry)[:6])
    shown = ", ".join(name if name.isprintable() else ascii(name) for name in names)  # it goes to the log
    return f"the fields {shown}" if entry else "no fields"


def compile_discovery(
    pieces: Pieces, headers: Headers, query: Mapping[str, str], auth: Authorisation | None, errors: ErrorRules
) -> Discovery | None:
    """The `discover:` block of a provider, or None; its list is requested with the provider's own authorisation.
    Mistakes go to `pieces`."""
    node = pieces.provider.discover
    if node is None:
        return None
    values: dict[str, Any] = {"vars": pieces.variables, "secret": pieces.secrets}
    headers = {**headers, **compile_headers(pieces, Fields(node).nodes("headers"), ())}
    url = pieces.url(node.get("url"))
    entries = pieces.reader(node.get("list"))
    shape, when = node.get("model"), node.get("when")
    model = pieces.template(shape, pieces.names("$", "vars"))
    _check_fields(pieces, shape)
    test = pieces.condition(when)
    following = pieces.reader(node.get("next"), "vars")
    if url is None or entries is None or model is None or when is not None and test is None:
        return None
    address = url(**values)
    if not isinstance(address, str):
        if not pieces.provider.off:
            pieces.mistake(
                node.get("url") or node, "the address is incomplete: something it reads has no value", "discover.url"
            )
            return None
        address = ""  # not called while the provider is off, but its examples run
    return Discovery(
        pieces.provider,
        address,
        partial(headers_without_request, headers, values),
        query,
        Fields(node).number("every", DISCOVER_EVERY),
        auth,
        errors,
        entries,
        model,
        test,
        partial(following, vars=pieces.variables) if following is not None else None,
        pieces.variables,
    )


def _check_fields(pieces: Pieces, shape: Node | None) -> None:
    """Note a field that no model has: every entry of the list would be left out."""
    known = ("id", *model_schema()["properties"])
    price = lookup(shape, "price")
    for node, what, path, words in (
        (shape, "model", "discover.model", known),
        (price, "price", "discover.model.price", tuple(price_schema()["properties"])),
    ):
        for key, mark in node.keys.items() if isinstance(node, Map) else ():
            if not key.startswith("$") and key not in words:
                pieces.mistake(mark, f"a {what} has no field `{key}`", path, nearest_or_all(key, words))
