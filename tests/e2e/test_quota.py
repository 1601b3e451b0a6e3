"""Parallel calls cannot spend the same balance twice (PITFALLS 4)."""

import asyncio
from decimal import Decimal

from support.inprocess import inprocess
from support.stores import available_to
from support.waiting import SECONDS

PRICED = """
provider: dear
speaks: chat
url: app://sandbox/v1/chat/completions
models:
  dear/echo:
    upstream: echo
    context: 1000
    max_output: 1000
    price: {prompt: "0", completion: "0.001", unit: 1, currency: USD}
"""


async def test_of_200_parallel_calls_only_those_covered_by_the_balance_are_admitted(tmp_path):
    """Each call costs at most 100 tokens x 0.001 = 0.1 credits, so one credit covers ten."""
    async with inprocess(tmp_path, providers={"dear": PRICED}) as app:
        ledger = app.services.ledger
        await ledger.create_account("small")
        await ledger.grant("small", Decimal("1.0"))
        _, key = await ledger.create_key("small")
        body = {
            "model": "dear/echo",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "[[delay=300ms]] [[tokens=100]] hi"}],
        }
        replies = await asyncio.gather(*(app.post("/v1/chat/completions", body, key=key) for _ in range(200)))
        statuses = [reply.status_code for reply in replies]
        assert (statuses.count(200), statuses.count(403)) == (10, 190)
        refused = next(reply for reply in replies if reply.status_code == 403).json()
        assert refused["message"] == refused["error"]["message"] == "insufficient quota"
        assert ledger.balance("small") == 0 == await available_to(ledger, "small")
        assert (await app.post("/v1/chat/completions", body, key=key)).status_code == 403


async def test_a_hold_is_released_on_every_outcome(tmp_path):
    async with inprocess(tmp_path, providers={"dear": PRICED}) as app:
        before = app.balance()
        for text in ("[[error=500]]", "[[error=400]]", "[[reset]]", "[[html]]", "[[cut=2]]"):
            for stream in (False, True):
                await app.post(
                    "/v1/chat/completions",
                    {
                        "model": "dear/echo",
                        "max_tokens": 5,
                        "stream": stream,
                        "messages": [{"role": "user", "content": text + " x"}],
                    },
                )
        await app.services.settlements.drain(SECONDS)
        assert await available_to(app.services.ledger, "default") == app.balance() <= before
