"""Work in threads that the end of the process does not wait for, unlike those of an executor: for what may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def begun(work: Callable[[], T], name: str) -> Future[T]:
    """The future of `work`, which runs in a thread of this name from now on."""
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
        # an error refers to this frame and to all that its work had made: in a cycle with the future that would stay
        del work, done
