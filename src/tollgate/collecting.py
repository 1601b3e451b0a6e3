"""Building much that stays: the cyclic garbage collector rests meanwhile, since all it would look at is in use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_resting() -> Iterator[None]:
    """No garbage collections inside. Reading and compiling a full catalog takes a third less time so (measured)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
