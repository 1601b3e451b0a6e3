"""A limit on the bytes of all request bodies together: a body reserves its bytes before it is read, and releases them
when its request ends.

Each body has a limit of its own; this limits their sum, because a gateway that runs out of memory loses every answer.
A request for which there is no room waits with its body unread, so that back-pressure holds its client, and is refused
if that takes too long. Small bodies never wait: an agent's next turn must not wait behind somebody's videos, and the
servers buffer as much for every connection anyway.
"""

from __future__ import annotations

import asyncio
import sys

from tollgate.errors import BodyMemoryFull

SMALL = 64 * 1024
"""A body up to this size is counted but never waits."""
_PATIENCE = 20.0
"""Most seconds that a body waits for room. Answers take some seconds each; proxies give up after a minute."""


class Room:
    """The bytes that may be held (`most`), that are held (`held`), and the requests that wait. For one event loop."""

    def __init__(self, most: int, patience: float = _PATIENCE) -> None:
        self.most = most
        self.held = 0
        self.patience = patience
        self._waiting: dict[asyncio.Future[None], tuple[Place, int]] = {}
        """In the order of arrival."""
        self._least = 0
        """Every waiting request wants at least this many more bytes."""
        self._heaviest = 0
        """Every waiting request holds at most this many bytes already."""

    def place(self) -> Place:
        """A new place, which holds no bytes yet."""
        return Place(self)

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._waiting)

    def fits(self, place: Place, size: int) -> bool:
        """Whether a place may grow to `size` bytes. The only body always may: no other could make room for it."""
        return self.held - place.bytes + size <= self.most or self.held == place.bytes

    def allow(self, most: int) -> None:
        """Hold at most so many bytes from now on; requests that wait and now fit are admitted."""
        self.most = most
        self.changed()

    def changed(self) -> None:
        """Bytes were released, or more are allowed: admit the waiting requests that fit now, in the order of arrival.

        This runs at the end of every request, so the queue is only walked if some request may fit.
        """
        if not self._waiting or not self._some_may_fit():
            return
        gone = []
        least, heaviest = sys.maxsize, 0
        for admitted, (place, size) in self._waiting.items():
            if admitted.done():
                gone.append(admitted)
            elif self.fits(place, size):
                place.set(size)
                admitted.set_result(None)
                gone.append(admitted)
                if not self._some_may_fit():
                    break
            else:
                least, heaviest = min(least, size - place.bytes), max(heaviest, place.bytes)
        else:
            self._least, self._heaviest = least, heaviest
        for admitted in gone:
            del self._waiting[admitted]

    def _some_may_fit(self) -> bool:
        """Whether any waiting request might fit: the test of `fits` for the smallest wish and for the largest
        holder."""
        return self.most - self.held >= self._least or self.held <= self._heaviest

    async def wait(self, place: Place, size: int) -> None:
        """Wait until `place` has grown to `size` bytes. Raises `BodyMemoryFull` when that takes too long."""
        admitted = asyncio.get_running_loop().create_future()
        wanted = size - place.bytes
        self._least = min(self._least, wanted) if self._waiting else wanted
        self._heaviest = max(self._heaviest, place.bytes) if self._waiting else place.bytes
        self._waiting[admitted] = place, size
        try:
            async with asyncio.timeout(self.patience):
                await admitted
        except TimeoutError:
            raise BodyMemoryFull(size, self.held, self.most, self.patience) from None
        finally:
            if admitted.cancelled():  # by the time limit, or with the request
                self._waiting.pop(admitted, None)


class Place:
    """The bytes that one request holds of a room. Each further task that needs the body calls `keep`, and `leave` when
    it is done; the last `leave` releases the bytes."""

    __slots__ = ("_keepers", "_room", "bytes")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._keepers = 1
        self.bytes = 0

    def set(self, size: int) -> None:
        """Hold `size` bytes from now on, whether there is room or not."""
        self._room.held += size - self.bytes
        self.bytes = size

    async def widen(self, size: int) -> None:
        """Hold at least `size` bytes, as soon as there is room. Raises `BodyMemoryFull` when that takes too long."""
        if size <= self.bytes:
            return
        if size <= SMALL or self._room.fits(self, size):
            self.set(size)
        else:
            await self._room.wait(self, size)

    def narrow(self, size: int) -> None:
        """Hold only `size` bytes from now on, not more than before."""
        if size != self.bytes:
            self.set(size)
            self._room.changed()

    def keep(self) -> Place:
        """The same place for one more task, which must `leave` it, too."""
        self._keepers += 1
        return self

    def leave(self) -> None:
        """Release the bytes, unless another task keeps the place."""
        self._keepers -= 1
        if not self._keepers:
            self.narrow(0)
