"""Formatting of values on the pages."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tollgate.dashboard import formatting

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0.00"),
        ("12.3", "$12.30"),
        ("12.345678", "$12.345678"),
        ("0.000000000001", "$0.000000000001"),
        ("-5", "−$5.00"),
        ("1234567.5", "$1,234,567.50"),
    ],
    ids=["zero", "tenths", "small", "smallest", "negative", "large"],
)
def test_money_has_every_digit(amount, text):
    assert formatting.money(Decimal(amount)).striptags() == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0"),
        ("0.5", "$0.50"),
        ("0.996", "$1.00"),
        ("1234.5", "$1,234.50"),
        ("0.0934", "$0.093"),
        ("0.000000000001", "$0.000000000001"),
    ],
)
def test_plain_money_is_rounded_to_cents_or_else_to_two_digits(amount, text):
    assert formatting.plain_money(Decimal(amount)) == text


def test_absent_money_is_a_dash():
    assert formatting.money(None).striptags() == "–"


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (0, 0.5, "0"),
        (1.5, 0.5, "1.5 ms"),
        (3 * 0.1, 0.1, "0.3 ms"),
        (7.5, 2.5, "7.5 ms"),
        (1000, 200, "1000 ms"),
        (1500, 500, "1.5 s"),
    ],
)
def test_times_of_an_axis_have_the_decimals_of_its_step(value, step, text):
    assert formatting.time_axis(value, step) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (950, "950"), (1200, "1.2k"), (34_000, "34k"), (999_999, "1M"), (5_600_000, "5.6M"), (2e9, "2B")],
)
def test_counts_are_compact(value, text):
    assert formatting.compact(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.42, "0.4 ms"), (842.3, "842 ms"), (999.9, "1.0 s"), (12_345, "12 s"), (183_000, "3 min 3 s")]
)
def test_durations_are_rounded_to_readable_units(value, text):
    assert formatting.milliseconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0%"), (0.0001, "<0.1%"), (0.0123, "1.2%"), (0.5, "50%"), (1, "100%")])
def test_a_small_share_is_not_shown_as_zero(value, text):
    assert formatting.share(value) == text


@pytest.mark.parametrize(
    ("gap", "text"),
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
def test_times_are_relative(gap, text):
    assert formatting.relative(NOW + gap, NOW) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(Decimal("0E-12"), "0"), (Decimal("0.140000000000"), "0.14"), ("text", "text"), (None, formatting.DASH)],
)
def test_values_of_a_row_are_shown_in_plain_notation(value, text):
    assert formatting.exact(value) == text


def test_a_relative_time_has_the_exact_time_as_its_title():
    html = formatting.when(NOW - timedelta(hours=2), NOW)
    assert 'title="2026-11-21 10:00:00 UTC"' in html and 'datetime="2026-11-21T10:00:00+00:00"' in html


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (1.5, 0.5, "$1.50"),
        (0, 0.5, "$0"),
        (4, 2, "$4"),
        (7.5, 2.5, "$7.50"),
        (0.0002, 0.0001, "$0.0002"),
        (0.00025, 0.00025, "$0.00025"),
    ],
)
def test_amounts_of_an_axis_have_the_decimals_of_its_step(value, step, text):
    assert formatting.money_axis(value, step) == text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("0.3", "USD", "$0.30"),
        ("15", "USD", "$15"),
        ("0", "USD", "free"),
        ("2.5", "CNY", "2.50 CNY"),
        ("0.0375", "USD", "$0.0375"),
    ],
)
def test_prices_are_exact(amount, currency, text):
    assert formatting.price(Decimal(amount), currency).striptags() == text
