"""What the values in one expression count for, in the loss list: read with all they hold, or only looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tollgate.mapping.reads import Places, Reads, hand_over, leave_to, take


class Counting:
    """One expression while it is lowered."""

    __slots__ = ("_deciding", "_left", "looked")

    def __init__(self, *, named: bool) -> None:
        self.looked: Places = ()
        """What its tests and comparisons have looked at."""
        self._deciding = named
        """Whether the value only decides something, so that nothing of it is carried (of a name: not here)."""
        self._left: list[tuple[Places, Reads | None]] | None = [] if named else None
        """What is left to those who read the name of the value: places, and the function's parameter they go to."""

    def take(self, places: Places) -> None:
        """The values at these places are used as they are: with everything in them, unless all of this only decides
        something."""
        if not self._deciding:
            take(places)
        elif self._left is not None:
            self._left.append((places, None))

    def hand_over(self, places: Places, parameter: Reads) -> None:
        """The values at these places are a function's argument."""
        hand_over(places, parameter, deciding=self._deciding)
        if self._left is not None:
            self._left.append((places, parameter))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Inside, a value is only tested: what it holds does not count as read, also where a filter or a function looks
        into it first."""
        before = self._deciding, self._left
        self._deciding, self._left = True, None
        yield
        self._deciding, self._left = before

    def of_name(self) -> Places:
        """The place that the name of a value stands for: what the value is computed from counts as read where the name
        is used for more than looking at it. None where it is computed from nothing."""
        left = [(places, parameter) for places, parameter in self._left or () if places]
        made = Reads(computed=True)
        for places, parameter in left:
            leave_to(made, places, parameter)
        return (made,) if left else ()
