"""Compiled code kept from one start to the next: a table from generated Python to its code object.

The key is everything a code object is made from (the generated text, the YAML line of each of its lines, the file's
name), so an entry found is the one compiling would give again; what else decides, Python's version and this package's
way of compiling, is in `stamp()`, which whoever stores the table must compare. Reading and writing files is
`start_cache.py`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import sys
from array import array
from pathlib import Path
from types import CodeType


class KeptCode:
    """What is known from before, and what this start used of it or made anew."""

    def __init__(self, known: dict[bytes, CodeType] | None = None) -> None:
        self._known = known or {}
        self._used: dict[bytes, CodeType] = {}
        self.made = 0
        """How many had to be compiled."""

    @staticmethod
    def key(text: str, lines: list[int], file: str) -> bytes:
        """What stands for one piece of generated code."""
        found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20)
        found.update(b"\0" + array("I", lines).tobytes() + b"\0" + file.encode("utf-8", "surrogatepass"))
        return found.digest()

    def get(self, key: bytes) -> CodeType | None:
        """The code of a piece, when it is known."""
        code = self._used.get(key) or self._known.get(key)
        if code is not None:
            self._used[key] = code
        return code

    def put(self, key: bytes, code: CodeType) -> None:
        """Keep what was compiled."""
        self._used[key] = code
        self.made += 1

    @property
    def changed(self) -> bool:
        """Whether the next start would gain from what this one has."""
        return bool(self.made) or len(self._used) < len(self._known)

    def dump(self) -> bytes:
        """What this start used, as bytes."""
        return marshal.dumps(self._used)

    @classmethod
    def load(cls, raw: bytes) -> KeptCode:
        """From bytes that `dump` made: never from any others, as marshal trusts them. ValueError when they are none."""
        try:
            known = marshal.loads(raw)
        except (EOFError, TypeError, ValueError) as error:
            raise ValueError(f"not a table of code: {error}") from None
        if type(known) is not dict or not all(type(key) is bytes and type(code) is CodeType for key, code in known.items()):
            raise ValueError("not a table of code")
        return cls(known)


def stamp() -> bytes:
    """What all entries depend on beside their keys: Python's version and optimisation, and how this package compiles."""
    found = hashlib.blake2b(digest_size=20)
    for part in (importlib.util.MAGIC_NUMBER, sys.version.encode(), str(sys.flags.optimize).encode(),
                 *(Path(__file__).with_name(name).read_bytes() for name in ("emit.py", "kept.py"))):
        found.update(len(part).to_bytes(8, "big") + part)
    return found.digest()
