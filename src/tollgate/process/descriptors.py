"""File descriptors: raises this process's limit, reports their number, and detects that none is left.

A stream takes two, for the client's and the provider's connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

_MOST = 65_536
"""Enough for 30,000 streams, more than one process can serve. Some containers have a hard limit of a billion."""


def raise_limit() -> None:
    """Raise the soft limit as far as the hard limit allows. Shells and services start with 1,024, which is enough for
    500 streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # the kernel may have a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def none_left() -> bool:
    """Whether this process or the whole machine has no descriptor left, found by opening a file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return is_exhaustion(error)
    return False


def is_exhaustion(error: Exception) -> bool:
    """Whether an error means that no descriptor is left, for a connection, a file, or a late import of a module."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def in_use() -> tuple[int, int] | None:
    """The number of open descriptors and its limit; None if the system does not report them."""
    if not os.path.isdir("/proc/self/fd"):
        return None
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")) - 1, most  # without the one for this listing
    except OSError:  # no descriptor is left for the listing
        return most, most
