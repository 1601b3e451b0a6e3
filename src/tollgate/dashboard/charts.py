"""Charts as geometry: values in, an immutable `Chart` out, which the template draws as SVG with a table beside it.

The drawing stretches with its box (labels are HTML around it), so coordinates are x in columns and y in percent. Each
series is told apart by a class, `s0` to `s6`; colours are the stylesheet's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

Show = Callable[[float], str]
Axis = Callable[[float, float], str]
"""A value beside an axis, and the step between two of them: what decimals are needed follows from the step."""

HEIGHT = 100.0
_GAP = 0.16
"""Of a column's width: the space between bars."""
OTHERS = "s6"


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of value over time; None is no value."""

    label: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of a bar."""

    style: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of time: its bar, and what is said when it is pointed at."""

    x: float
    tip: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything the template draws. `kind` is bars or lines."""

    id: str
    kind: str
    title: str
    about: str
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[float, str], ...]
    """(height in percent from the top, label), top first."""
    marks: tuple[str, ...]
    """Labels below, evenly spread."""
    legend: tuple[tuple[str, str], ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: bool

    @property
    def width(self) -> int:
        """Columns across."""
        return max(1, len(self.columns))


def bars(
    id: str, title: str, starts: Sequence[datetime], width: timedelta, series: Sequence[Series], show: Show, axis: Axis
) -> Chart:
    """Stacked bars, the first series at the bottom."""
    sums = [sum(each.values[place] or 0 for each in series) for place in range(len(starts))]
    top, ticks = _scale(max(sums, default=0), axis)
    columns = []
    for place, start in enumerate(starts):
        boxes, level = [], 0.0
        for each in series:
            value = each.values[place] or 0
            if value > 0:
                height = value / top * HEIGHT
                level += height
                boxes.append(Box(each.style, round(HEIGHT - level, 3), round(height, 3)))
        columns.append(Column(place, _tip(start, width, series, place, show), tuple(boxes)))
    return _chart(id, "bars", title, starts, width, series, show, tuple(columns), (), ticks, empty=not any(sums))


def lines(
    id: str, title: str, starts: Sequence[datetime], width: timedelta, series: Sequence[Series], show: Show, axis: Axis
) -> Chart:
    """One line for each series; a gap where there is no value, a dash as wide as a bar where a value stands alone."""
    top, ticks = _scale(max((value for each in series for value in each.values if value is not None), default=0), axis)
    drawn = tuple((each.style, _path(each.values, top)) for each in series)
    columns = tuple(Column(place, _tip(start, width, series, place, show), ()) for place, start in enumerate(starts))
    return _chart(
        id, "lines", title, starts, width, series, show, columns, drawn, ticks, empty=not any(path for _, path in drawn)
    )


def spark(values: Sequence[float]) -> str:
    """A small line without axes: the points of a path in a box as wide as there are values and 100 high."""
    return _path(list(values), max(values, default=0) or 1)


def _chart(
    id: str,
    kind: str,
    title: str,
    starts: Sequence[datetime],
    width: timedelta,
    series: Sequence[Series],
    show: Show,
    columns: tuple[Column, ...],
    drawn: tuple[tuple[str, str], ...],
    ticks: tuple[tuple[float, str], ...],
    *,
    empty: bool,
) -> Chart:
    rows = tuple(
        (
            stamp(start, width),
            *("–" if each.values[place] is None else show(each.values[place] or 0) for each in series),
        )
        for place, start in enumerate(starts)
    )
    about = f"{len(starts)} columns from {stamp(starts[0], width)} to {stamp(starts[-1], width)}, UTC; " + ", ".join(
        each.label for each in series
    )
    return Chart(
        id,
        kind,
        title,
        about,
        columns,
        drawn,
        ticks,
        _marks(starts, width),
        tuple((each.style, each.label) for each in series),
        ("Time (UTC)", *(each.label for each in series)),
        rows,
        empty,
    )


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


def _scale(most: float, axis: Axis) -> tuple[float, tuple[tuple[float, str], ...]]:
    """A round number above the highest value, and the lines to draw at even steps below it."""
    if most <= 0:
        return 1.0, ()
    rough = most / 3
    size = 10 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * 0.999)
    count = math.ceil(most / step * 0.999)
    top = step * count
    return top, tuple(
        (round(HEIGHT - line * HEIGHT / count, 3), axis(step * line, step)) for line in range(count, -1, -1)
    )


def _tip(start: datetime, width: timedelta, series: Sequence[Series], place: int, show: Show) -> str:
    said = [f"{each.label}: {show(value)}" for each in reversed(series) if (value := each.values[place])]
    return "\n".join([stamp(start, width), *(said or ["nothing"])])


def stamp(start: datetime, width: timedelta) -> str:
    """A bucket's name: 21 Nov, 21 Nov 14:00."""
    day = f"{start.day} {start:%b}"
    return day if width >= timedelta(days=1) else f"{day} {start:%H:%M}"


def _marks(starts: Sequence[datetime], width: timedelta) -> tuple[str, ...]:
    if width >= timedelta(hours=6):
        named = [f"{start.day} {start:%b}" for start in starts]
    else:
        named = [f"{start:%H:%M}" for start in starts]
    if len(starts) < 3:
        return tuple(named)
    return named[0], named[len(named) // 2], named[-1]
