"""The settings in gateway.yaml, one frozen dataclass for each of its blocks; `model.Gateway` has them all.

The default of a setting is written here and nowhere else, with its unit and its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from tollgate.config.load import Mark

EngineName = Literal["hypercorn", "uvicorn"]
DEFAULT_RETRY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


Proxies = tuple[IPv4Network | IPv6Network | Literal["unix"], ...]
"""Networks (a single address is a network too), and `unix` for every client of a unix socket."""


@dataclass(frozen=True, slots=True)
class Server:
    """The addresses of the gateway, and the limits of a request."""

    bind: tuple[str, ...] = ("127.0.0.1:8787",)
    base_url: str = "http://127.0.0.1:8787"
    legacy_base_urls: tuple[str, ...] = ()
    """Full addresses ending in /v1, with any host and prefix; they reach the same endpoints (SPEC, service 8)."""
    engine: EngineName = "hypercorn"
    max_body_bytes: int = 32 * 1024 * 1024
    """For LLM endpoints; 32 MiB is the documented limit of the messages API."""
    max_small_body_bytes: int = 4 * 1024 * 1024
    """For image and tool endpoints; the default of the MCP SDK."""
    max_bodies_bytes: int = 0
    """For all bodies in memory at the same time; 0: a share of the machine's memory (`server.py`)."""
    max_nesting: int = 200
    """Deepest JSON nesting accepted from a client."""
    max_values: int = 1_000_000
    """Most values in one JSON body. Providers of embeddings accept some 300,000 tokens at once, the most values of
    any real request; parsing a million values blocks all other requests for some tenths of a second."""
    drain_seconds: float = 30.0
    """How long running requests may continue after SIGTERM."""
    keepalive_comment_seconds: float = 15.0
    """A stream that was silent for this long gets an SSE comment, so that load balancers keep it open."""
    trusted_proxies: Proxies = ()
    """Proxies in front of the gateway whose `X-Forwarded-For` is trusted."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may call, in lower case and without a slash at the end; `*` is every origin."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Four budgets in seconds; set per gateway, provider or model (the nearest wins, field by field)."""

    connect: float = 10.0
    first_byte: float = 120.0
    idle: float = 120.0
    total: float = 900.0


class ConnectionSettings(NamedTuple):
    """How a provider is connected to. A tuple, because each call looks its connections up by it, and a dataclass would
    compute its hash in Python."""

    proxy: str | None = None
    """It takes precedence over the environment's; `""` means none."""
    verify_tls: bool = True
    ca_file: str | None = None
    client_certificate: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Attempts over different routes before the first byte (SPEC, limits: three)."""

    attempts: int = 3
    statuses: frozenset[int] = DEFAULT_RETRY_STATUSES
    cooldown_failures: int = 3
    """Consecutive failures after which a route cools down."""
    cooldown_seconds: float = 30.0
    max_retry_after_seconds: float = 120.0
    """SDKs stop retrying if the wait is longer than this."""


@dataclass(frozen=True, slots=True)
class Credits:
    """Limits and exchange rates of balances. Credits are USD."""

    minimum: Decimal = Decimal("0.01")
    """Requests of an account with less are refused."""
    hold_cap: Decimal = Decimal(5)
    """The most one request reserves, however large its `max_tokens`."""
    rates: Mapping[str, Decimal] = field(
        default_factory=lambda: MappingProxyType({"USD": Decimal(1), "CNY": Decimal("0.14")})
    )
    """USD for one unit of a currency."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where the ledger is stored: a PostgreSQL database that several gateways share (`url`), or, if that is empty, a
    DuckDB file in `directory`."""

    url: str = ""
    directory: Path = Path("var")
    usage_directory: Path = Path("usage")
    publish_seconds: float = 5.0
    apply_seconds: float = 5.0
    """The longest time before a durable row is written to the store; many are written at once."""
    instance: str = "main"
    """This gateway's name. Gateways that share a store need different names; usage files have it in their names."""
    keep_rows_days: int = 0
    """0: rows are kept for ever, because nobody asked for less."""
    keep_files_days: int = 0
    """0: usage files are kept for ever; never fewer days than rows."""
    keep_jobs_days: int = 0
    """0: image jobs are kept for ever, with the pictures inside them."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Limits of the guarded download of a client's URL."""

    max_bytes: int = 20 * 1024 * 1024
    seconds: float = 20.0
    allow_private: bool = False
    """True only for tests: otherwise private and loopback addresses are refused."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The web pages."""

    enabled: bool = True
    session_hours: float = 12.0


@dataclass(frozen=True, slots=True)
class Plugin:
    """A Python module of additional filters. `mark` is where the gateway file names it, and does not count for
    equality."""

    module: str
    mark: Mark = field(compare=False)
