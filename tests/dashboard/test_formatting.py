"""How values are written on the pages."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tollgate.dashboard import formatting

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("0", "$0.00"),
        ("12.3", "$12.30"),
        ("12.345678", "$12.345678"),
        ("0.000000000001", "$0.000000000001"),
        ("-5", "−$5.00"),
        ("1234567.5", "$1,234,567.50"),
    ],
    ids=["nothing", "tenths", "fine", "finest", "negative", "large"],
)
def test_money_has_every_digit(amount, said):
    assert formatting.money(Decimal(amount)).striptags() == said


def test_money_of_nothing_is_a_dash():
    assert formatting.money(None).striptags() == "–"


@pytest.mark.parametrize(
    ("value", "step", "said"),
    [
        (0, 0.5, "0"),
        (1.5, 0.5, "1.5 ms"),
        (3 * 0.1, 0.1, "0.3 ms"),
        (7.5, 2.5, "7.5 ms"),
        (1000, 200, "1000 ms"),
        (1500, 500, "1.5 s"),
    ],
)
def test_times_beside_an_axis_have_the_decimals_that_the_step_needs(value, step, said):
    assert formatting.time_axis(value, step) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (950, "950"), (1200, "1.2k"), (34_000, "34k"), (999_999, "1M"), (5_600_000, "5.6M"), (2e9, "2B")],
)
def test_counts_are_compact(value, said):
    assert formatting.compact(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.42, "0.4 ms"), (842.3, "842 ms"), (999.9, "1.0 s"), (12_345, "12 s"), (183_000, "3 min 3 s")]
)
def test_times_are_readable(value, said):
    assert formatting.milliseconds(value) == said


@pytest.mark.parametrize(("value", "said"), [(0, "0%"), (0.0001, "<0.1%"), (0.0123, "1.2%"), (0.5, "50%"), (1, "100%")])
def test_a_small_share_is_not_shown_as_none(value, said):
    assert formatting.share(value) == said


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (timedelta(seconds=-3), "just now"),
        (timedelta(minutes=-1), "1 minute ago"),
        (timedelta(hours=-5), "5 hours ago"),
        (timedelta(days=-1), "yesterday"),
        (timedelta(days=1), "tomorrow"),
        (timedelta(days=30), "in 30 days"),
        (timedelta(days=30, seconds=-1), "in 30 days"),
        (timedelta(days=-200), "5 May 2026"),
    ],
)
def test_times_are_relative(gap, said):
    assert formatting.relative(NOW + gap, NOW) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(Decimal("0E-12"), "0"), (Decimal("0.140000000000"), "0.14"), ("text", "text"), (None, formatting.DASH)],
)
def test_a_value_of_a_row_is_shown_in_plain_notation(value, said):
    assert formatting.exact(value) == said


def test_a_relative_time_has_the_exact_one_as_its_title():
    said = formatting.when(NOW - timedelta(hours=2), NOW)
    assert 'title="2026-11-21 10:00:00 UTC"' in said and 'datetime="2026-11-21T10:00:00+00:00"' in said


@pytest.mark.parametrize(
    ("value", "step", "said"),
    [
        (1.5, 0.5, "$1.50"),
        (0, 0.5, "$0"),
        (4, 2, "$4"),
        (7.5, 2.5, "$7.50"),
        (0.0002, 0.0001, "$0.0002"),
        (0.00025, 0.00025, "$0.00025"),
    ],
)
def test_an_axis_has_the_decimals_its_step_needs(value, step, said):
    assert formatting.money_axis(value, step) == said


@pytest.mark.parametrize(
    ("amount", "currency", "said"),
    [
        ("0.3", "USD", "$0.30"),
        ("15", "USD", "$15"),
        ("0", "USD", "free"),
        ("2.5", "CNY", "2.50 CNY"),
        ("0.0375", "USD", "$0.0375"),
    ],
)
def test_prices_are_exact(amount, currency, said):
    assert formatting.price(Decimal(amount), currency).striptags() == said
