"""What a configuration is, once read: frozen dataclasses, no YAML left except the pieces the mapping compiler takes.

`build.py` makes these from documents. A field of type `Node` is a piece of the mapping language (a template, an
expression, an edit list) kept with its position for the compiler; everything else is a plain value with a default
written here, once, with its unit and its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tollgate.config.authorisation import Auth
from tollgate.config.load import Document, List, Map, Mark, Node
from tollgate.config.pricing import Pricing


def _empty() -> Mapping[str, Any]:
    """A read-only empty mapping; a factory, since a mappingproxy is no allowed default before Python 3.12."""
    return MappingProxyType({})


def names_match(globs: tuple[str, ...], *names: str) -> bool:
    """Whether any of the names matches the globs. A glob with a `!` in front leaves out what it matches; where all
    globs are such, everything else matches."""
    wanted = [glob for glob in globs if not glob.startswith("!")]
    return (not wanted or any(fnmatchcase(name, glob) for glob in wanted for name in names)) and not any(
        fnmatchcase(name, glob[1:]) for glob in globs if glob.startswith("!") for name in names
    )


Rank = tuple[int, int, str]


def rank_of(priority: int, weight: int, provider: str) -> Rank:
    """The place of a provider among those that offer one model: the smallest is the first choice, whose facts and price
    are the model's."""
    return priority, -weight, provider


EngineName = Literal["hypercorn", "uvicorn"]
Framing = Literal["sse", "sse-text", "ndjson", "json-array", "aws-eventstream"]
"""`sse-text` is cut as `sse`; its events are plain text instead of JSON."""
InnerFraming = Literal["sse", "sse-text", "ndjson", "json-array"]
BodyEncoding = Literal["json", "form"]
StepEncoding = Literal["json", "multipart", "form", "file"]
"""Of image jobs, which may upload files."""
StepFraming = Literal["sse", "ndjson"]
"""Of answers about image jobs."""
ModelType = Literal["chat", "embedding", "image"]

DEFAULT_RETRY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


Proxies = tuple[IPv4Network | IPv6Network | Literal["unix"], ...]
"""Networks (an address is one of its own), and `unix` for whoever connects through a unix socket."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where the gateway listens and what it is called."""

    bind: tuple[str, ...] = ("127.0.0.1:8787",)
    base_url: str = "http://127.0.0.1:8787"
    legacy_base_urls: tuple[str, ...] = ()
    """Whole addresses ending in /v1, on any host and prefix; they reach the same endpoints (SPEC, service 8)."""
    engine: EngineName = "hypercorn"
    max_body_bytes: int = 32 * 1024 * 1024
    """LLM routes; 32 MiB is what the messages API documents."""
    max_small_body_bytes: int = 4 * 1024 * 1024
    """Image and tool routes; the MCP SDK's own default."""
    max_bodies_bytes: int = 0
    """Of all bodies held at once; 0 is a share of the memory there is (`server.py`)."""
    max_nesting: int = 200
    """Deepest JSON nesting taken from a client."""
    max_values: int = 1_000_000
    """Most values in one JSON body. Providers of embeddings take some 300,000 tokens at once, the most values that real
    requests hold; reading a million holds everybody else up for some tenths of a second."""
    drain_seconds: float = 30.0
    """How long SIGTERM waits for running requests."""
    keepalive_comment_seconds: float = 15.0
    """A stream silent for this long gets an SSE comment, so that load balancers keep it open."""
    trusted_proxies: Proxies = ()
    """Those in front of the gateway whose `X-Forwarded-For` is believed."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may call, lower-case and without a slash at the end; `*` is every one."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Four budgets in seconds; set per gateway, provider or model (the nearest wins, field by field)."""

    connect: float = 10.0
    first_byte: float = 120.0
    idle: float = 120.0
    total: float = 900.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Attempts over different routes before the first byte (SPEC, limits: three)."""

    attempts: int = 3
    statuses: frozenset[int] = DEFAULT_RETRY_STATUSES
    cooldown_failures: int = 3
    """Consecutive failures after which a route cools down."""
    cooldown_seconds: float = 30.0
    max_retry_after_seconds: float = 120.0
    """SDKs stop retrying when told to wait longer than this."""


@dataclass(frozen=True, slots=True)
class Credits:
    """Money rules. Credits are USD."""

    minimum: Decimal = Decimal("0.01")
    hold_cap: Decimal = Decimal(5)
    """The most one request holds, however large its `max_tokens`."""
    rates: Mapping[str, Decimal] = field(
        default_factory=lambda: MappingProxyType({"USD": Decimal(1), "CNY": Decimal("0.14")})
    )
    """USD for one unit of a currency."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where the ledger lives: `url` empty means the embedded DuckDB file under `directory`,
    else a PostgreSQL database that several gateways share."""

    url: str = ""
    directory: Path = Path("var")
    usage_directory: Path = Path("usage")
    publish_seconds: float = 5.0
    apply_seconds: float = 5.0
    """The longest that a durable row waits to be stored; many are stored at once."""
    instance: str = "main"
    """This gateway's name: where several share a store, each has its own, also in the names of usage files."""
    keep_rows_days: int = 0
    """0: rows stay in the store for ever, since nobody asked for less."""
    keep_files_days: int = 0
    """0: usage files stay for ever; never fewer days than rows."""
    keep_jobs_days: int = 0
    """0: image jobs stay for ever, with the pictures that stand in them."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bounds of the guarded download of a client's URL."""

    max_bytes: int = 20 * 1024 * 1024
    seconds: float = 20.0
    allow_private: bool = False
    """True only for tests: private and loopback addresses are refused otherwise."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The web pages."""

    enabled: bool = True
    session_hours: float = 12.0


