"""The standard streams: all three are open, and a slow reader of a server's log cannot block a request.

A pipe holds 64 KiB while its reader (a pager, a container's log driver, a logger on a hanging disk) does not read; the
next write blocks, and with it the event loop, health checks included. So a thread of its own writes the lines. Lines
that do not fit are dropped and counted: a request is worth more than a line about it.
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
"""Bytes of lines that wait for their reader: some 30,000 lines, a minute of a gateway in which every request fails."""
_PIECE = 4096
"""PIPE_BUF: the most that a pipe which is ready accepts without blocking."""
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}
"""Control characters as they are written: a text of a provider could move the cursor of the terminal that shows the
log, or hide lines."""
_LAST_SECONDS = 1.0
"""How long a process that ends waits for the reader of its log."""


def open_all() -> None:
    """Open `/dev/null` for a standard stream that came closed (`2>&-`): otherwise the next socket or database file
    would get its number, which the event loop's library treats as a fatal mistake."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def let_go_of_output() -> None:
    """Drop what could not be written to standard output: when the process ends, the interpreter would try again and
    complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def drop_unwritable_output() -> None:
    """Drop what standard output still holds if it cannot be written: the interpreter would end with exit code 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        let_go_of_output()


def log_handler() -> logging.Handler:
    """The handler that writes the log to standard error; in a thread, if that is a real file, pipe or terminal."""
    try:
        return BesideHandler(sys.stderr.fileno())
    except (AttributeError, OSError):  # none, or not a real file, as in tests
        return logging.StreamHandler()


class BesideHandler(logging.Handler):
    """Writes lines to a file descriptor in a thread, which the first line starts. `emit` never waits for the reader;
    `flush` waits for at most a second."""

    def __init__(self, descriptor: int, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        """Of the lines that wait or are being written."""
        self._left_out = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it as dropped if too much is waiting."""
        try:
            line = (self.format(record).translate(_CONTROLS) + "\n").encode(errors="backslashreplace")
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
        """Wait until everything is written, for at most a second."""
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
        """Write all of it; what a closed pipe or full disk does not accept is lost."""
        rest = memoryview(data)
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        try:
            while rest:
                ready.poll()
                try:
                    rest = rest[os.write(self._descriptor, rest[:_PIECE]) :]
                except BlockingIOError:  # a non-blocking descriptor with less room than that
                    time.sleep(0.01)
        except OSError:
            return
