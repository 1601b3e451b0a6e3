"""What provider and mapping files were built into, as bytes, so that the next start reads only files that changed.

The texts of the files are stored too: `load_gateway` reuses what has the same text under the same name. There are no
secrets in it, because every load looks them up. Reading and writing the cache file is `start_cache.py`.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import os
import pickle
import sys
from dataclasses import fields
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tollgate.config.fields import read_only
from tollgate.config.load import List, Map, Scalar
from tollgate.config.model import Edits, EditSet, Model, Policy
from tollgate.config.pricing import Pricing
from tollgate.config.reusable import Reusable

UNREADABLE = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)
"""The exceptions of pickle for bytes that are something else."""
_CLASSES = frozenset((kind.__module__, kind.__name__) for kind in (Decimal, type(Path())))
_ALSO_READING = ("errors", "json_bounds", "money", "wire", "wording")
"""The modules outside this package that decide what a configuration file means, or how a warning about it reads."""


def dump_reusable(reusable: Reusable) -> bytes:
    """A `Reusable` as bytes. Its trees are dropped, as by `Reusable.let_go`."""
    reusable.let_go()
    # File by file: pickle remembers every object until it ends; for all files at once that is ten times their bytes.
    parts = [[_bytes(entry) for entry in table.items()] for table in (reusable.sources, reusable.mappings)]
    return _bytes((os.getcwd(), *parts, reusable.warnings, reusable.price_warnings, dict(reusable.rates)))


def _bytes(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


def load_reusable(raw: bytes) -> Reusable | None:
    """The value of bytes that `dump_reusable` made; None if they were made in another working directory (names of files
    are relative to it). ValueError if they are something else.

    Only classes of the configuration are created; still, never call it with bytes that others can write.
    """
    try:
        folder, sources, mappings, *others = _value(raw)
        if folder != os.getcwd():
            return None
        return Reusable(dict(map(_value, sources)), dict(map(_value, mappings)), *others)
    except UNREADABLE as error:
        raise ValueError(f"not what files came to: {type(error).__name__}: {error}") from None


def _value(raw: bytes) -> Any:
    return _Reader(io.BytesIO(raw)).load()


def reusable_stamp() -> bytes:
    """A digest of what the value depends on besides the texts: the code that reads configurations, Python and
    PyYAML."""
    here = Path(__file__).parent
    files = (*sorted(here.glob("*.py")), *(here.parent / f"{name}.py" for name in _ALSO_READING))
    return digest(sys.version, yaml.__version__, *(path.read_bytes() for path in files))


def digest(*parts: str | bytes) -> bytes:
    """A digest of these parts, in which none can be mistaken for the end of another."""
    found = hashlib.blake2b(digest_size=20)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        found.update(len(raw).to_bytes(8, "big") + raw)
    return found.digest()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CLASSES or module.startswith("tollgate.config."):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place here")


def _by_values(kind: type[Any]) -> None:
    """Makes pickle call the class with the values of its fields. What a dataclass with slots does itself, it asks for
    the names of its fields at each object, and took most of the time of a load with all shipped providers."""
    values = attrgetter(*(each.name for each in fields(kind)))
    copyreg.pickle(kind, lambda made: (kind, values(made)))


copyreg.pickle(MappingProxyType, lambda proxy: (read_only, (dict(proxy),)))
for _kind in (Scalar, List, Map, EditSet, Edits, Policy, Model, Pricing):
    _by_values(_kind)