@dataclass(frozen=True, slots=True)
class Edits:
    """One edit list (MAPPING b.4) with the file it stands in."""

    document: Document
    nodes: List


@dataclass(frozen=True, slots=True)
class EditSet:
    """The three edit lists of one scope; None where the scope says nothing."""

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
    """The edits apply only under these upstream protocols; empty: all."""
    priority: int | None = None
    """Instead of the provider's; a model's own wins."""
    in_text: List | None = None
    """Marks in the text of answers; here and elsewhere the nearest scope's alone hold."""

    def holds(self, model: Model, protocol: str) -> bool:
        """Whether it speaks of this model through this upstream protocol."""
        return (not self.protocols or protocol in self.protocols) and names_match(self.match, model.id, model.upstream)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One protocol a provider speaks: where, in which framing, with which mapping and edits."""

    protocol: str
    """The mapping's name: chat, responses, messages, gemini, embeddings, ..."""
    mapping: str
    """Usually the protocol; another file when the provider's dialect is a foreign format."""
    url: Node
    """A template: `https://host/path/{{ $model.upstream }}`; values are path-escaped unless `| raw`."""
    stream_url: Node | None = None
    framing: Framing = "sse"
    inner: InnerFraming | None = None
    """How events are cut out of what the frames of `framing` carry, where that is a stream of its own."""
    unwrap: Node | None = None
    """An expression giving the event inside a frame (base64 payloads of an event stream)."""
    headers: Mapping[str, Node] = field(default_factory=_empty)
    query: Mapping[str, Node] = field(default_factory=_empty)
    edits: EditSet = EditSet()
    can: Mapping[str, object] = field(default_factory=_empty)
    in_text: List | None = None
    usage: Node | None = None
    errors: Map | None = None
    batch: int | None = None
    """Embeddings: most inputs in one upstream call."""
    encoding: BodyEncoding = "json"
    """How requests are written; `form` is application/x-www-form-urlencoded."""
    poll: Map | None = None
    """How an answer that is not there at once is asked for again (`mapping/provider/polling.py`)."""
    count_tokens_url: Node | None = None
    models: tuple[str, ...] = ()
    """Globs over canonical and upstream ids: only these models are served here, not those behind a `!`; empty:
    all that fit."""

    def serves(self, model: Model) -> bool:
        """Whether the globs let a model through."""
        return names_match(self.models, model.id, model.upstream)


@dataclass(frozen=True, slots=True)
class Model:
    """One offer: a canonical model at one provider."""

    id: str
    provider: str
    upstream: str
    mark: Mark
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
    """tiktoken encoding name (o200k_base, cl100k_base) when counting locally."""
    instruct_type: str | None = None
    parameters: tuple[str, ...] = ()
    dimensions: tuple[int, ...] = ()
    max_dimension: int | None = None
    max_inputs: int = 2048
    price: Pricing | None = None
    protocols: tuple[str, ...] = ()
    """Upstream protocols this model is served through; empty: all of the provider's that fit its type."""
    can: Mapping[str, object] = field(default_factory=_empty)
    in_text: List | None = None
    edits: EditSet = EditSet()
    timeouts: Mapping[str, float] = field(default_factory=_empty)
    priority: int = 0
    """Lower is tried first."""
    weight: int = 1
    public: bool = True
    """Shown in the catalog without a key."""
    tags: tuple[str, ...] = ()
    input_schema: Mapping[str, object] | None = None
    image: Map | None = None
    """Image models: per-model `price`, `bill` and step overrides, as nodes for the image compiler."""
    retires: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream service. `off` says why it is not used (a secret that is not set), or is empty."""

    name: str
    document: Document
    about: str = ""
    auth: Auth = Auth()
    headers: Mapping[str, Node] = field(default_factory=_empty)
    query: Mapping[str, Node] = field(default_factory=_empty)
    variables: Mapping[str, Node] = field(default_factory=_empty)
    """`vars:` of the file: text or `$secret.NAME`; read as `$vars.name` in urls, headers and auth options."""
    lacks_variables: bool = False
    """Whether some of them were left out because of a mistake that is told, so that what reads them is none."""
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
    proxy: str | None = None
    verify_tls: bool = True
    ca_file: str | None = None
    off: str = ""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A Python module of extra filters, and where the gateway file names it; moved to another line it is the same."""

    module: str
    mark: Mark = field(compare=False)


@dataclass(frozen=True, slots=True)
class Gateway:
    """The whole configuration: server settings, providers by name (off ones included) and mapping documents by name."""

    root: Path
    """The directory relative paths start from."""
    server: Server = Server()
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    credits: Credits = Credits()
    store: Store = Store()
    fetch: Fetch = Fetch()
    dashboard: Dashboard = Dashboard()
    secrets_dir: Path = Path("secrets")
    aliases: Mapping[str, str] = field(default_factory=_empty)
    """Gateway-wide aliases: name -> canonical id or another alias (cycles are errors)."""
    plugins: tuple[Plugin, ...] = ()
    providers: Mapping[str, Provider] = field(default_factory=_empty)
    mappings: Mapping[str, Document] = field(default_factory=_empty)
    files: tuple[Path, ...] = ()
    """Every file read, for the reload watcher."""
