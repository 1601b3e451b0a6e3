"""Threads for work that may hang: the process can end without waiting for them, unlike those of an executor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def begun(work: Callable[[], T], name: str) -> Future[T]:
    """Start `work` in a thread of this name; returns its future."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()
    threading.Thread(target=_run, args=(work, done), name=name, daemon=True).start()
    return done


def _run(work: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)
    finally:
        # breaks a reference cycle: the future refers to an error, and that to this frame and all objects of its work
        del work, done
