"""How many bytes of request bodies are held at once: a body has a place before it is read, and gives it back at the
end.

One body is bounded by its own limit; here their sum is, because a gateway that runs out of memory loses every answer
and not one. Who finds no room waits with the body unread, so that the client's own connection holds it back, and is
refused when that takes too long. Small bodies never wait: an agent's next turn must not stand behind somebody's films,
and the servers hold as much of every connection anyway.
"""

from __future__ import annotations

import asyncio
import sys

from tollgate.errors import Crowded

SMALL = 64 * 1024
"""Bytes of a body that is counted but never waits."""
_PATIENCE = 20.0
"""Seconds a body waits for room. Answers take some seconds each, and proxies give up after a minute."""


class Room:
    """The bytes that may be held at once (`most`), that are held (`held`), and who waits. For one event loop."""

    def __init__(self, most: int, patience: float = _PATIENCE) -> None:
        self.most = most
        self.held = 0
        self.patience = patience
        self._waiting: dict[asyncio.Future[None], tuple[Place, int]] = {}
        """In the order in which they came."""
        self._least = 0
        """Everyone who waits wants at least this many more bytes."""
        self._heaviest = 0
        """Everyone who waits holds at most this many bytes already."""

    def place(self) -> Place:
        """A place without a byte."""
        return Place(self)

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._waiting)

    def fits(self, place: Place, size: int) -> bool:
        """Whether a place may grow to `size` bytes. A body that is alone always may: nobody would make room for it."""
        return self.held - place.bytes + size <= self.most or self.held == place.bytes

    def changed(self) -> None:
        """Room was made: let in whoever fits now, in the order in which they came.

        Every request that ends comes here, so nobody is looked at while nobody can fit.
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
        """Whether anybody who waits might fit: the test of `fits` for the least that is wanted and for the most that is
        held."""
        return self.most - self.held >= self._least or self.held <= self._heaviest

    async def wait(self, place: Place, size: int) -> None:
        """Wait until `place` has grown to `size` bytes. Raises `Crowded` when that takes too long."""
        admitted = asyncio.get_running_loop().create_future()
        wanted = size - place.bytes
        self._least = min(self._least, wanted) if self._waiting else wanted
        self._heaviest = max(self._heaviest, place.bytes) if self._waiting else place.bytes
        self._waiting[admitted] = place, size
        try:
            async with asyncio.timeout(self.patience):
                await admitted
        except TimeoutError:
            raise Crowded(size, self.held, self.most, self.patience) from None
        finally:
            if admitted.cancelled():  # by the time limit, or with the request
                self._waiting.pop(admitted, None)


class Place:
    """How many bytes one request holds of a room. Each task that needs the body calls `keep`, and `leave` when it is
    done; the last `leave` gives the bytes back."""

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
        """Hold at least `size` bytes, once there is room. Raises `Crowded` when there was none for too long."""
        if size <= self.bytes:
            return
        if size <= SMALL or self._room.fits(self, size):
            self.set(size)
        else:
            await self._room.wait(self, size)

    def narrow(self, size: int) -> None:
        """Hold `size` bytes, which are no more than before."""
        if size != self.bytes:
            self.set(size)
            self._room.changed()

    def keep(self) -> Place:
        """The same place for one more, who will `leave` too."""
        self._keepers += 1
        return self

    def leave(self) -> None:
        """Hold nothing more, unless somebody else keeps the place."""
        self._keepers -= 1
        if not self._keepers:
            self.narrow(0)
