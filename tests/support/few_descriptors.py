"""Limits how many more files this process may open, like a shell that allows 1,024."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """Allows only `count` more files to be opened inside the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for each in more:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(more), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
