"""One row per answered request: `UsageRow`, and `COLUMNS`, the one place that says what each column means.

The table in the store, the published files, their column comments and the reference page are all made from `COLUMNS`.
Columns may be added at the end; a name or a meaning never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple, TypedDict

import orjson

from tollgate.errors import UpstreamError, UpstreamFailed, UpstreamRejected

ZERO = Decimal(0)
ONE = Decimal(1)


@dataclass
class UsageRow:
    """What one request used and cost; the meaning of each field is in `COLUMNS`. `time` carries UTC.

    Without slots: orjson writes it in half the time.
    """

    request_id: str
    account_id: str
    key_id: str
    endpoint: str
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    asked_model: str = ""
    model: str = ""
    provider: str = ""
    upstream_model: str = ""
    client_protocol: str = ""
    upstream_protocol: str = ""
    attempts: int = 1
    status: int = 200
    outcome: str = "ok"
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    searches: int = 0
    images: int = 0
    cost: Decimal = ZERO
    native_cost: Decimal = ZERO
    currency: str = "USD"
    rate: Decimal = ONE
    prices: str | None = None
    ttfb_ms: float | None = None
    total_ms: float | None = None
    stream: bool = False
    estimated: bool = False
    end_user: str | None = None
    error_code: str | None = None
    lost: str | None = None
    provider_cost: Decimal | None = None
    price_rule: str = ""
    earlier_attempts: str | None = None
    metadata: str | None = None


class Column(NamedTuple):
    """A column of the usage table: its SQL type and what it holds."""

    name: str
    type: str
    about: str


_MONEY = "DECIMAL(38,12)"

COLUMNS: tuple[Column, ...] = (
    Column(
        "request_id", "VARCHAR NOT NULL", "the gateway's own id of the request, sent as x-request-id; one row per id"
    ),
    Column("account_id", "VARCHAR NOT NULL", "account that pays"),
    Column("key_id", "VARCHAR NOT NULL", "key that was used (its id, never the secret)"),
    Column(
        "endpoint",
        "VARCHAR NOT NULL",
        "what was called: chat, responses, messages, embeddings, images, mcp, count_tokens (which costs nothing: no "
        "tokens, no cost)",
    ),
    Column("time", "TIMESTAMP NOT NULL", "when the request arrived, UTC"),
    Column("asked_model", "VARCHAR", "model as the caller wrote it"),
    Column("model", "VARCHAR", "canonical model"),
    Column("provider", "VARCHAR", "provider that answered, or the last one tried"),
    Column("upstream_model", "VARCHAR", "the provider's own name of the model"),
    Column("client_protocol", "VARCHAR", "wire format the caller spoke"),
    Column(
        "upstream_protocol",
        "VARCHAR",
        "wire format the provider was spoken to in; differs from client_protocol when converted",
    ),
    Column(
        "attempts",
        "INTEGER",
        "providers tried for this request, 1 to 3; 0 where tokens were counted here and none was asked",
    ),
    Column(
        "status",
        "INTEGER",
        "HTTP status the caller got: 200 for a stream that failed after it began (a keep-alive comment begins it), "
        "499 when the caller left; the same as in `/metrics`",
    ),
    Column("outcome", "VARCHAR", "how it ended: ok, client_gone, upstream_error, timeout, error, rejected"),
    Column("input_tokens", "BIGINT", "prompt tokens that were neither read from nor written to a cache"),
    Column("cache_read_tokens", "BIGINT", "prompt tokens read from the provider's cache"),
    Column("cache_write_tokens", "BIGINT", "prompt tokens written to the provider's cache"),
    Column("output_tokens", "BIGINT", "generated tokens, reasoning not counted"),
    Column("reasoning_tokens", "BIGINT", "generated reasoning tokens"),
    Column("searches", "INTEGER", "hosted web searches"),
    Column("images", "INTEGER", "images produced, or sent where the price list has a price for each"),
    Column("cost", _MONEY + " NOT NULL", "what the account paid, USD (credits), rounded once, half-even, to 12 places"),
    Column("native_cost", _MONEY, "the same cost in the currency of the price list"),
    Column("currency", "VARCHAR", "currency of native_cost"),
    Column("rate", _MONEY, "USD for one unit of currency when the request was priced"),
    Column(
        "prices",
        "VARCHAR",
        "the price list in force, as compact JSON; price_rule tells what of it applied; NULL where there is none, an "
        "empty text in old rows, which no JSON function reads: nullif(prices, '')",
    ),
    Column(
        "ttfb_ms",
        "DOUBLE",
        "milliseconds from the request's arrival to the first byte of the answer; NULL for image jobs and counts of "
        "tokens, and where no provider answered",
    ),
    Column(
        "total_ms",
        "DOUBLE",
        "milliseconds from the request's arrival to the end of the answer, without the wait for its row to be on disk; "
        "for an image job to the end of the job",
    ),
    Column("stream", "BOOLEAN", "whether the answer was streamed"),
    Column(
        "estimated",
        "BOOLEAN",
        "whether token counts were estimated because the provider did not report them or reported more than can be, "
        "or the client left before it told the last ones",
    ),
    Column("end_user", "VARCHAR", "end user named by the caller (user, safety_identifier, metadata.user_id)"),
    Column("error_code", "VARCHAR", "stable word of the error, NULL when there was none"),
    Column(
        "lost",
        "VARCHAR",
        "parameters that the provider's format could not carry (also in x-tollgate-dropped), `; ` between them; "
        "NULL where there was none, cut after 2,000 characters",
    ),
    Column("provider_cost", _MONEY, "cost as the provider itself reported it, USD, where it does"),
    Column(
        "price_rule",
        "VARCHAR",
        "which of those prices applied: base, and the rows by length (volumes[0]), hours (windows[0]), service tier "
        "and multipliers that changed it; after a `+` a model that was consulted, whose tokens cost what it does; "
        "none where nothing was billed, empty for old rows and images",
    ),
    Column(
        "earlier_attempts",
        "VARCHAR",
        "attempts that failed before the one at provider, in order, as a JSON list of provider, upstream_model, error "
        "(as in error_code), status (what the provider answered, null if nothing) and ms; NULL where there was none, "
        "and for count_tokens",
    ),
    Column(
        "metadata",
        "VARCHAR",
        "the request's metadata as a JSON object, without what stands in end_user: the first 16 pairs, names up to 64 "
        "characters, texts up to 512, no nested values; NULL where there is none",
    ),
    Column(
        "seq",
        "BIGINT NOT NULL",
        "order in which rows became durable; rises without repeats within one ledger, or one gateway of several that "
        "share a store",
    ),
)


class FailedAttempt(TypedDict):
    """An entry of `earlier_attempts`, as its column says. A request keeps a list of them, and so does the stored row of
    an image job (under `earlier`), because a job outlives its request."""

    provider: str
    upstream_model: str
    error: str
    status: int | None
    ms: float


def failed_attempt(provider: str, upstream_model: str, error: UpstreamError, ms: float) -> FailedAttempt:
    """The entry of an attempt that ended in `error`, `ms` milliseconds after it began."""
    status = (
        error.upstream_status
        if isinstance(error, UpstreamFailed)
        else error.status
        if isinstance(error, UpstreamRejected)
        else None
    )
    return {
        "provider": provider,
        "upstream_model": upstream_model,
        "error": error.code,
        "status": status,
        "ms": round(ms, 1),
    }


def attempts_text(failed: Sequence[FailedAttempt]) -> str | None:
    """`earlier_attempts` of these entries."""
    return orjson.dumps(failed).decode() if failed else None


ROW_COLUMNS = COLUMNS[:-1]
"""Those that come from `UsageRow`; `seq` is the journal's."""


def base_type(column: Column) -> str:
    """The SQL type without its constraint."""
    return column.type.removesuffix(" NOT NULL")


def create_table(name: str) -> str:
    """`CREATE TABLE` for usage rows under this (qualified) name."""
    return f"CREATE TABLE {name} ({', '.join(f'{c.name} {c.type}' for c in COLUMNS)})"


def sql_text(value: str) -> str:
    """A text as SQL has it: "it's" -> 'it''s', in quotes."""
    return "'" + value.replace("'", "''") + "'"


def comments(name: str) -> list[str]:
    """The `COMMENT ON` statements that let a reader ask the file itself."""
    said = [f"COMMENT ON TABLE {name} IS 'one row per request answered by the gateway; times are UTC, money is exact'"]
    for column in COLUMNS:
        said.append(f"COMMENT ON COLUMN {name}.{column.name} IS {sql_text(column.about)}")
    return said
