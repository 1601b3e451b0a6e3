"""Positions of values in charts, and the tables beside them."""

from datetime import UTC, datetime, timedelta

import pytest

from tollgate.dashboard import charts
from tollgate.dashboard.charts import Series
from tollgate.dashboard.formatting import Unit
from tollgate.measures import Bucket, Report

HOUR = timedelta(hours=1)
UNIT = Unit(lambda value: f"{value:g}", lambda value, step: f"{value:g}")


def hours(count: int) -> Report:
    midnight = datetime(2026, 11, 21, tzinfo=UTC)
    return Report(HOUR, tuple(Bucket(midnight + place * HOUR, {}) for place in range(count)))


def test_bars_stack_from_the_bottom():
    chart = charts.bars("c", "Cost", UNIT, hours(3), [Series("one", "s0", [1, 0, 2]), Series("two", "s1", [3, 0, 2])])
    first = chart.columns[0]
    assert [(box.style, box.y, box.height) for box in first.boxes] == [("s0", 75.0, 25.0), ("s1", 0.0, 75.0)]
    assert chart.columns[1].boxes == ()
    assert first.tip == "21 Nov 00:00\ntwo: 3\none: 1"


@pytest.mark.parametrize(
    ("most", "labels"),
    [(4, ["4", "2", "0"]), (0.3, ["0.3", "0.2", "0.1", "0"]), (100, ["100", "50", "0"]), (7, ["7.5", "5", "2.5", "0"])],
)
def test_the_axis_ends_at_a_round_number_above_the_maximum(most, labels):
    chart = charts.bars("c", "Cost", UNIT, hours(3), [Series("one", "s0", [most, 0, 0])])
    assert [label for _, label in chart.ticks] == labels


@pytest.mark.parametrize("most", [1e-12, 3e-7, 0.99, 1, 1.01, 9.99, 12345, 1e15])
def test_no_value_is_above_the_axis(most):
    chart = charts.bars("c", "Cost", UNIT, hours(3), [Series("one", "s0", [most, most / 3, 0])])
    assert 0 <= chart.columns[0].boxes[0].y <= 60 and chart.columns[0].boxes[0].height <= 100.001


def test_lines_have_gaps_where_nothing_was_measured():
    chart = charts.lines(
        "l", "Latency", UNIT, hours(3), [Series("p50", "s1", [10, None, 10]), Series("none", "s2", [None] * 3)]
    )
    (_, path), (_, nothing) = chart.lines
    assert path == "M0.16 0h0.68M2.16 0h0.68" and nothing == ""


def test_a_line_starts_again_after_a_gap():
    chart = charts.lines("l", "Latency", UNIT, hours(5), [Series("p50", "s1", [10, 5, None, 5, 10])])
    assert chart.lines[0][1] == "M0.5 0L1.5 50M3.5 50L4.5 0"


def test_a_chart_without_values_is_marked_as_empty():
    assert charts.bars("c", "Cost", UNIT, hours(3), [Series("one", "s0", [0, 0, 0])]).empty


def test_the_table_has_the_values_of_the_chart():
    chart = charts.bars("c", "Cost", UNIT, hours(3), [Series("one", "s0", [1, 0, 2])])
    assert chart.head == ("Time (UTC)", "one")
    assert chart.rows == (("21 Nov 00:00", "1"), ("21 Nov 01:00", "0"), ("21 Nov 02:00", "2"))
