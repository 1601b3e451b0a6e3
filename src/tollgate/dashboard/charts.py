"""Charts as geometry: values in, an immutable `Chart` out, which the template draws as SVG with a table beside it.

The drawing stretches with its box (labels are HTML around it), so x coordinates are in columns and y in percent. Each
series has a class, `s0` to `s6`; the stylesheet has the colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tollgate.dashboard.formatting import Unit
from tollgate.measures import Report

HEIGHT = 100.0
_GAP = 0.16
"""The space between bars, as a fraction of a column's width."""
OTHERS = "s6"


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of value over time; None is no value."""

    label: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Box:
    """A segment of a bar."""

    style: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """A time span: its bar, and the text shown when pointing at it."""

    x: float
    tip: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that the template draws; its time spans are the buckets of `report`."""

    id: str
    title: str
    unit: Unit
    report: Report
    series: Sequence[Series]
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[float, str], ...]
    """(height in percent from the top, label), top first."""

    @property
    def width(self) -> int:
        """The number of columns."""
        return max(1, len(self.columns))

    @property
    def empty(self) -> bool:
        """Whether nothing is drawn."""
        return not any(column.boxes for column in self.columns) and not any(path for _, path in self.lines)

    @property
    def about(self) -> str:
        """A description of the chart in words."""
        times = _times(self.report)
        words = f"{len(times)} columns from {times[0]} to {times[-1]}, UTC; "
        return words + ", ".join(each.label for each in self.series)

    @property
    def marks(self) -> tuple[str, ...]:
        """Labels below, evenly spaced."""
        of_days = self.report.width >= timedelta(hours=6)
        starts = [bucket.start for bucket in self.report]
        named = [stamp(start, timedelta(days=1)) if of_days else f"{start:%H:%M}" for start in starts]
        return tuple(named) if len(named) < 3 else (named[0], named[len(named) // 2], named[-1])

    @property
    def head(self) -> tuple[str, ...]:
        """The titles of the table beside it."""
        return ("Time (UTC)", *(each.label for each in self.series))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows of that table."""
        return tuple(
            (time, *("–" if (value := each.values[place]) is None else self.unit.show(value) for each in self.series))
            for place, time in enumerate(_times(self.report))
        )


def bars(id: str, title: str, unit: Unit, report: Report, series: Sequence[Series]) -> Chart:
    """Stacked bars, the first series at the bottom."""
    times = _times(report)
    sums = [sum(each.values[place] or 0 for each in series) for place in range(len(times))]
    top, ticks = _scale(max(sums, default=0), unit)
    columns = []
    for place, time in enumerate(times):
        boxes, level = [], 0.0
        for each in series:
            value = each.values[place] or 0
            if value > 0:
                height = value / top * HEIGHT
                level += height
                boxes.append(Box(each.style, round(HEIGHT - level, 3), round(height, 3)))
        columns.append(Column(place, _tip(time, unit, series, place), tuple(boxes)))
    return Chart(id, title, unit, report, series, tuple(columns), (), ticks)


def lines(id: str, title: str, unit: Unit, report: Report, series: Sequence[Series]) -> Chart:
    """One line per series; a gap where there is no value, a dash as wide as a bar for a single value."""
    top, ticks = _scale(max((value for each in series for value in each.values if value is not None), default=0), unit)
    drawn = tuple((each.style, _path(each.values, top)) for each in series)
    columns = tuple(Column(place, _tip(time, unit, series, place), ()) for place, time in enumerate(_times(report)))
    return Chart(id, title, unit, report, series, columns, drawn, ticks)


def spark(values: Sequence[float]) -> str:
    """A small line without axes: the points of a path in a box that is as wide as there are values, and 100 high."""
    return _path(values, max(values, default=0) or 1)


def _path(values: Sequence[float | None], top: float) -> str:
    steps, drawing = [], False
    for place, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        y = round(HEIGHT - value / top * HEIGHT, 3)
        alone = not drawing and (place + 1 >= len(values) or values[place + 1] is None)
        steps.append(
            f"M{place + _GAP:g} {y:g}h{1 - 2 * _GAP:g}" if alone else f"{'L' if drawing else 'M'}{place + 0.5:g} {y:g}"
        )
        drawing = True
    return "".join(steps)


def _scale(most: float, unit: Unit) -> tuple[float, tuple[tuple[float, str], ...]]:
    """A round number above the highest value, and the horizontal lines at even steps below it."""
    if most <= 0:
        return 1.0, ()
    rough = most / 3
    size = 10 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * 0.999)
    count = math.ceil(most / step * 0.999)
    top = step * count
    return top, tuple(
        (round(HEIGHT - line * HEIGHT / count, 3), unit.axis(step * line, step)) for line in range(count, -1, -1)
    )


def _tip(time: str, unit: Unit, series: Sequence[Series], place: int) -> str:
    words = [f"{each.label}: {unit.show(value)}" for each in reversed(series) if (value := each.values[place])]
    return "\n".join([time, *(words or ["nothing"])])


def _times(report: Report) -> list[str]:
    return [stamp(bucket.start, report.width) for bucket in report]


def stamp(start: datetime, width: timedelta) -> str:
    """The name of a bucket: 21 Nov, 21 Nov 14:00."""
    day = f"{start.day} {start:%b}"
    return day if width >= timedelta(days=1) else f"{day} {start:%H:%M}"
