"""Decides what the values in one expression count for in the loss list: read with everything in them, or only looked
at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tollgate.mapping.reads import Places, Reads, hand_over, leave_to, take


class ExpressionReads:
    """What one expression reads, collected while it is lowered."""

    __slots__ = ("_deciding", "_left", "looked")

    def __init__(self, *, named: bool) -> None:
        self.looked: Places = ()
        """The places that its tests and comparisons look at."""
        self._deciding = named
        """The value only decides something and is not part of the result. For a named value this is decided where
        the name is used."""
        self._left: list[tuple[Places, Reads | None]] | None = [] if named else None
        """For a named value, the reads that count only if the name is carried into the result: places, and the
        function parameter that they are passed to."""

    def take(self, places: Places) -> None:
        """Count the values at these places as read, with everything in them, unless they only decide something."""
        if not self._deciding:
            take(places)
        elif self._left is not None:
            self._left.append((places, None))

    def hand_over(self, places: Places, parameter: Reads) -> None:
        """Count the values at these places as passed to a function's parameter."""
        hand_over(places, parameter, deciding=self._deciding)
        if self._left is not None:
            self._left.append((places, parameter))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Inside this block a value is only tested: its content does not count as read, even if a filter or function
        reads it."""
        before = self._deciding, self._left
        self._deciding, self._left = True, None
        yield
        self._deciding, self._left = before

    def of_name(self) -> Places:
        """The place that the name of this value stands for. What the value is computed from counts as read if the
        name is used for more than a test. Empty if it is computed from nothing."""
        left = [(places, parameter) for places, parameter in self._left or () if places]
        made = Reads(computed=True)
        for places, parameter in left:
            leave_to(made, places, parameter)
        return (made,) if left else ()
