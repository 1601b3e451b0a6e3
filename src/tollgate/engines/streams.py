"""hypercorn's streams: what a request has sent and its application has not read."""

from __future__ import annotations

from typing import Any


def forget_unread(stream: Any) -> None:
    """Empty the queue of a stream that ends. Nobody reads it any more, and if it is full, putting the end into it would
    wait for ever."""
    unread = stream.app_put.__self__
    while not unread.empty():
        unread.get_nowait()
