"""Several gateways on one database: what one does counts for all."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from tollgate.errors import QuotaExhausted

from ..conftest import row


async def test_two(gateway) -> None:
    a, b = await gateway("a"), await gateway("b")
    await a.create_account("alice", "Alice")
    await a.grant("alice", Decimal(10))
    key, secret = await a.create_key("alice")
    await asyncio.sleep(0.1)
    assert b.find_key(secret).id == key.id
    held = [await a.hold(key, Decimal(4)), await b.hold(key, Decimal(4)), await a.hold(key, Decimal(4))]
    assert [each.amount for each in held] == [4, 4, 2]
    with pytest.raises(QuotaExhausted):
        await b.hold(key, Decimal(1))
    await a.record(row(key_id=key.id, cost="1.5"), held[0])
    await b.record(row(key_id=key.id, cost="2.5"), held[1])
    held[2].release()
    await a.settle()
    sums = await b.sums("alice")
    assert (sums.granted, sums.spent, sums.held) == (10, 4, 0)
    assert (await b.key_spent(key.id)) == 4
