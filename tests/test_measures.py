"""Sums of measures, and percentiles estimated from histograms."""

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tollgate.ledger.usage_row import COLUMNS
from tollgate.measures import ENDPOINTS, OUTCOME_FILTERS, OUTCOMES, Bucket, Measures, Report, percentile


def packed(values: list[float]) -> int:
    steps = [min(max(math.floor(math.log2(value) * 4), 0), Measures.STEPS - 1) for value in values]
    return Measures.pack(steps, [1] * len(steps))


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize(
    "spread",
    [
        lambda rng: rng.uniform(100, 5000),
        lambda rng: rng.lognormvariate(6, 1),
        lambda rng: rng.expovariate(1 / 800) + 1,
    ],
    ids=["even", "lognormal", "exponential"],
)
def test_a_percentile_is_accurate_within_six_percent(spread, share):
    rng = random.Random(7)
    values = sorted(spread(rng) for _ in range(5000))
    exact = values[int(share * len(values))]
    assert percentile(packed(values), share) == pytest.approx(exact, rel=0.06)


def test_times_below_a_millisecond_have_a_percentile_below_one():
    assert percentile(packed([0.4] * 10), 0.5) < 1


def test_a_percentile_of_no_values_is_none():
    assert percentile(0, 0.5) is None and Measures().first_byte_ms(0.95) is None


def test_histograms_add_like_their_values():
    one, other = [10.0, 200.0, 3000.0], [15.0, 15.0, 9e9]
    assert packed(one) + packed(other) == packed(one + other)


def test_measures_add_exactly():
    one = Measures(requests=2, failed=1, cost=Decimal("0.1"), input_tokens=5, first_byte=packed([10]))
    one.add(Measures(requests=1, cost=Decimal("0.000000000002"), output_tokens=7, first_byte=packed([20])))
    assert (one.requests, one.failed, one.cost, one.tokens) == (3, 1, Decimal("0.100000000002"), 12)
    assert one.failure_rate == pytest.approx(1 / 3)


def test_a_report_sums_its_buckets_by_descending_cost():
    start = datetime(2026, 11, 21, tzinfo=UTC)
    day = [
        Bucket(
            start + timedelta(hours=hour),
            {
                "all": {"": Measures(requests=2, cost=Decimal(3))},
                "model": {"a": Measures(requests=1, cost=Decimal(1)), "b": Measures(requests=1, cost=Decimal(2))},
            },
        )
        for hour in range(3)
    ]
    report = Report(timedelta(hours=1), tuple(day))
    assert report.all().cost == 9 and [(name, measures.cost) for name, measures in report.by("model")] == [
        ("b", 6),
        ("a", 3),
    ]
    assert report.until == start + timedelta(hours=3)


def test_the_choices_of_endpoint_and_outcome_match_the_column_descriptions():
    about = {column.name: column.about for column in COLUMNS}
    assert about["endpoint"].partition(": ")[2].partition(" (")[0].split(", ") == list(ENDPOINTS)
    assert about["outcome"].partition(": ")[2].split(", ") == list(OUTCOMES)
    assert set(OUTCOME_FILTERS) == {*OUTCOMES, "failed"}
