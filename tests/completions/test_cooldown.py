"""Cooldowns while requests overlap: an answer that began earlier says nothing of the time after a later refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from completions.plain_chat import ASK, SECRET, delta, provider, streamed
from support.inprocess import SSE, inprocess, replying
from support.waiting import until


async def test_an_answer_that_began_before_a_refusal_does_not_end_the_cooldown(tmp_path):
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def acme(method, path, headers, body):
        if begun.is_set():
            return 429, {"retry-after": "60"}, _one(b"{}")
        begun.set()

        async def slowly() -> AsyncIterator[bytes]:
            yield streamed(delta("hi"))[0]
            await may_end.wait()
            for block in streamed(delta(finish="stop"), b"[DONE]"):
                yield block

        return 200, SSE, slowly()

    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme"), "other": provider("other", priority=1)},
        apps={"acme": acme, "other": replying(blocks=streamed(delta("hi", "stop"), b"[DONE]"), headers=SSE)},
        environ=SECRET,
    ) as here:
        health = here.services.health
        first = asyncio.ensure_future(here.post("/v1/chat/completions", {**ASK, "stream": True}))
        await until(begun.is_set)
        asked = {**ASK, "messages": [{"role": "user", "content": "another conversation"}], "stream": True}
        assert (await here.post("/v1/chat/completions", asked)).headers["x-tollgate-provider"] == "other"
        assert "acme/up-1" in health.cooling()
        may_end.set()
        assert (await first).headers["x-tollgate-provider"] == "acme"
        assert "acme/up-1" in health.cooling()


async def _one(block: bytes) -> AsyncIterator[bytes]:
    yield block
