"""A process that may open only so many files more, as in a shell that allows 1,024."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """`count` more files can be opened for the length of a block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for each in more:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(more), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
