"""The steps that a mapping compiled with `trace` records while it runs. `explain.py` shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tollgate.mapping.context import Context


@dataclass(frozen=True, slots=True)
class Step:
    """One value that a line of a mapping produced: the YAML line, its place in the output, the value."""

    file: str
    line: int
    path: str
    value: Any


class TraceContext(Context):
    """A context that records every step."""

    __slots__ = ("_prefix", "steps")

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.steps: list[Step] = []
        self._prefix: list[str] = []

    def step(self, file: str, line: int, path: str, value: Any) -> None:
        """Record a value; absent values are no step."""
        if value is not None:
            whole = ".".join(piece for piece in (*self._prefix, path) if piece)
            self.steps.append(Step(file, line, whole, value))

    def enter(self, path: str) -> None:
        """A function is called for this place of the output."""
        self._prefix.append(path)

    def leave(self) -> None:
        """The function has returned."""
        self._prefix.pop()

    def taken(self) -> list[Step]:
        """The steps since the last call of this method."""
        steps, self.steps = self.steps, []
        self._prefix.clear()
        return steps


def _left(context: TraceContext, _entered: None, value: Any) -> Any:
    context.leave()
    return value


def tracing(file: str) -> dict[str, object]:
    """The functions that traced code calls; it runs with a `TraceContext`."""

    def traced(context: TraceContext, line: int, path: str, value: Any) -> Any:
        context.step(file, line, path, value)
        return value

    return {"traced": traced, "entered": TraceContext.enter, "left": _left}
