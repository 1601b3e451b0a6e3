"""The providers, their models and the whole configuration once they are read: frozen dataclasses.

`settings.py` has the blocks of gateway.yaml. `build.py` makes them from documents. A field of type `Node`, `Map` or
`List` is a piece of the mapping language (a template, an expression, an edit list), which the compiler takes with its
position in the file. Everything else is a plain value, whose default is written here and nowhere else, with its unit
and its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tollgate.config.authorisation import Auth
from tollgate.config.load import Document, List, Map, Mark, Node, lookup, text_in
from tollgate.config.pricing import Pricing
from tollgate.config.settings import (
    ConnectionSettings,
    Credits,
    Dashboard,
    Fetch,
    Plugin,
    Retry,
    Server,
    Store,
    Timeouts,
)


def _empty() -> Mapping[str, Any]:
    """A read-only empty mapping. A factory, because before Python 3.12 a mappingproxy cannot be a default itself."""
    return MappingProxyType({})


def names_match(globs: tuple[str, ...], *names: str) -> bool:
    """Whether one of the names matches the globs. A glob with a leading `!` excludes what it matches; if all globs
    exclude, everything else matches."""
    wanted = [glob for glob in globs if not glob.startswith("!")]
    return (not wanted or any(fnmatchcase(name, glob) for glob in wanted for name in names)) and not any(
        fnmatchcase(name, glob[1:]) for glob in globs if glob.startswith("!") for name in names
    )


Rank = tuple[int, int, str]


def rank_of(priority: int, weight: int, provider: str) -> Rank:
    """The rank of a provider among those of one model: the smallest is the first choice, whose facts and price are
    the model's."""
    return priority, -weight, provider


Framing = Literal[
    "sse", "sse-text", "ndjson", "json-array", "lines", "text", "aws-eventstream", "length-prefixed", "enveloped"
]
"""How events are separated in a stream. The events of `TEXT_FRAMINGS` are plain text instead of JSON: `sse-text` is
`sse`, `lines` has one event a line, and `text` has none: what has arrived is the event."""
InnerFraming = Literal["sse", "sse-text", "ndjson", "json-array", "lines"]
TEXT_FRAMINGS = ("sse-text", "lines", "text")
BodyEncoding = Literal["json", "form", "multipart"]
StepEncoding = Literal["json", "multipart", "form", "file"]
"""Encodings of the requests of image jobs, which may upload files."""
StepFraming = Literal["sse", "ndjson"]
"""Framings of the answers of image jobs."""
ModelType = Literal["chat", "embedding", "image"]


def model_type_of(protocol: str) -> ModelType:
    """The type of model a protocol is for: `embeddings` (or a name ending so) -> embedding, any other -> chat."""
    return "embedding" if protocol == "embeddings" or protocol.endswith("-embeddings") else "chat"


@dataclass(frozen=True, slots=True)
class Edits:
    """One edit list (MAPPING b.4) with the file it was written in."""

    document: Document
    nodes: List


@dataclass(frozen=True, slots=True)
class EditSet:
    """The three edit lists of one scope; None where the scope has none."""

    request: Edits | None = None
    response: Edits | None = None
    stream: Edits | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Edits, abilities and a priority for every model whose canonical or upstream id matches a glob."""

    match: tuple[str, ...]
    edits: EditSet = EditSet()
    can: Mapping[str, object] = field(default_factory=_empty)
    protocols: tuple[str, ...] = ()
    """The names of the endpoints through which the edits apply; empty: all."""
    priority: int | None = None
    """Overrides the provider's; a model's own overrides this."""
    in_text: List | None = None
    """Marks in the text of answers. Here and elsewhere only those of the nearest scope apply."""

    def applies_to(self, model: Model, endpoint: str) -> bool:
        """Whether the policy applies to this model through the endpoint of this name."""
        return (not self.protocols or endpoint in self.protocols) and names_match(self.match, model.id, model.upstream)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An entry of `speaks:`: its address, framing, mapping and edits."""

    name: str
    """Its key: chat, responses, messages, gemini, embeddings, ..."""
    mapping: str
    """Its wire format: the endpoint's name, unless the file names another mapping."""
    url: Node
    """A template: `https://host/path/{{ $model.upstream }}`; values are path-escaped unless `| raw`."""
    stream_url: Node | None = None
    framing: Framing = "sse"
    inner: InnerFraming | None = None
    """How events are separated inside the frames of `framing`, where the frames carry a stream of their own."""
    inner_of: Node | None = None
    """An expression for the piece of that stream inside a frame; without it, the frame's data is the piece."""
    prepare: List | None = None
    """The calls that are made before a request, and where their results stand in it."""
    send: Map | None = None
    """What of a request stands outside its body."""
    unwrap: Node | None = None
    """An expression for the event inside a frame (base64 payloads of an event stream)."""
    headers: Mapping[str, Node] = field(default_factory=_empty)
    query: Mapping[str, Node] = field(default_factory=_empty)
    edits: EditSet = EditSet()
    can: Mapping[str, object] = field(default_factory=_empty)
    in_text: List | None = None
    usage: Node | None = None
    errors: Map | None = None
    batch: int | None = None
    """For embeddings: most inputs in one upstream call."""
    encoding: BodyEncoding = "json"
    """How requests are encoded; `form` is application/x-www-form-urlencoded."""
    poll: Map | None = None
    """How an answer that is not ready at once is polled (`mapping/provider/polling.py`)."""
    count_tokens_url: Node | None = None
    models: tuple[str, ...] = ()
    """Globs over canonical and upstream ids: only matching models are served here, without those that match a glob
    with a leading `!`; empty: all models of the right type."""

    def serves(self, model: Model) -> bool:
        """Whether it is for models of this type, and `models` admits this one."""
        return model_type_of(self.name) == model.type and names_match(self.models, model.id, model.upstream)


