"""What can go wrong while a mapping runs, and how it becomes one clean error that names the YAML line.

Generated code raises `Fault` (through the functions of `values.py`); `clean` turns it, or a recursion that is too deep,
into a `MappingFailure`. `Refused` is raised when the mapping itself refuses (`$refuse`, or a loss in strict mode).
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from traceback import walk_tb
from typing import TYPE_CHECKING

from tollgate.errors import BadRequest, TollgateError

if TYPE_CHECKING:
    from types import TracebackType


class Fault(Exception):
    """A value that an expression cannot use; `param` names the field of the request if it is known."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class Refused(BadRequest):
    """The mapping refuses: the request has something that cannot be carried over to this model."""

    code = "cannot_convert"


class MappingFailure(TollgateError):
    """A mapping cannot process the data; `place` is `file:line` of the YAML, for the log."""

    status = 500
    code = "mapping_failed"

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class UnfitRequest(BadRequest, MappingFailure):
    """A `MappingFailure` in a request: the caller's data is at fault, so it is a 400."""

    status = 400

    def __init__(self, message: str, place: str = "", param: str | None = None) -> None:
        BadRequest.__init__(self, message, param, "cannot_convert")
        self.place = place

    __str__ = MappingFailure.__str__


class clean:  # lower case like a function; a class takes a fifth of the time of a generator
    """`with clean(files, request=...)`: a fault inside becomes a `MappingFailure` (or a 400 with `request`) that
    names the YAML line."""

    __slots__ = ("_files", "_request")

    def __init__(self, files: Collection[str], *, request: bool) -> None:
        self._files = files
        self._request = request

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Fault | RecursionError):
            raise failure(error, self._files, request=self._request) from (error if isinstance(error, Fault) else None)


def failure(error: Fault | RecursionError, files: Collection[str], *, request: bool) -> MappingFailure:
    """The clean error for what generated code raised; `files` are the mapping files whose lines may be named."""
    fault = error if isinstance(error, Fault) else Fault("nested too deeply")
    place = _place(error.__traceback__, files)
    if request:
        return UnfitRequest(f"{fault.param}: {fault.message}" if fault.param else fault.message, place, fault.param)
    return MappingFailure(fault.message, place)


def _place(trace: TracebackType | None, files: Collection[str]) -> str:
    """`file:line` of the innermost frame that is generated code."""
    found = ""
    for frame, line in islice(walk_tb(trace), 5000):
        if frame.f_code.co_filename in files:
            found = f"{frame.f_code.co_filename}:{line}"
    return found
