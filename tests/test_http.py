"""The boundary to ASGI, tested alone."""

import asyncio
import gc

from support.waiting import until
from tollgate import http
from tollgate.http import Responder, headers_of
from tollgate.services import Reply


def test_a_repeated_header_has_all_its_values_in_order():
    sent = [(b"if-none-match", b'"a"'), (b"accept", b"*/*"), (b"if-none-match", b'"b"'), (b"if-none-match", b'"c"')]
    assert headers_of({"headers": sent}) == {"if-none-match": '"a", "b", "c"', "accept": "*/*"}


async def test_a_responder_is_freed_without_the_garbage_collector(monkeypatch):
    monkeypatch.setattr(http, "_WATCH_AFTER", 0.0)
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message["type"])

    async def blocks():
        await until(lambda: len(sent) > 1)  # the comment begins the response
        yield b"data: 1\n\n"

    async def answer():
        responder = Responder(receive, send, [])
        responder.watch_client({})
        responder.keep_alive(0.01)
        await responder.send(Reply(200, [], b"", blocks(), b""))
        responder.close()

    def left():
        return any(type(each) is Responder for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        await asyncio.create_task(answer())
        await until(lambda: not left())
    finally:
        gc.enable()
    assert sent[0] == "http.response.start" and len(sent) > 3  # a comment, the block, the end


async def test_a_client_that_does_not_read_has_at_most_one_pending_comment():
    pending = []

    async def send(message):
        pending.append(message["type"])
        await asyncio.Event().wait()

    responder = Responder(asyncio.Event().wait, send, [])
    responder.keep_alive(0.01)
    await until(lambda: pending)
    await asyncio.sleep(0.1)
    responder.close()
    assert pending == ["http.response.start"]


async def test_no_keep_alive_comment_is_sent_within_an_error():
    """The response was to be a stream, but no route delivered one."""
    sent = []

    async def send(message):
        sent.append(message)
        await asyncio.sleep(0.05)

    responder = Responder(asyncio.Event().wait, send, [])
    responder.keep_alive(0.01)
    await responder.send(Reply(502, [], b"{}"))
    responder.close()
    assert [message.get("body") for message in sent] == [None, b"{}"]


async def test_no_keep_alive_comment_starts_a_response_once_status_sent_was_read():
    sent = []

    async def send(message):
        sent.append(message["type"])

    responder = Responder(asyncio.Event().wait, send, [])
    responder.keep_alive(0)
    assert not responder.status_sent()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sent and not responder.started
    responder.close()