@dataclass(frozen=True, slots=True)
class Model:
    """One canonical model at one provider."""

    id: str
    """The canonical id."""
    provider: str
    upstream: str
    """The provider's own name for it."""
    mark: Mark
    """Where it is declared, for messages."""
    aliases: tuple[str, ...] = ()
    name: str = ""
    description: str = ""
    type: ModelType = "chat"
    created: int = 0
    canonical_slug: str = ""
    hugging_face_id: str | None = None
    context: int = 0
    max_output: int | None = None
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    tokenizer: str = "Other"
    encoding: str | None = None
    """The tiktoken encoding (o200k_base, cl100k_base) for counting tokens locally."""
    instruct_type: str | None = None
    parameters: tuple[str, ...] = ()
    dimensions: tuple[int, ...] = ()
    max_dimension: int | None = None
    max_inputs: int = 2048
    price: Pricing | None = None
    protocols: tuple[str, ...] = ()
    """The names of the endpoints that serve this model; empty: all of the provider's for its type."""
    can: Mapping[str, object] = field(default_factory=_empty)
    in_text: List | None = None
    edits: EditSet = EditSet()
    timeouts: Mapping[str, float] = field(default_factory=_empty)
    priority: int = 0
    """Lower is tried first."""
    weight: int = 1
    public: bool = True
    """Listed in the catalog without a key."""
    tags: tuple[str, ...] = ()
    input_schema: Mapping[str, object] | None = None
    image: Map | None = None
    """For image models: their own `price`, `bill` and steps, as nodes for the image compiler."""
    retires: str = ""
    """The date (YYYY-MM-DD) from which the provider no longer serves it; empty: none is known."""


def currency_of(model: Model) -> str | None:
    """The currency of a model's price; None if it names none, which is USD, or has no price."""
    if model.image is not None:
        return text_in(lookup(model.image, "price", "currency"))
    return model.price.currency if model.price is not None else None


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream service. `off` is the reason why it is not used (a secret that is not set), else empty."""

    name: str
    document: Document
    about: str = ""
    auth: Auth = Auth()
    headers: Mapping[str, Node] = field(default_factory=_empty)
    query: Mapping[str, Node] = field(default_factory=_empty)
    variables: Mapping[str, Node] = field(default_factory=_empty)
    """`vars:` of the file: text or `$secret.NAME`; read as `$vars.name` in urls, headers and auth options."""
    lacks_variables: bool = False
    """Whether a reported mistake removed some of them: then an unknown `$vars.name` is not reported."""
    endpoints: Mapping[str, Endpoint] = field(default_factory=_empty)
    defines: Map | None = None
    edits: EditSet = EditSet()
    policies: tuple[Policy, ...] = ()
    can: Mapping[str, object] = field(default_factory=_empty)
    in_text: List | None = None
    usage: Node | None = None
    errors: Map | None = None
    timeouts: Mapping[str, float] = field(default_factory=_empty)
    models: tuple[Model, ...] = ()
    images: Map | None = None
    discover: Map | None = None
    examples: List | None = None
    priority: int = 0
    weight: int = 1
    connection: ConnectionSettings = ConnectionSettings()
    off: str = ""

    def serving(self, model: Model) -> list[Endpoint]:
        """The endpoints through which it serves a chat or embedding model, in the order of the model's protocols."""
        named = (self.endpoints.get(name) for name in model.protocols or self.endpoints)
        return [endpoint for endpoint in named if endpoint is not None and endpoint.serves(model)]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The whole configuration: settings, providers by name (also those that are off), and mapping documents by name."""

    root: Path
    """The folder that relative paths start from."""
    server: Server = Server()
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    credits: Credits = Credits()
    store: Store = Store()
    fetch: Fetch = Fetch()
    dashboard: Dashboard = Dashboard()
    secrets_dir: Path = Path("secrets")
    aliases: Mapping[str, str] = field(default_factory=_empty)
    """Aliases of the whole gateway: name -> canonical id or another alias (cycles are errors)."""
    plugins: tuple[Plugin, ...] = ()
    providers: Mapping[str, Provider] = field(default_factory=_empty)
    mappings: Mapping[str, Document] = field(default_factory=_empty)
    files: tuple[Path, ...] = ()
    """All files of the configuration, for the reload watcher."""
    folder_patterns: tuple[str, ...] = ()
    """Patterns of folders in which it may get more files, for the same."""
