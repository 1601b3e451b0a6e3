"""The standard streams of a process that serves: all three are open, and no reader of the log can hold a request up.

A pipe takes 64 KiB while its reader (a pager, a container's log driver, a logger whose disk hangs) looks elsewhere; the
write after that waits, and on the event loop everybody waits with it, health checks too. So lines are written by a
thread of their own. What does not fit is left out and counted: a request is worth more than a line about it.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections import deque

_MOST_BYTES = 4 << 20
"""Of lines that wait for their reader: some 30,000, a minute of a gateway whose every request fails and is told."""
_PIECE = 4096
"""PIPE_BUF: the most that a pipe said to be ready takes without waiting."""
_LAST_SECONDS = 1.0
"""That a process which ends waits for the reader of its log."""


def open_all() -> None:
    """Put `/dev/null` where standard input, output or error came closed (`2>&-`): else the next socket or database
    file gets that number, which the event loop's library takes for a mistake and aborts."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def let_go_of_output() -> None:
    """Give up what could not be written to standard output: at the process's end the interpreter would try again, and
    complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def log_handler() -> logging.Handler:
    """What writes the log to standard error: beside the caller where that is a real file, pipe or terminal."""
    try:
        return BesideHandler(sys.stderr.fileno())
    except (AttributeError, OSError):  # none, or one of another kind, as tests have it
        return logging.StreamHandler()


class BesideHandler(logging.Handler):
    """Writes lines to a file descriptor in a thread of its own, which the first line begins. `emit` never waits for
    whoever reads them; `flush` does, for a second at most."""

    def __init__(self, descriptor: int, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        """Of the lines that wait and of those being written."""
        self._left_out = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line for writing, or count it as left out where too much waits already."""
        try:
            line = (self.format(record) + "\n").encode(errors="backslashreplace")
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._bytes + len(line) > self._most_bytes:
                self._left_out += 1
                return
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Wait until everything is written, or for a second."""
        deadline = time.monotonic() + _LAST_SECONDS
        with self._changed:
            while self._bytes and (seconds := deadline - time.monotonic()) > 0:
                self._changed.wait(seconds)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._left_out:
                    self._changed.wait()
                taken = b"".join(self._lines)
                self._lines.clear()
                left_out, self._left_out = self._left_out, 0
            if left_out:
                taken += f"{left_out} lines of the log were left out: standard error took none for too long\n".encode()
            self._write(taken)
            with self._changed:
                self._bytes = sum(map(len, self._lines))
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        """Write all of it; what a reader that is gone or a full disk does not take is lost."""
        rest = memoryview(data)
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        try:
            while rest:
                ready.poll()
                try:
                    rest = rest[os.write(self._descriptor, rest[:_PIECE]) :]
                except BlockingIOError:  # a descriptor that does not wait, with less room than that
                    time.sleep(0.01)
        except OSError:
            return
