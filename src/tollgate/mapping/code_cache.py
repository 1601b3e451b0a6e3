"""Compiled code that is kept for the next start: a table from generated Python to its code object, and one from mapping
files to their results.

A key covers everything that an entry is made from (the generated text, the YAML line of each of its lines, the file's
name; or a file's text and name), so a cached entry is what compiling would give again. What else it depends on,
Python's version and the code of this package, is in `stamp()`, which the owner of the tables must compare. Reading and
writing the cache file is `start_cache.py`.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import pickle
import sys
from array import array
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tollgate.config.load import Document
from tollgate.config.reusable_bytes import UNREADABLE, digest, reusable_stamp
from tollgate.mapping.filter_table import FILTERS

_CLASSES = ("tollgate.mapping.", "tollgate.config.load", "jsonpath_ng.")


class CodeCache:
    """The compiled code of an earlier start, and what this start has used of it or added."""

    def __init__(self, known: dict[bytes, CodeType | bytes] | None = None) -> None:
        self._known = known or {}
        self._used: dict[bytes, CodeType | bytes] = {}
        self._files: dict[bytes, object] = {}
        self._added = False
        self.made = 0
        """How many had to be compiled."""

    @staticmethod
    def key(text: str, lines: list[int], file: str) -> bytes:
        """The key of one piece of generated code: a digest of its text, its YAML lines and its file."""
        return digest(text, array("I", lines).tobytes(), file)

    def get(self, key: bytes) -> CodeType | None:
        """The code of a module, if it is cached."""
        code = self._found(key)
        return code if isinstance(code, CodeType) else None

    def put(self, key: bytes, code: CodeType) -> None:
        """Keep compiled code."""
        self._used[key] = code
        self._added = True
        self.made += 1

    def get_file(self, document: Document) -> Any:
        """What `put_file` stored for a file of this text and name; None if there is none, or it cannot be read."""
        packed = self._found(_file_key(document))
        if not isinstance(packed, bytes):
            return None
        try:
            return _Unpickler(io.BytesIO(packed)).load()
        except UNREADABLE:
            return None

    def put_file(self, document: Document, result: object) -> None:
        """Keep the result of a file."""
        self._files[_file_key(document)] = result
        self._added = True

    def _found(self, key: bytes) -> CodeType | bytes | None:
        entry = self._used.get(key) or self._known.get(key)
        if entry is not None:
            self._used[key] = entry
        return entry

    @property
    def changed(self) -> bool:
        """Whether the cache should be written for the next start."""
        return self._added or len(self._used) < len(self._known)

    def dump(self) -> bytes:
        """The entries that this start used, as bytes; without results of files that hold something other than this
        package's own classes and filters."""
        packed = {key: entry for key, result in self._files.items() if (entry := _packed(result)) is not None}
        return marshal.dumps(self._used | packed)

    @classmethod
    def load(cls, raw: bytes) -> CodeCache:
        """The cache from bytes that `dump` made; never from other bytes, because marshal trusts them. ValueError for
        invalid bytes."""
        try:
            known = marshal.loads(raw)
        except (EOFError, TypeError, ValueError) as error:
            raise ValueError(f"not a table of code: {error}") from None
        if type(known) is not dict or not all(
            type(key) is bytes and type(entry) in (CodeType, bytes) for key, entry in known.items()
        ):
            raise ValueError("not a table of code")
        return cls(known)


def stamp() -> bytes:
    """What all entries depend on besides their keys: Python's version and optimisation, the expression parser, the
    code of this package, and what a configuration depends on (a mapping file is read and checked by the same code)."""
    here = Path(__file__).parent
    code = (*sorted(here.rglob("*.py")), *sorted(here.glob("*.json")))
    python = (importlib.util.MAGIC_NUMBER, str(sys.flags.optimize), version("jinja2"), version("jsonpath-ng"))
    return digest(reusable_stamp(), *python, *(path.read_bytes() for path in code))


def _file_key(document: Document) -> bytes:
    return digest(document.file, document.without, document.text)


def _packed(result: object) -> bytes | None:
    packed = io.BytesIO()
    try:
        _Pickler(packed, protocol=5).dump(result)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return packed.getvalue()


class _Pickler(pickle.Pickler):
    """Writes filters by their names, because most are functions without a module name of their own."""

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, FunctionType):
            return None
        return next((name for name, known in FILTERS.items() if known.run is obj), None)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return FILTERS[pid].run

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_CLASSES):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place here")
