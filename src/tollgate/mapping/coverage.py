"""Finds the YAML lines that no example reaches. This is simple because generated code has the line numbers of the YAML.

Executed lines are recorded while the examples run; a line is live if a statement was generated for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from tollgate.mapping.compiler import CompiledMapping


@dataclass(frozen=True, slots=True)
class Covered:
    """One file: its live lines, and those that were reached."""

    file: str
    live: frozenset[int]
    reached: frozenset[int]

    @property
    def missed(self) -> list[int]:
        """Live lines that were not reached, in order."""
        return sorted(self.live - self.reached)

    def text(self) -> str:
        """`mappings/chat.yaml: 90 of 120 live lines reached by the examples; never reached: 6-8, 10`."""
        line = f"{self.file}: {len(self.live & self.reached)} of {len(self.live)} live lines reached by the examples"
        return line + (f"; never reached: {_ranges(self.missed)}" if self.missed else "")


class Watch:
    """Records the executed lines of generated code while it is active."""

    def __init__(self, files: Iterable[str]) -> None:
        self.reached: dict[str, set[int]] = {file: set() for file in files}

    def _trace(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        """Called by Python for each call, and for each line of the frames for which it returned itself."""
        found = self.reached.get(frame.f_code.co_filename)
        if found is None:
            return None
        found.add(frame.f_lineno)
        return self._trace

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread."""
        before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)


def covered(mappings: Iterable[CompiledMapping], watch: Watch) -> list[Covered]:
    """What a watch recorded for these mappings."""
    return [
        Covered(mapping.file, frozenset(live_lines(mapping)), frozenset(watch.reached.get(mapping.file, ())))
        for mapping in mappings
    ]


def live_lines(mapping: CompiledMapping) -> set[int]:
    """Every YAML line for which a statement was generated."""
    return {line for function in mapping.generated for line in _lines(function.__code__)}


def _lines(code: CodeType) -> set[int]:
    found = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _lines(constant)
    return found


def _ranges(lines: list[int]) -> str:
    ranges: list[list[int]] = []
    for line in lines:
        if ranges and line == ranges[-1][-1] + 1:
            ranges[-1][1:] = [line]
        else:
            ranges.append([line])
    return ", ".join("-".join(map(str, each)) for each in ranges)
