"""What provider and mapping files came to, as bytes, so that the next start reads only those that changed.

Holds the files' texts beside what they came to: `load_gateway` takes over what has the same text under the same name.
No secret is in it, as those are looked up by every load. Reading and writing the file is `start_cache.py`.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import os
import pickle
import sys
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tollgate.config.fields import read_only
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
"""What pickle raises for bytes that hold something else."""
_CLASSES = frozenset((kind.__module__, kind.__name__) for kind in (Decimal, type(Path())))


def dump_reusable(reusable: Reusable) -> bytes:
    """What was read, as bytes. The trees in it are dropped, as by `Reusable.let_go`."""
    reusable.let_go()
    # File by file: pickling keeps track of every object meanwhile, which for all at once is ten times their bytes.
    parts = [[_bytes(entry) for entry in table.items()] for table in (reusable.sources, reusable.mappings)]
    return _bytes((os.getcwd(), *parts, reusable.warnings))


def _bytes(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


def load_reusable(raw: bytes) -> Reusable | None:
    """From bytes that `dump_reusable` made; None when they are of another working
    directory (names of files are relative to it).

    Names no class but those of the configuration; still, never give it bytes others can write.
    ValueError when they are none.
    """
    try:
        folder, sources, mappings, warnings = _value(raw)
        if folder != os.getcwd():
            return None
        return Reusable(dict(map(_value, sources)), dict(map(_value, mappings)), warnings)
    except UNREADABLE as error:
        raise ValueError(f"not what files came to: {type(error).__name__}: {error}") from None


def _value(raw: bytes) -> Any:
    return _Reader(io.BytesIO(raw)).load()


def reusable_stamp() -> bytes:
    """What all of it depends on beside the texts: the code that reads configurations, Python and PyYAML."""
    found = hashlib.blake2b(digest_size=20)
    here = Path(__file__).parent
    files = [
        path.read_bytes() for path in (*sorted(here.glob("*.py")), here.parent / "money.py", here.parent / "wire.py")
    ]
    for part in (sys.version.encode(), yaml.__version__.encode(), *files):
        found.update(len(part).to_bytes(8, "big") + part)
    return found.digest()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CLASSES or module.startswith("tollgate.config."):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place here")


copyreg.pickle(MappingProxyType, lambda proxy: (read_only, (dict(proxy),)))
