"""Request bodies have a bound together: who finds no room waits with the body unread, and everybody gives it back."""

import asyncio
import concurrent.futures
import gzip
import http.client
import json
import random
import socket
import urllib.request

import pytest

from conformance.upstreams import ASKS, PATHS, provider
from support.inprocess import inprocess, replying, write_config
from support.running import gateway
from tollgate.errors import Crowded
from tollgate.room import SMALL, Room

BIG = 4 * SMALL


async def test_what_fits_is_let_in_at_once_and_what_does_not_waits_its_turn():
    room = Room(2 * BIG)
    first, second, third, small = (room.place() for _ in range(4))
    await first.widen(BIG)
    await second.widen(BIG)
    waiting = asyncio.create_task(third.widen(BIG))
    await asyncio.sleep(0)
    assert (room.held, room.waiting, waiting.done()) == (2 * BIG, 1, False)
    await small.widen(SMALL)
    assert room.held == 2 * BIG + SMALL, "small ones are counted and never wait"
    small.leave()
    first.leave()
    await waiting
    assert (room.held, room.waiting) == (2 * BIG, 0)
    second.leave()
    third.leave()
    assert room.held == 0


async def test_smaller_ones_pass_one_for_which_there_is_no_room_yet():
    room = Room(3 * BIG)
    first = room.place()
    await first.widen(2 * BIG)
    large, fitting = room.place(), room.place()
    waiting = asyncio.create_task(large.widen(2 * BIG))
    await asyncio.sleep(0)
    await fitting.widen(BIG)
    assert not waiting.done()
    fitting.leave()
    first.leave()
    await waiting


async def test_a_body_that_is_alone_is_let_in_whatever_its_size():
    room = Room(BIG)
    place = room.place()
    await place.widen(BIG)
    await place.widen(3 * BIG)
    assert room.held == 3 * BIG


async def test_who_waits_too_long_is_refused_and_leaves_nothing_behind():
    room = Room(BIG, patience=0.01)
    first, second = room.place(), room.place()
    await first.widen(BIG)
    with pytest.raises(Crowded, match=f"no room for {BIG} bytes of a request body within 0.01 s: {BIG} of at most"):
        await second.widen(BIG)
    second.leave()
    assert (room.held, room.waiting) == (BIG, 0)


async def test_a_request_that_ends_while_it_waits_leaves_nothing_behind():
    room = Room(BIG)
    first, second = room.place(), room.place()
    await first.widen(BIG)
    waiting = asyncio.create_task(second.widen(BIG))
    await asyncio.sleep(0)
    waiting.cancel()
    first.leave()  # in the same turn
    await asyncio.wait([waiting])
    second.leave()
    assert (room.held, room.waiting) == (0, 0)


async def test_who_holds_a_part_is_let_in_once_alone_also_after_others_gave_up():
    room = Room(1_000_000)
    first, second, third = room.place(), room.place(), room.place()
    await first.widen(600_000)
    await second.widen(300_000)
    waiting = asyncio.create_task(second.widen(2_000_000))
    leaving = asyncio.create_task(third.widen(200_000))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    first.narrow(400_000)
    assert not waiting.done()
    first.leave()
    await asyncio.wait_for(waiting, 5)
    assert room.held == second.bytes == 2_000_000


async def test_a_place_is_kept_for_whoever_works_on():
    room = Room(BIG)
    place = room.place()
    await place.widen(BIG)
    place.keep()
    place.leave()
    assert room.held == BIG
    place.leave()
    assert room.held == 0


async def test_any_order_of_coming_and_leaving_holds_the_bound_and_ends_at_nothing():
    room, most = Room(10 * SMALL, patience=0.02), 0
    dice = random.Random(5)

    async def request(size: int, stay: float) -> None:
        nonlocal most
        place = room.place()
        try:
            await place.widen(size)
            most = max(most, room.held)
            await asyncio.sleep(stay)
            place.narrow(size // 2)
            await asyncio.sleep(stay)
        except Crowded:
            pass
        finally:
            place.leave()

    tasks = []
    for _ in range(400):
        work = request(dice.randrange(SMALL + 1, 6 * SMALL), dice.random() / 500)
        tasks.append(asyncio.create_task(work))
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
        await asyncio.sleep(dice.random() / 1000)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (room.held, room.waiting) == (0, 0)
    assert SMALL < most <= 10 * SMALL


class Watched(Room):
    """A room that counts at how many of those who wait it looks."""

    looks = 0

    def fits(self, place, size):
        self.looks += 1
        return super().fits(place, size)


async def test_nobody_is_looked_at_while_nobody_can_fit():
    room = Watched(10 * BIG)
    holder, small = room.place(), room.place()
    await holder.widen(9 * BIG)
    waiting = [asyncio.create_task(room.place().widen(size)) for size in [3 * BIG] * 50 + [2 * BIG] * 50]
    await asyncio.sleep(0)
    room.looks = 0
    for _ in range(20):
        small.set(SMALL)
        small.narrow(0)
    assert room.looks == 0
    holder.narrow(4 * BIG)
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, True, *[False] * 98]
    assert room.looks == 2, "at the oldest, and no more"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert room.waiting == 0


