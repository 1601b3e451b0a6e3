"""One row per answered request: `UsageRow`, with the type and the description of each column.

The table in the store, the published files, their column comments and the reference page are all made from it.
Columns may be added at the end; a name or a meaning never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, NamedTuple, TypedDict, get_args, get_type_hints

import orjson

from tollgate.errors import (
    InternalError,
    TollgateError,
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamTimeout,
)

ZERO = Decimal(0)
ONE = Decimal(1)


class Column(NamedTuple):
    """A column of the usage table: its SQL type and what it holds."""

    name: str
    type: str
    about: str


_MONEY = "DECIMAL(38,12)"
_FREE_TEXTS = frozenset({"end_user", "lost", "earlier_attempts", "metadata"})
"""Texts that may be different in every row, and are absent in most."""


@dataclass
class UsageRow:
    """What one request used and cost; each field with the type and the meaning of its column. `time` carries UTC.

    Without slots: orjson writes it in half the time.
    """

    request_id: Annotated[
        str, "VARCHAR NOT NULL", "the gateway's own id of the request, sent as x-request-id; one row per id"
    ]
    account_id: Annotated[str, "VARCHAR NOT NULL", "account that is charged"]
    key_id: Annotated[str, "VARCHAR NOT NULL", "key that was used (its id, never the secret)"]
    endpoint: Annotated[
        str,
        "VARCHAR NOT NULL",
        "endpoint of the request: chat, responses, messages, embeddings, images, mcp, count_tokens (free: no tokens, "
        "no cost)",
    ]
    time: Annotated[datetime, "TIMESTAMP NOT NULL", "when the request arrived, UTC"] = field(
        default_factory=lambda: datetime.now(UTC)
    )
    asked_model: Annotated[str, "VARCHAR", "model name in the request"] = ""
    model: Annotated[str, "VARCHAR", "canonical model"] = ""
    provider: Annotated[
        str, "VARCHAR", "provider that answered, or whose error was returned, or else the last one tried"
    ] = ""
    upstream_model: Annotated[str, "VARCHAR", "the provider's name for the model"] = ""
    client_protocol: Annotated[str, "VARCHAR", "wire format of the client's request"] = ""
    upstream_protocol: Annotated[
        str, "VARCHAR", "wire format of the request to the provider; differs from client_protocol when converted"
    ] = ""
    attempts: Annotated[
        int,
        "INTEGER",
        "providers tried for this request, 1 to 3; 0 if the gateway counted the tokens without asking one",
    ] = 1
    status: Annotated[
        int,
        "INTEGER",
        "HTTP status sent to the client: 200 for a stream that failed after its start (a keep-alive comment starts "
        "it), 499 if the client disconnected; the same as in `/metrics`",
    ] = 200
    outcome: Annotated[str, "VARCHAR", "how it ended: ok, client_gone, upstream_error, timeout, error, rejected"] = "ok"
    input_tokens: Annotated[int, "BIGINT", "prompt tokens that were neither read from nor written to a cache"] = 0
    cache_read_tokens: Annotated[int, "BIGINT", "prompt tokens read from the provider's cache"] = 0
    cache_write_tokens: Annotated[int, "BIGINT", "prompt tokens written to the provider's cache"] = 0
    output_tokens: Annotated[int, "BIGINT", "generated tokens, reasoning not counted"] = 0
    reasoning_tokens: Annotated[int, "BIGINT", "generated reasoning tokens"] = 0
    searches: Annotated[int, "INTEGER", "hosted web searches"] = 0
    images: Annotated[int, "INTEGER", "images produced, or sent where the price list has a price for each"] = 0
    cost: Annotated[
        Decimal,
        f"{_MONEY} NOT NULL",
        "amount charged to the account, in USD (credits), rounded once, half-even, to 12 places",
    ] = ZERO
    native_cost: Annotated[Decimal, _MONEY, "the same cost in the currency of the price list"] = ZERO
    currency: Annotated[str, "VARCHAR", "currency of native_cost"] = "USD"
    rate: Annotated[Decimal, _MONEY, "USD for one unit of currency when the request was priced"] = ONE
    prices: Annotated[
        str | None,
        "VARCHAR",
        "price list in force, as compact JSON; price_rule names the parts that applied; NULL if there is none, and "
        "for count_tokens and failed image jobs; an empty string in old rows, which JSON functions reject: use "
        "nullif(prices, '')",
    ] = None
    ttfb_ms: Annotated[
        float | None,
        "DOUBLE",
        "milliseconds from the request's arrival to the first byte of the answer; NULL for image jobs and "
        "count_tokens, and if no provider answered",
    ] = None
    total_ms: Annotated[
        float | None,
        "DOUBLE",
        "milliseconds from the request's arrival to the end of the answer, not including the write of its row to "
        "disk; for an image job to the end of the job",
    ] = None
    stream: Annotated[bool, "BOOLEAN", "whether the answer was streamed"] = False
    estimated: Annotated[
        bool,
        "BOOLEAN",
        "whether token counts were estimated, because the provider did not report them or reported impossible ones, "
        "or the client disconnected before the last ones arrived",
    ] = False
    end_user: Annotated[
        str | None, "VARCHAR", "end user named in the request (user, safety_identifier, metadata.user_id)"
    ] = None
    error_code: Annotated[str | None, "VARCHAR", "stable code of the error, NULL if there was none"] = None
    lost: Annotated[
        str | None,
        "VARCHAR",
        "parameters that the provider's format cannot express (also in x-tollgate-dropped), separated by `; `; NULL "
        "if there were none, cut after 2,000 characters",
    ] = None
    provider_cost: Annotated[
        Decimal | None, _MONEY, "cost reported by the provider, in USD; NULL if it reported none"
    ] = None
    price_rule: Annotated[
        str,
        "VARCHAR",
        "which of those prices applied: base, and the rows by length (volumes[0]), hours (windows[0]), service tier "
        "and multipliers that changed it; after a `+` a model that was consulted, whose tokens are billed at its own "
        "prices; none if nothing was billed, empty for old rows and images",
    ] = ""
    earlier_attempts: Annotated[
        str | None,
        "VARCHAR",
        "attempts that failed, but for the one at provider, in order, as a JSON list of provider, upstream_model, "
        "error (as in error_code), status (the provider's HTTP status, null without an answer) and ms; NULL if there "
        "were none, and for count_tokens",
    ] = None
    metadata: Annotated[
        str | None,
        "VARCHAR",
        "the request's metadata as a JSON object, without the value in end_user: the first 16 pairs, names up to 64 "
        "characters, texts up to 512, no nested values; NULL if there is none",
    ] = None


ROW_COLUMNS = tuple(
    Column(name, *get_args(hint)[1:]) for name, hint in get_type_hints(UsageRow, include_extras=True).items()
)
TOKENS = tuple(column.name for column in ROW_COLUMNS if column.name.endswith("_tokens"))
"""The columns with counts of tokens; no token is in two of them."""
COLUMNS: tuple[Column, ...] = (
    *ROW_COLUMNS,
    Column(
        "seq",
        "BIGINT NOT NULL",
        "order in which rows became durable; unique and increasing within one ledger, or within one gateway of "
        "several that share a store",
    ),
)
"""The columns of a row, and `seq`, which the journal adds."""


class FailedAttempt(TypedDict):
    """An entry of `earlier_attempts`, see that column. A request has a list of them, and so has the stored row of an
    image job (under `earlier`), because a job outlives its request."""

    provider: str
    upstream_model: str
    error: str
    status: int | None
    ms: float


def failed_attempt(provider: str, upstream_model: str, error: UpstreamError, ms: float) -> FailedAttempt:
    """The entry of an attempt that ended in `error`, `ms` milliseconds after it began."""
    status = None
    if isinstance(error, UpstreamFailed):
        status = error.upstream_status
    elif isinstance(error, UpstreamRejected):
        status = error.status
    return FailedAttempt(
        provider=provider, upstream_model=upstream_model, error=error.code, status=status, ms=round(ms, 1)
    )


def outcome_without_answer(error: TollgateError) -> str:
    """The `outcome` of a request that ended in this error before an answer began."""
    if isinstance(error, UpstreamTimeout):
        return "timeout"
    if error.status < 500:
        return "rejected"
    return "error" if isinstance(error, InternalError) else "upstream_error"


def attempts_text(failed: Sequence[FailedAttempt]) -> str | None:
    """`earlier_attempts` of these entries."""
    return orjson.dumps(failed).decode() if failed else None


def base_type(column: Column) -> str:
    """The SQL type without its constraint."""
    return column.type.removesuffix(" NOT NULL")


def create_table(name: str, *, for_readers: bool = False) -> str:
    """`CREATE TABLE` for usage rows under this (qualified) name. `for_readers`: in a published file, whose format has
    several ways to compress texts. DuckDB would try each of them with each column for every few rows; the best is
    known."""
    columns = (f"{c.name} {c.type}{_compression(c) if for_readers else ''}" for c in COLUMNS)
    return f"CREATE TABLE {name} ({', '.join(columns)})"


def _compression(column: Column) -> str:
    if base_type(column) != "VARCHAR" or column.name in _FREE_TEXTS:
        return ""
    return f" USING COMPRESSION {'fsst' if column.name == 'request_id' else 'dictionary'}"


def sql_text(value: str) -> str:
    """A text as SQL has it: "it's" -> 'it''s', in quotes."""
    return "'" + value.replace("'", "''") + "'"


def comments(name: str) -> list[str]:
    """The `COMMENT ON` statements that store the descriptions in the database file."""
    return [
        f"COMMENT ON TABLE {name} IS 'one row per request that the gateway answered; times are UTC, money is exact'",
        *(f"COMMENT ON COLUMN {name}.{column.name} IS {sql_text(column.about)}" for column in COLUMNS),
    ]
