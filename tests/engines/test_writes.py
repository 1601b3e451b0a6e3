import asyncio

from tollgate.engines.writes import Writes


class Transport:
    """Records each call to the system."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.closing = False

    def writelines(self, pieces: list[bytes]) -> None:
        self.calls.append(b"".join(pieces))

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


def create_writes() -> tuple[Transport, Writes]:
    transport = Transport()
    return transport, Writes(asyncio.get_running_loop(), transport)  # type: ignore[arg-type]


async def test_writes_of_one_turn_are_sent_together():
    transport, writes = create_writes()
    writes.write(b"head ")
    writes.write(b"body")
    assert transport.calls == []
    await asyncio.sleep(0)
    assert transport.calls == [b"head body"]
    writes.write(b"next")
    await asyncio.sleep(0)
    assert transport.calls == [b"head body", b"next"]


async def test_flushed_data_is_not_written_again():
    transport, writes = create_writes()
    writes.write(b"a")
    writes.flush()
    writes.write(b"b")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.calls == [b"a", b"b"]


async def test_data_is_flushed_even_if_the_writer_never_waits():
    transport, writes = create_writes()
    for _ in range(100):
        writes.write(b"x")
    assert sum(map(len, transport.calls)) > 80


async def test_pending_data_is_sent_before_the_connection_is_closed():
    transport, writes = create_writes()
    writes.write(b"bye")
    writes.close()
    assert transport.calls == [b"bye"] and transport.closing


async def test_nothing_is_written_to_a_closed_connection():
    transport, writes = create_writes()
    writes.write(b"a")
    transport.closing = True
    await asyncio.sleep(0)
    assert transport.calls == []