async def test_after_every_change_nobody_waits_who_fits():
    room, dice = Room(10 * SMALL), random.Random(7)
    places, tasks = [room.place() for _ in range(30)], {}
    for _ in range(3000):
        place = dice.choice(places)
        task = tasks.get(place)
        if task is not None and task.done():
            del tasks[place]
        if place not in tasks and dice.random() < 0.6:
            tasks[place] = asyncio.create_task(place.widen(dice.randrange(6 * SMALL)))
        elif place in tasks and dice.random() < 0.2:
            tasks[place].cancel()
        elif place not in tasks:
            place.narrow(dice.randrange(place.bytes + 1))
        await asyncio.sleep(0)
        assert not [1 for place, size in room._waiting.values() if room.fits(place, size)]
        assert room.held == sum(place.bytes for place in places)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


PROTOCOLS = ("chat", "messages", "responses")
SETTINGS = "server: {max_body_bytes: 1000000, max_bodies_bytes: 1000000}\n"


def padded(dialect: str, size: int, **more) -> dict:
    """A request of about so many bytes."""
    return {**ASKS[dialect], "model": "acme/one", "metadata": {"pad": "x" * size}, **more}


@pytest.mark.parametrize("dialect", PROTOCOLS)
async def test_without_room_a_request_is_told_to_come_back(tmp_path, dialect):
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", dialect)},
        apps={"acme": replying(500, b"{}")},
        settings=SETTINGS,
    ) as here:
        room = here.services.room
        room.patience = 0.01
        taken = room.place()
        await taken.widen(900_000)
        reply = await here.post(PATHS[dialect], padded(dialect, 200_000))
        assert reply.status_code == 503
        assert reply.json() == {"message": "Service temporarily unavailable"}
        assert (reply.headers["retry-after"], reply.headers["x-tollgate-error"]) == ("10", "too_much_at_once")
        packed = gzip.compress(json.dumps(padded(dialect, 200_000)).encode())
        assert (await here.post(PATHS[dialect], packed, content_encoding="gzip")).status_code == 503, "as it will be"
        assert (await here.post(PATHS[dialect], padded(dialect, 10))).status_code == 500, "small ones are let in"
        metrics = (await here.get("/metrics", key=None)).text
        assert "\ntollgate_request_body_bytes 900000.0\n" in metrics
        assert "\ntollgate_request_body_bytes_max 1000000.0\n" in metrics
        assert 'tollgate_refused_total{reason="too_much_at_once"} 2' in metrics
        assert room.held == 900_000


async def test_every_end_of_a_request_gives_its_room_back(tmp_path):
    chunk = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
    held = []

    async def app(method, path, headers, body):
        held.append(here.services.room.held)

        async def answer():
            yield chunk
            if b"cut" in body:
                raise ConnectionResetError
            yield chunk.replace(b"null", b'"stop"')

        return (400 if b"refuse" in body else 200), {"content-type": "text/event-stream"}, answer()

    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": app}, settings=SETTINGS
    ) as here:
        path, room = PATHS["chat"], here.services.room
        for user, status in (("whole", 200), ("cut", 200), ("refuse", 400)):
            sent = json.dumps(padded("chat", 200_000, user=user, stream=True)).encode()
            assert (await here.post(path, sent)).status_code == status
            assert held.pop() == len(sent)
            assert room.held == 0, user
        for body in (b"{" * 200_000, padded("chat", 200_000, model="no/model"), padded("chat", 1_000_000)):
            assert (await here.post(path, body)).status_code in (400, 404, 413)
            assert room.held == 0
        packed = gzip.compress(sent)
        await here.post(path, packed, content_encoding="gzip")
        assert held.pop() == len(sent), "as large as it is unpacked"
        assert (await here.post(path, gzip.compress(b" " * 2_000_000), content_encoding="gzip")).status_code == 413
        assert (await here.post(path, packed[:-9], content_encoding="gzip")).status_code == 400

        async def in_pieces():
            for at in range(0, len(sent), 10_000):
                yield sent[at : at + 10_000]

        about = {"authorization": f"Bearer {here.key}", "content-type": "application/json"}
        await here.http.post(path, content=in_pieces(), headers=about)
        assert held.pop() == len(sent), "a length nobody told"
        tool = await here.post(
            "/v1/images/mcp",
            {"jsonrpc": "2.0", "id": 1, "method": "x", "pad": "x" * 100_000},
            accept="application/json, text/event-stream",
        )
        assert tool.status_code < 500
        assert (room.held, room.waiting) == (0, 0)


