"""How input about accounts, keys and credits is read, and the messages for invalid input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tollgate.errors import BadRequest
from tollgate.notations import read_addresses, read_amount, read_endpoints, read_expiry, read_models, read_rate

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("", None),
        ("never", None),
        ("30d", NOW + timedelta(days=30)),
        ("12H", NOW + timedelta(hours=12)),
        ("1y", NOW + timedelta(days=365)),
        ("2026-11-21", datetime(2026, 11, 22, tzinfo=UTC)),
        ("2027-01-31", datetime(2027, 2, 1, tzinfo=UTC)),
        ("20270131", datetime(2027, 2, 1, tzinfo=UTC)),
        ("2027-W04-7", datetime(2027, 2, 1, tzinfo=UTC)),
        ("2027-01-31T10:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
        ("2027-01-31T10:00+02:00", datetime(2027, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_an_expiry_is_a_span_a_last_day_or_a_time(text: str, moment: datetime | None) -> None:
    assert read_expiry(text, NOW) == moment


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", 'expiry is "soon", wanted a span such as 30d'),
        ("0d", "wanted a span"),
        ("30", "wanted a span"),
        ("2026-11-20", "over already"),
    ],
)
def test_an_invalid_expiry_is_rejected(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_expiry(text, NOW)


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("", None),
        ("all", None),
        ("*", None),
        ("none", ()),
        ("acme/*", ("acme/*",)),
        (" acme/*, other/large\nthird", ("acme/*", "other/large", "third")),
        ("acme/*,!acme/old", ("acme/*", "!acme/old")),
    ],
)
def test_models_are_globs_all_or_none(text: str, models: tuple[str, ...] | None) -> None:
    assert read_models(text) == models


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("10", "10"),
        ("$2.50", "2.50"),
        ("-3", "-3"),
        ("1_000", "1000"),
        ("0.000000000001", "0.000000000001"),
        ("2.50000000000000", "2.5"),
    ],
)
def test_an_amount_is_exact(text: str, amount: str) -> None:
    assert read_amount(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "ten", "NaN", "Infinity", "1e999", "1,5"])
def test_an_invalid_amount_is_rejected(text: str) -> None:
    with pytest.raises(BadRequest, match="amount"):
        read_amount(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "0.0000000000001",
            "amount is 0.0000000000001, which has 13 decimal places, wanted at most the 12 that are kept",
        ),
        ("-1e-20", "amount is -0.00000000000000000001, which has 20 decimal places"),
        ("1.0000000000005", "13 decimal places"),
    ],
)
def test_an_amount_with_more_decimal_places_than_are_stored_is_rejected(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words.replace(".", r"\.")):
        read_amount(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", None),
        ("all", None),
        (" * ", None),
        ("192.0.2.1", ("192.0.2.1",)),
        ("192.0.2.1/32, 2001:DB8::1/128", ("192.0.2.1", "2001:db8::1")),
        ("10.0.0.0/8 10.0.0.0/255.0.0.0", ("10.0.0.0/8",)),
        ("2001:db8::/32,", ("2001:db8::/32",)),
        ("::ffff:192.0.2.1 ::ffff:10.0.0.0/104", ("192.0.2.1", "10.0.0.0/8")),
        ("::/0, 0.0.0.0/0", ("::/0", "0.0.0.0/0")),
    ],
)
def test_addresses_are_normalized(text: str, kept: tuple[str, ...] | None) -> None:
    assert read_addresses(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [("", None), ("all", None), ("chat", ("chat",)), ("MCP, chat  chat", ("chat", "mcp"))],
)
def test_endpoints_are_sorted_without_duplicates(text: str, kept: tuple[str, ...] | None) -> None:
    assert read_endpoints(text) == kept


@pytest.mark.parametrize("character", ["x", "9"])
@pytest.mark.parametrize(
    "read",
    [read_expiry, read_endpoints, read_addresses, read_amount, lambda text: read_rate(text, "rpm")],
    ids=["expiry", "endpoints", "addresses", "amount", "rate"],
)
def test_an_error_quotes_the_beginning_of_a_long_text(read: Callable[[str], object], character: str) -> None:
    with pytest.raises(BadRequest) as raised:
        read(character * 10_000)
    assert character * 60 in raised.value.message and len(raised.value.message) < 300
