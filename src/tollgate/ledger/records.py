"""What the ledger keeps besides usage rows: accounts, keys, grants and generations, as frozen values.

Also how each becomes JSON (journal, admin socket) and comes back. Money travels as text, times as ISO 8601 UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TypeVar

import orjson

from tollgate.ledger.usage_row import FailedAttempt, UsageRow
from tollgate.wire import GenerationStatus

CapWindow = Literal["day", "week", "month", "total"]
CAP_WINDOWS: tuple[CapWindow, ...] = ("day", "week", "month", "total")
KEY_ENDPOINTS = ("chat", "responses", "messages", "embeddings", "images", "mcp")
"""The endpoints to which a key can be limited, named as in usage rows. The catalogs are not among them: they need no
key."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays. `id` is the readable name it was created with; `password_hash` is the dashboard's, opaque here."""

    id: str
    name: str = ""
    role: Literal["user", "operator"] = "user"
    password_hash: str = field(default="", repr=False)
    created_at: datetime = field(default_factory=_now)


class _Restrictable:
    """Has the attribute that a key computes from its fields. It is no field itself: neither stored nor compared."""

    __slots__ = ("restricted",)
    restricted: bool
    """The key is limited to endpoints, addresses or a number of requests at once. One attribute for all three, since
    every request asks."""


@dataclass(frozen=True, slots=True)
class KeyRecord(_Restrictable):
    """A key without its secret. `allowed_models`: None is every model, an empty tuple none (PITFALLS 24). `endpoints`
    (of `KEY_ENDPOINTS`) and `allowed_addresses` (addresses and networks): None or empty is no limit.

    `last_used` is filled in by listings, not on the hot path. `strict` refuses what a conversion would drop.
    """

    id: str
    account_id: str
    name: str = ""
    last_four: str = ""
    allowed_models: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    revoked: bool = False
    spend_cap: Decimal | None = None
    cap_window: CapWindow = "total"
    rpm: int | None = None
    tpm: int | None = None
    strict: bool = False
    max_concurrent: int | None = None
    endpoints: tuple[str, ...] | None = None
    allowed_addresses: tuple[str, ...] | None = None
    created_at: datetime = field(default_factory=_now)
    last_used: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "restricted", bool(self.max_concurrent is not None or self.endpoints or self.allowed_addresses)
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """Credits given (or, negative, taken back), with the reason."""

    id: str
    account_id: str
    amount: Decimal
    note: str = ""
    created_at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class JobRow:
    """What a job's usage row needs of its request and of its attempts, and what a later process needs to continue the
    job."""

    endpoint: str = "images"
    asked_model: str = ""
    lost: str | None = None
    attempts: int = 0
    earlier: tuple[FailedAttempt, ...] = ()
    """The failed attempts."""
    runs: int = 0
    """How often a synchronous provider was called."""
    held: Decimal = Decimal(0)
    instance: str = ""
    """The gateway that looks after the job."""


@dataclass(frozen=True, slots=True)
class Generation:
    """An image job with everything needed to refresh it after a restart.

    `upstream_id` and `upstream_state` are what the provider's poll step reads; `answer` is the provider's last answer,
    `input` the caller's, both as they came.
    """

    id: str
    account_id: str
    key_id: str = ""
    request_id: str = ""
    model: str = ""
    provider: str = ""
    status: GenerationStatus = "starting"
    input: Any = None
    webhook: str | None = None
    upstream_id: str = ""
    upstream_state: Any = None
    answer: Any = None
    images: tuple[Mapping[str, Any], ...] = ()
    cost: Decimal | None = None
    error: str | None = None
    row: JobRow = JobRow()
    created_at: datetime = field(default_factory=_now)
    updated_at: datetime = field(default_factory=_now)
    deadline_at: datetime | None = None


def columns_of(kind: type[Any]) -> tuple[str, ...]:
    """The columns in which stores keep records of a kind: all fields but `last_used`, which is computed from rows."""
    return tuple(each.name for each in fields(kind) if each.name != "last_used")


LISTED_BYTES = 32 * 1024 * 1024
"""The most bytes of inline pictures in one list of jobs: a hundred jobs of some megabytes each are too much for one
answer."""


def fitting(newest: Iterable[Generation]) -> list[Generation]:
    """As many of these jobs as fit into one list with their inline pictures, at least one. Reads no further."""
    listed: list[Generation] = []
    size = 0
    for each in newest:
        size += sum(len(image.get("data") or "") for image in each.images)
        if listed and size > LISTED_BYTES:
            break
        listed.append(each)
    return listed


def batches(sizes: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """These ids in order, in groups of at most `LISTED_BYTES` by the sizes beside them, at least one each."""
    ids: list[str] = []
    total = 0
    for id, size in sizes:
        total += size
        if ids and total > LISTED_BYTES:
            yield ids
            ids, total = [], size
        ids.append(id)
    if ids:
        yield ids


@dataclass(frozen=True, slots=True)
class AccountSums:
    """The arithmetic of one account: `balance` = `granted` - `spent`; `held` is what running requests reserve."""

    account_id: str
    granted: Decimal
    spent: Decimal
    held: Decimal

    @property
    def balance(self) -> Decimal:
        """Credits granted minus credits spent."""
        return self.granted - self.spent


def _plain(value: object) -> str:
    if type(value) is Decimal:
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be journalled")


def encode(record: object) -> bytes:
    """JSON bytes of a record, a usage row or a map of them. TypeError for values that JSON cannot express."""
    return orjson.dumps(record, default=_plain)


def encode_row(row: UsageRow) -> bytes:
    """JSON bytes of a usage row. A provider's absurd count or a caller's broken text must not cost the row: they are
    brought into range (64-bit counts, well-formed text) instead of refused."""
    try:
        return encode(row)
    except TypeError:
        for each in fields(row):
            value = getattr(row, each.name)
            if isinstance(value, str):
                setattr(row, each.name, value.encode("utf-8", "replace").decode())
            elif isinstance(value, int):
                setattr(row, each.name, max(-_INT64, min(_INT64, value)))
        return encode(row)


Record = TypeVar("Record", Account, KeyRecord, Grant, Generation, JobRow, AccountSums)

_INT64 = 2**63 - 1
_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("spend_cap", "amount", "cost", "granted", "spent", "held"), Decimal),
    **dict.fromkeys(("created_at", "updated_at", "expires_at", "last_used", "deadline_at"), datetime.fromisoformat),
    **dict.fromkeys(("allowed_models", "endpoints", "allowed_addresses", "images", "earlier"), tuple),
    "row": lambda values: decode(JobRow, values),
}
"""How fields are read back that are not plain JSON values."""


def read_value(name: str, value: Any) -> Any:
    """The value of a record's field, written as JSON or as a store has it."""
    return value if value is None or isinstance(value, datetime) or name not in _READ else _READ[name](value)


def decode(kind: type[Record], values: Mapping[str, Any]) -> Record:
    """The record written as `values`. Unknown names are ignored, so an older process can read a newer journal; null is
    the field's default."""
    names = (each.name for each in fields(kind) if values.get(each.name) is not None)
    return kind(**{name: read_value(name, values[name]) for name in names})
