"""The connection pool of one origin, with its queue of waiting calls.

Invariants: there are never more than `limit` connections; calls are served first come, first served; a slot or
connection given to a waiter that is cancelled at that moment goes to the next one; no connection is idle for longer
than `idle_seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

from tollgate.upstream.connection import Connection

IDLE_SECONDS = 55.0
"""Many servers and load balancers close idle connections after 60 s. Closing earlier avoids the race."""

MAX_PER_ORIGIN = 1024
"""The limit of concurrent calls to one provider host, since each takes a connection until it ends."""


class Pool:
    """Connections to one origin. `dial(pool)` opens a new one."""

    def __init__(
        self,
        dial: Callable[[Pool], Awaitable[Connection]],
        *,
        limit: int = MAX_PER_ORIGIN,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.limit = limit
        self.idle_seconds = idle_seconds
        self.size = 0
        self._dial = dial
        self._idle: dict[Connection, None] = {}
        self._all: set[Connection] = set()
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> int:
        """The number of idle connections."""
        return len(self._idle)

    def take(self, now: float) -> Connection | None:
        """The most recently used idle connection that is usable; None if there is none."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable and connection.expires > now:
                return connection
            connection.abort()
        return None

    async def acquire(self, now: float, *, fresh: bool = False) -> Connection:
        """An idle connection (unless `fresh`), else a new one, else the next one that is released."""
        while True:
            if not fresh and (connection := self.take(now)) is not None:
                return connection
            if self.size < self.limit or self._evict():
                self.size += 1
            else:
                handed = await self._queue()
                if handed is not None:
                    if handed.usable:
                        return handed
                    continue
            return await self._open()

    async def _open(self) -> Connection:
        """Open a connection for a slot that is already counted; free the slot if that fails."""
        try:
            connection = await self._dial(self)
        except BaseException:
            self._free_slot()
            raise
        if not connection.usable:
            self._free_slot()
            return connection  # closed already: sending on it fails with the right error
        connection.adopted = True
        self._all.add(connection)
        return connection

    def _evict(self) -> bool:
        """Close the oldest idle connection to free a slot. Returns whether a slot is free."""
        if not self._idle:
            return False
        connection = next(iter(self._idle))
        del self._idle[connection]
        connection.abort()
        self.forget(connection)
        return self.size < self.limit

    async def _queue(self) -> Connection | None:
        """Wait for a connection, or for a slot (None), which is already counted for this caller."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                connection = waiter.result()
                if connection is None:
                    self._free_slot()
                elif connection.usable:
                    self.release(connection)
            else:
                with contextlib.suppress(ValueError):  # passed over already
                    self._waiters.remove(waiter)  # most often the first: those who waited longest give up first
            raise

    def release(self, connection: Connection) -> None:
        """The connection's answer has ended cleanly: pass it to the next waiter, or keep it idle."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if connection.idle_seconds <= 0:
            connection.abort()
            return
        loop = connection.loop
        connection.expires = loop.time() + connection.idle_seconds
        self._idle[connection] = None
        if self._sweeper is None:
            self._sweeper = loop.call_later(connection.idle_seconds, self._sweep)

    def forget(self, connection: Connection) -> None:
        """The connection is closed: free its slot. May be called repeatedly."""
        self._idle.pop(connection, None)
        if connection.adopted:
            connection.adopted = False
            self._all.discard(connection)
            self._free_slot()

    def _free_slot(self) -> None:
        self.size -= 1
        while self._waiters and self.size < self.limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.size += 1
                waiter.set_result(None)
                return

    def _sweep(self) -> None:
        self._sweeper = None
        loop = asyncio.get_running_loop()
        now = loop.time() + 0.01
        for connection in [c for c in self._idle if c.expires <= now]:
            del self._idle[connection]
            connection.abort()
        if self._idle:
            soonest = min(connection.expires for connection in self._idle)
            self._sweeper = loop.call_later(max(0.05, soonest - now), self._sweep)

    def close(self) -> None:
        """Close every connection. Running answers fail."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._all):
            if connection.transport is not None:
                connection.transport.abort()
        self._idle.clear()
