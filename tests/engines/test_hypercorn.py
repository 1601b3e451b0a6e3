import asyncio

import pytest

from tollgate.engines.hypercorn import _ClientLeft, _Turn


async def test_who_waits_for_a_turn_notices_that_the_client_left_behind_unread_requests():
    reader = asyncio.StreamReader()
    reader.feed_data(b"GET / HTTP/1.1\r\n")
    reader.feed_eof()
    with pytest.raises(_ClientLeft):
        async with asyncio.timeout(1):
            await _Turn(reader).wait()
