"""The sandbox behind the gateway's own client, in-process: failures look as they do over a network."""

from __future__ import annotations

import orjson
import pytest
from sandbox_talk import body_of

from support.waiting import until
from tollgate import upstream
from tollgate.errors import AnswerLost, UpstreamTimeout
from tollgate.sandbox import Sandbox


@pytest.fixture
async def open_call(sandbox: Sandbox):
    client = upstream.Client()
    client.register_app("sandbox", sandbox)

    async def opening(text: str, **more: object):
        path, body = body_of("chat", text, **more)
        timeouts = upstream.Call("GET", "").timeouts
        short = type(timeouts)(connect=1, first_byte=0.1, idle=0.1, total=5)
        return await client.open(upstream.Call("POST", f"app://sandbox{path}", body=orjson.dumps(body), timeouts=short))

    yield opening
    await client.close()


async def test_a_whole_answer_is_read(open_call, sandbox):
    async with await open_call("hi") as answer:
        assert orjson.loads(await answer.read())["choices"][0]["message"]["content"] == "You said: hi"
    assert (sandbox.stats.running, sandbox.stats.aborted) == (0, 0)


async def test_a_cut_stream_breaks_off_after_its_events(open_call):
    seen = b""
    async with await open_call("hi [[cut=2]]", stream=True) as answer:
        with pytest.raises(AnswerLost):
            async for chunk in answer.chunks():
                seen += chunk
    assert seen.count(b"\n\n") == 2


async def test_a_delay_is_a_first_byte_timeout(open_call, sandbox):
    with pytest.raises(UpstreamTimeout, match="first-byte"):
        await open_call("hi [[delay=2s]]")
    await until(lambda: not sandbox.stats.running)
    assert sandbox.stats.aborted == 1


async def test_a_stall_is_an_idle_timeout(open_call, sandbox):
    async with await open_call("hi [[stall=2]]", stream=True) as answer:
        with pytest.raises(UpstreamTimeout, match="idle"):
            async for _ in answer.chunks():
                pass
    await until(lambda: not sandbox.stats.running)
    assert sandbox.stats.aborted == 1


async def test_closing_early_is_an_abort(open_call, sandbox):
    async with await open_call("hi [[pace=5ms]]", stream=True) as answer:
        async for _ in answer.chunks():
            break
    await until(lambda: not sandbox.stats.running)
    assert sandbox.stats.aborted == 1
