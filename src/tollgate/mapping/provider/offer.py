"""What the request path uses of a provider: an `Offer` is one model through one protocol, with everything precomputed.

A request takes an offer's URL and headers and runs its edits; nothing here parses, looks up or decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.addresses import with_query
from tollgate.config.authorisation import Authorisation
from tollgate.config.model import BodyEncoding, Framing, InnerFraming, Model
from tollgate.config.settings import ConnectionSettings, Timeouts
from tollgate.forms import FORM, encode_fields
from tollgate.mapping.context import Context
from tollgate.mapping.failures import UnfitRequest
from tollgate.mapping.names import readable_headers
from tollgate.mapping.provider.reported_usage import ReportedUsage
from tollgate.mapping.values import text_of
from tollgate.multipart import encode_form, multipart_type, new_boundary

if TYPE_CHECKING:
    from tollgate.mapping import CompiledMapping
    from tollgate.mapping.edits import EditList
    from tollgate.mapping.in_text import InText
    from tollgate.mapping.pieces import Template
    from tollgate.mapping.provider.errors import ErrorRules
    from tollgate.mapping.provider.polling import Polling
    from tollgate.mapping.provider.prepares import Prepare
    from tollgate.mapping.provider.sends import Sends, Sent
    from tollgate.tariff import Tariff

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Address:
    """Where calls go: complete URLs for whole and for streamed answers, and for counting tokens if the provider has
    that."""

    whole: str
    stream: str
    count_tokens: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    """Their query parameters, for the calls beside a request whose address is not out of an answer."""


BOUNDARY = new_boundary()
"""Between the fields of this process's uploads; callers do not know it."""
CONTENT_TYPES: Mapping[BodyEncoding, str] = {
    "json": "application/json",
    "form": FORM,
    "multipart": multipart_type(BOUNDARY),
}


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One model through one protocol of one provider.

    `protocol` is the wire format (the mapping's name), so a request is native if it equals the client's. An edit list
    is None if there are no edits: then the body or the event's bytes can pass unchanged. `tariff` is what the caller
    pays (the catalog's price of the canonical model, SPEC service 1), `own_tariff` the price of this route's file.
    """

    provider: str
    route: str
    """`provider/upstream id`: the route's name for health and stickiness; the same for all its protocols."""
    model: Model
    protocol: str
    endpoint: str
    """The key under `speaks:`."""
    mapping: CompiledMapping
    address: Address
    errors: ErrorRules
    timeouts: Timeouts
    fixed_headers: Mapping[str, str]
    made_headers: tuple[tuple[str, Callable[..., Any]], ...] = ()
    """Headers computed for each call: those that read the caller's own (`$headers`), whether the answer streams
    (`$stream`), the time or a nonce; absent ones are left out."""
    request_edits: EditList | None = None
    response_edits: EditList | None = None
    stream_edits: EditList | None = None
    can: Mapping[str, Any] = field(default_factory=dict)
    model_facts: Mapping[str, Any] = field(default_factory=dict)
    """What `$model` reads in templates, edits and mappings."""
    usage: ReportedUsage = ReportedUsage()
    """How its token counts are read, if not as in its mapping."""
    framing: Framing = "sse"
    inner: InnerFraming | None = None
    inner_of: Template | None = None
    unwrap: Template | None = None
    in_text: InText | None = None
    """Marks in the text of its answers."""
    batch: int | None = None
    encoding: BodyEncoding = "json"
    polling: Polling | None = None
    """How an answer that is not ready at once is polled."""
    prepares: tuple[Prepare, ...] = ()
    """The calls that are made before a request."""
    sends: Sends | None = None
    """The parts of a request outside its body; None for a POST of the request as its body."""
    tariff: Tariff | None = None
    own_tariff: Tariff | None = None
    prices_text: str = ""
    """The current prices, for the usage row (prices change, and a row must stay explicable)."""
    auth: Authorisation | None = None
    connection: ConnectionSettings = ConnectionSettings()
    streams: bool = field(init=False)
    """Whether this upstream streams: its mapping has stream rules, its file does not exclude it, and where the
    answer is polled the file has the address of a stream. If not, the whole answer is requested."""
    whole: bool = field(init=False)
    """Whether this upstream gives whole answers. If not, a stream is requested and put together."""
    longest_whole: int | None = field(init=False)
    """The most output tokens that a whole answer may be asked for; above it a stream is requested and put together."""
    marked: bool = field(init=False)
    """Whether answers are converted because of marks in their text, also where the formats match."""

    shaped: bool = field(init=False)
    """Whether more than a POST of the request's body is sent: `prepares` or `sends` apply."""

    minter: str = field(init=False)
    """Who can read what this upstream encrypts or signs: the word in `can: {signatures_of: ...}`; empty for the vendor
    of the format."""

    def __post_init__(self) -> None:
        mapping, can, polling = self.mapping, self.can, self.polling
        streams = (mapping is None or mapping.stream_in is not None) and can.get("streams") is not False
        whole = (mapping is None or "response.to_hub" in mapping.sections) and can.get("whole") is not False
        if polling is not None:
            streams, whole = streams and polling.stream is not None, polling.again is not None
        object.__setattr__(self, "streams", streams)
        object.__setattr__(self, "whole", whole)
        longest = can.get("whole")
        object.__setattr__(self, "longest_whole", longest if type(longest) is int else None)
        object.__setattr__(self, "marked", self.in_text is not None and self.in_text.native)
        object.__setattr__(self, "shaped", bool(self.prepares) or self.sends is not None)
        object.__setattr__(self, "minter", str(can.get("signatures_of") or ""))

    def for_answer(self, headers: Values, request: Any) -> Offer:
        """This offer with the usage template for a streamed answer with these headers to a client's request: without
        it if its condition does not hold. The same offer if that changes nothing."""
        usage = self.usage.for_answer(headers, request)
        return self if usage is self.usage else replace(self, usage=usage)

    def for_request(self, request: Any) -> Offer:
        """This offer without its usage template if the template's condition does not hold for a client's request."""
        usage = self.usage.for_request(request)
        return self if usage is self.usage else replace(self, usage=usage)

    def url(self, stream: bool, query: str = "") -> str:
        """The address to call; `query` is the client's raw query string on the native path, or empty."""
        address = self.address.stream if stream else self.address.whole
        return with_query(address, query) if query else address

    def request_parts(self, document: Any, *, stream: bool) -> tuple[bytes, Sent | None]:
        """The bytes of the body for a finished request, and its parts outside the body (None without `send:`). Raises
        `UnfitRequest` if it cannot be written."""
        sent: Sent | None = None
        if self.sends is not None:
            sent = self.sends.of(document, self.model_facts, stream=stream)
            if sent.body is None:
                return b"", sent
            document = sent.body
        return self.written(document, self.encoding)[0], sent

    def written(self, document: Any, encoding: BodyEncoding) -> tuple[bytes, str]:
        """A document as bytes in this encoding, and their content type. Raises `UnfitRequest` if it cannot be JSON, or
        not a form."""
        kind = CONTENT_TYPES[encoding]
        try:
            if encoding == "json":
                return orjson.dumps(document), kind
            if type(document) is not dict:
                raise UnfitRequest(
                    f"a form has fields, and the request came to a {type(document).__name__}", self.mapping.file
                )
            return (encode_fields(document), kind) if encoding == "form" else encode_form(document, BOUNDARY)
        except TypeError as error:
            # the arguments of a tool call are JSON text of their own, perhaps too deep or with too large numbers
            raise UnfitRequest(f"the request cannot be converted for this model: {str(error)[:200]}") from None
        except ValueError as error:
            raise UnfitRequest(str(error), self.mapping.file) from None

    def headers(
        self,
        inbound: Values = {},  # noqa: B006 - never written to
        *,
        stream: bool = False,
        native: bool = False,
    ) -> Mapping[str, str]:
        """The headers to send: the fixed ones (always the same read-only map), and those computed from the caller's
        headers (lower-case names), from whether a stream is requested, and from whether the body passes unchanged."""
        if not self.made_headers:
            return self.fixed_headers
        made, readable = dict(self.fixed_headers), readable_headers(inbound)
        context = Context(model=self.model_facts, can=self.can)
        for name, template in self.made_headers:
            value = template(context, headers=readable, stream=stream, native=native)
            if value is not None:
                made[name] = value if type(value) is str else text_of(value)
        return made