async def test_who_leaves_gives_room_back_once_what_was_used_is_counted(tmp_path, monkeypatch):
    began, counting = asyncio.Event(), asyncio.Event()

    async def app(method, path, headers, body):
        began.set()
        await asyncio.sleep(60)

    async def slow_count(*args, **options):
        await counting.wait()
        return {"input": 1, "output": 0}

    monkeypatch.setattr("tollgate.completions.retry.estimate_usage", slow_count)
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": app}, settings=SETTINGS
    ) as here:
        sent = json.dumps(padded("chat", 200_000)).encode()
        gone = asyncio.Event()
        said = [{"type": "http.request", "body": sent, "more_body": False}]

        async def receive():
            if said:
                return said.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            raise AssertionError("nobody is there")

        scope = {
            "type": "http", "method": "POST", "path": PATHS["chat"], "query_string": b"", "http_version": "1.1",
            "headers": [
                (b"authorization", f"Bearer {here.key}".encode()),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(sent)).encode()),
            ],
        }  # fmt: skip
        running = asyncio.create_task(here.opened.app(scope, receive, send))
        await began.wait()
        gone.set()
        await running
        assert here.services.room.held == len(sent), "its tokens are still being counted"
        counting.set()
        await here.services.settlements.drain(5)
        await asyncio.sleep(0)
        assert here.services.room.held == 0


@pytest.mark.parametrize("engine", ["hypercorn", "uvicorn"])
def test_many_large_bodies_at_once_are_read_one_after_the_other(tmp_path, engine):
    settings = f"server: {{engine: {engine}, max_body_bytes: 400000, max_bodies_bytes: 700000}}\n"
    write_config(tmp_path, settings=settings)
    with gateway(tmp_path) as running:
        port = int(running.base.rpartition(":")[2])
        content = "[[delay=100ms]] " + "x" * 300_000
        body = json.dumps({"model": "sandbox/echo", "messages": [{"role": "user", "content": content}]})

        def ask(_: int) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request(
                "POST",
                PATHS["chat"],
                body,
                {"authorization": f"Bearer {running.key}", "content-type": "application/json"},
            )
            reply = connection.getresponse()
            reply.read()
            connection.close()
            return reply.status

        def measures() -> dict[str, float]:
            with urllib.request.urlopen(f"{running.base}/metrics") as reply:
                rows = [line.split(" ", 1) for line in reply.read().decode().splitlines() if line[0] != "#"]
            return {name: float(value) for name, value in rows if name.endswith(("_body_bytes", "_waiting"))}

        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            answers = [threads.submit(ask, each) for each in range(12)]
            seen = [measures()]
            while not all(answer.done() for answer in answers):
                seen.append(measures())
            assert {answer.result() for answer in answers} == {200}
        # who leaves in the middle of a body, and who declares one and sends nothing of it
        for sent in (body.encode()[:100_000], b""):
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(
                    f"POST {PATHS['chat']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {running.key}\r\n"
                    f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
                    + sent
                )
                while measures()["tollgate_request_body_bytes"] != len(body):
                    pass
        while (last := measures())["tollgate_request_body_bytes"]:
            pass
    assert max(each["tollgate_request_body_bytes"] for each in seen) in (len(body), 2 * len(body))
    assert max(each["tollgate_requests_waiting"] for each in seen) > 0
    assert last["tollgate_requests_waiting"] == 0
