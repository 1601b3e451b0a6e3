"""A client that leaves at any turn of the event loop: one row, no credits held, and no upstream connection left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider
from support.inprocess import SSE, Leaving, inprocess
from support.stores import available_to
from support.usage_files import rows
from support.waiting import SECONDS

STEPS = 24
"""Turns of the loop, more than a request takes until its stream is half sent."""


@pytest.mark.parametrize("more", ["", "can: {whole: false}"], ids=["streamed", "gathered"])
async def test_a_client_may_leave_at_any_turn_of_the_event_loop(tmp_path, more):
    running: list[str] = []

    def upstream(*blocks: bytes):
        async def app(method, path, headers, body):
            await asyncio.sleep(0)

            async def answer() -> AsyncIterator[bytes]:
                running.append(path)
                try:
                    for block in blocks:
                        await asyncio.sleep(0)
                        yield block
                finally:
                    running.pop()

            return 200, SSE, answer()

        return app

    async with inprocess(
        tmp_path,
        providers={
            "first": provider("app://first/v1", "chat", name="first", more=more),
            "second": provider("app://second/v1", "chat", name="second", more=more, lines="priority: 1"),
        },
        apps={"first": upstream(b"data: [DONE]\n\n"), "second": upstream(*events("chat"))},
    ) as here:
        for steps in range(1, STEPS):
            client = Leaving({**ASKS["messages"], **({} if more else {"stream": True})}, here.key)
            client.scope["path"] = PATHS["messages"]
            task = asyncio.create_task(here.opened.app(client.scope, client.receive, client.send))
            for _ in range(steps):
                await asyncio.sleep(0)
            for responder in tuple(here.opened.app._running):
                responder._left()
            await task
            await here.services.settlements.drain(SECONDS)
            await asyncio.sleep(0)
            assert (running, here.services.live, here.services.room.held) == ([], set(), 0), steps
            assert await available_to(here.services.ledger, "default") == here.balance(), steps
        found = [row["outcome"] for row in await rows(here, tmp_path)]
    assert len(found) in (STEPS - 1, STEPS - 2) and "client_gone" in found, "one that leaves at once has no row"
