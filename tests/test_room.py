"""Request bodies share a bound: one without room waits unread, and every request returns its room."""

import asyncio
import concurrent.futures
import gzip
import http.client
import json
import random
import socket
import time
import urllib.request

import pytest

from conformance.upstreams import ASKS, PATHS, provider
from support.inprocess import inprocess, replying, write_config
from support.running import gateway
from support.waiting import SECONDS, wait_until
from tollgate.errors import BodyMemoryFull
from tollgate.room import SMALL, Room

BIG = 4 * SMALL


async def test_a_body_that_fits_is_admitted_and_others_wait():
    room = Room(2 * BIG)
    first, second, third, small = (room.place() for _ in range(4))
    await first.widen(BIG)
    await second.widen(BIG)
    waiting = asyncio.create_task(third.widen(BIG))
    await asyncio.sleep(0)
    assert (room.held, room.waiting, waiting.done()) == (2 * BIG, 1, False)
    await small.widen(SMALL)
    assert room.held == 2 * BIG + SMALL, "small bodies are counted and never wait"
    small.leave()
    first.leave()
    await waiting
    assert (room.held, room.waiting) == (2 * BIG, 0)
    second.leave()
    third.leave()
    assert room.held == 0


async def test_a_larger_bound_admits_those_that_wait(tmp_path, monkeypatch):
    """After a reload they waited until another request ended, or were refused."""
    monkeypatch.chdir(tmp_path)  # files have the same names in a reload
    settings = "server: {max_body_bytes: %d, max_bodies_bytes: %d}\n"
    async with inprocess(tmp_path, settings=settings % (BIG, BIG)) as here:
        room = here.services.room
        first, second = room.place(), room.place()
        await first.widen(BIG)
        waiting = asyncio.create_task(second.widen(BIG))
        await asyncio.sleep(0)
        assert (room.waiting, waiting.done()) == (1, False)
        path = tmp_path / "gateway.yaml"
        path.write_text(path.read_text().replace(settings % (BIG, BIG), settings % (BIG, 2 * BIG)))
        assert (await here.opened.reloader.reload()).ok
        await asyncio.sleep(0)
        assert (room.held, room.waiting) == (2 * BIG, 0)
        await waiting
        first.leave()
        second.leave()


async def test_smaller_bodies_pass_one_that_does_not_fit_yet():
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


async def test_a_body_that_is_alone_is_admitted_at_any_size():
    room = Room(BIG)
    place = room.place()
    await place.widen(BIG)
    await place.widen(3 * BIG)
    assert room.held == 3 * BIG


async def test_a_body_that_waits_too_long_is_rejected_and_holds_nothing():
    room = Room(BIG, patience=0.01)
    first, second = room.place(), room.place()
    await first.widen(BIG)
    with pytest.raises(
        BodyMemoryFull, match=f"no room for {BIG} bytes of a request body within 0.01 s: {BIG} of at most"
    ):
        await second.widen(BIG)
    second.leave()
    assert (room.held, room.waiting) == (BIG, 0)


async def test_a_request_cancelled_while_waiting_holds_nothing():
    room = Room(BIG)
    first, second = room.place(), room.place()
    await first.widen(BIG)
    waiting = asyncio.create_task(second.widen(BIG))
    await asyncio.sleep(0)
    waiting.cancel()
    first.leave()  # in the same turn of the event loop
    await asyncio.wait([waiting])
    second.leave()
    assert (room.held, room.waiting) == (0, 0)


async def test_a_partly_admitted_body_is_admitted_once_alone():
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
    await asyncio.wait_for(waiting, SECONDS)
    assert room.held == second.bytes == 2_000_000


async def test_a_partly_admitted_body_is_admitted_once_alone_also_when_an_unread_one_waits_behind_it():
    room = Room(1_000_000)
    running, partly, unread = room.place(), room.place(), room.place()
    await running.widen(600_000)
    await partly.widen(300_000)
    waiting = [asyncio.create_task(partly.widen(2_000_000))]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(unread.widen(900_000)))
    await asyncio.sleep(0)
    running.leave()
    await asyncio.wait_for(waiting[0], SECONDS)
    assert (partly.bytes, waiting[1].done()) == (2_000_000, False)
    partly.leave()
    await asyncio.wait_for(waiting[1], SECONDS)


async def test_a_kept_place_needs_a_second_leave():
    room = Room(BIG)
    place = room.place()
    await place.widen(BIG)
    place.keep()
    place.leave()
    assert room.held == BIG
    place.leave()
    assert room.held == 0


async def test_random_arrivals_and_departures_keep_the_bound_and_end_at_zero():
    room, most = Room(10 * SMALL, patience=0.02), 0
    rng = random.Random(5)

    async def request(size: int, stay: float) -> None:
        nonlocal most
        place = room.place()
        try:
            await place.widen(size)
            most = max(most, room.held)
            await asyncio.sleep(stay)
            place.narrow(size // 2)
            await asyncio.sleep(stay)
        except BodyMemoryFull:
            pass
        finally:
            place.leave()

    tasks = []
    for _ in range(400):
        work = request(rng.randrange(SMALL + 1, 6 * SMALL), rng.random() / 500)
        tasks.append(asyncio.create_task(work))
        if rng.random() < 0.3:
            rng.choice(tasks).cancel()
        await asyncio.sleep(rng.random() / 1000)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (room.held, room.waiting) == (0, 0)
    assert SMALL < most <= 10 * SMALL


class CountingRoom(Room):
    """A room that counts how many waiting bodies it checks."""

    looks = 0

    def fits(self, place, size):
        self.looks += 1
        return super().fits(place, size)


async def test_no_waiting_body_is_checked_while_none_can_fit():
    room = CountingRoom(10 * BIG)
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
    assert room.looks == 2, "only the two oldest are checked"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert room.waiting == 0


async def test_no_body_that_fits_is_left_waiting():
    room, rng = Room(10 * SMALL), random.Random(7)
    places, tasks = [room.place() for _ in range(30)], {}
    for _ in range(3000):
        place = rng.choice(places)
        task = tasks.get(place)
        if task is not None and task.done():
            del tasks[place]
        if place not in tasks and rng.random() < 0.6:
            tasks[place] = asyncio.create_task(place.widen(rng.randrange(6 * SMALL)))
        elif place in tasks and rng.random() < 0.2:
            tasks[place].cancel()
        elif place not in tasks:
            place.narrow(rng.randrange(place.bytes + 1))
        await asyncio.sleep(0)
        assert not [1 for place, size in room._waiting.values() if room.fits(place, size)]
        assert room.held == sum(place.bytes for place in places)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


PROTOCOLS = ("chat", "messages", "responses")
SETTINGS = "server: {max_body_bytes: 1000000, max_bodies_bytes: 1000000}\n"


def padded(dialect: str, size: int, **more) -> dict:
    """A request of about `size` bytes."""
    return {**ASKS[dialect], "model": "acme/one", "metadata": {"pad": "x" * size}, **more}


@pytest.mark.parametrize("dialect", PROTOCOLS)
async def test_a_request_without_room_is_503_with_retry_after(tmp_path, dialect):
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", dialect)},
        apps={"acme": replying(500, b"{}")},
        settings=SETTINGS,
    ) as app:
        room = app.services.room
        room.patience = 0.01
        taken = room.place()
        await taken.widen(900_000)
        reply = await app.post(PATHS[dialect], padded(dialect, 200_000))
        assert reply.status_code == 503
        assert reply.json() == {"message": "Service temporarily unavailable"}
        assert (reply.headers["retry-after"], reply.headers["x-tollgate-error"]) == ("10", "too_much_at_once")
        packed = gzip.compress(json.dumps(padded(dialect, 200_000)).encode())
        assert (await app.post(PATHS[dialect], packed, content_encoding="gzip")).status_code == 503, "unpacked size"
        assert (await app.post(PATHS[dialect], padded(dialect, 10))).status_code == 500, "small ones are admitted"
        metrics = (await app.get("/metrics", key=None)).text
        assert "\ntollgate_request_body_bytes 900000.0\n" in metrics
        assert "\ntollgate_request_body_bytes_max 1000000.0\n" in metrics
        assert 'tollgate_refused_total{reason="too_much_at_once"} 2' in metrics
        assert room.held == 900_000


async def test_every_outcome_of_a_request_returns_its_room(tmp_path):
    chunk = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
    held = []

    async def upstream(method, path, headers, body):
        held.append(app.services.room.held)

        async def answer():
            yield chunk
            if b"cut" in body:
                raise ConnectionResetError
            yield chunk.replace(b"null", b'"stop"')

        return (400 if b"refuse" in body else 200), {"content-type": "text/event-stream"}, answer()

    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": upstream}, settings=SETTINGS
    ) as app:
        path, room = PATHS["chat"], app.services.room
        for user, status in (("whole", 200), ("cut", 200), ("refuse", 400)):
            sent = json.dumps(padded("chat", 200_000, user=user, stream=True)).encode()
            assert (await app.post(path, sent)).status_code == status
            assert held.pop() == len(sent)
            assert room.held == 0, user
        for body, status in (
            (b"{" * 200_000, 400),
            (padded("chat", 200_000, model="no/model"), 400),
            (padded("chat", 1_000_000), 413),
        ):
            assert (await app.post(path, body)).status_code == status
            assert room.held == 0
        packed = gzip.compress(sent)
        await app.post(path, packed, content_encoding="gzip")
        assert held.pop() == len(sent), "its unpacked size"
        assert (await app.post(path, gzip.compress(b" " * 2_000_000), content_encoding="gzip")).status_code == 413
        assert (await app.post(path, packed[:-9], content_encoding="gzip")).status_code == 400

        async def in_pieces():
            for at in range(0, len(sent), 10_000):
                yield sent[at : at + 10_000]

        about = {"authorization": f"Bearer {app.key}", "content-type": "application/json"}
        await app.http.post(path, content=in_pieces(), headers=about)
        assert held.pop() == len(sent), "without content-length"
        tool = await app.post(
            "/v1/images/mcp",
            {"jsonrpc": "2.0", "id": 1, "method": "x", "pad": "x" * 100_000},
            accept="application/json, text/event-stream",
        )
        assert tool.status_code < 500
        assert (room.held, room.waiting) == (0, 0)


async def test_a_disconnected_request_returns_its_room_after_its_usage_is_counted(tmp_path, monkeypatch):
    began, counting = asyncio.Event(), asyncio.Event()

    async def upstream(method, path, headers, body):
        began.set()
        await asyncio.sleep(60)

    async def slow_count(*args, **options):
        await counting.wait()
        return {"input": 1, "output": 0}

    monkeypatch.setattr("tollgate.completions.retry.estimate_usage", slow_count)
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": upstream}, settings=SETTINGS
    ) as app:
        sent = json.dumps(padded("chat", 200_000)).encode()
        gone = asyncio.Event()
        messages = [{"type": "http.request", "body": sent, "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            raise AssertionError("the client is gone")

        scope = {
            "type": "http", "method": "POST", "path": PATHS["chat"], "query_string": b"", "http_version": "1.1",
            "headers": [
                (b"authorization", f"Bearer {app.key}".encode()),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(sent)).encode()),
            ],
        }  # fmt: skip
        running = asyncio.create_task(app.opened.app(scope, receive, send))
        await began.wait()
        gone.set()
        await running
        assert app.services.room.held == len(sent), "its tokens are still being counted"
        counting.set()
        await app.services.settlements.drain(SECONDS)
        await asyncio.sleep(0)
        assert app.services.room.held == 0


@pytest.mark.parametrize("engine", ["hypercorn", "uvicorn"])
def test_many_large_bodies_at_once_are_read_in_turn(tmp_path, engine):
    settings = f"server: {{engine: {engine}, max_body_bytes: 400000, max_bodies_bytes: 700000}}\n"
    write_config(tmp_path, settings=settings)
    with gateway(tmp_path) as running:
        port = int(running.base.rpartition(":")[2])
        content = "[[delay=100ms]] " + "x" * 300_000
        body = json.dumps({"model": "sandbox/echo", "messages": [{"role": "user", "content": content}]})

        def post(_: int) -> int:
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

        # two at a time: the last one waits for two rounds, which take far less than its ten seconds on any machine
        with concurrent.futures.ThreadPoolExecutor(6) as threads:
            statuses = [threads.submit(post, each) for each in range(6)]
            seen = [measures()]
            while not all(answer.done() for answer in statuses):
                time.sleep(0.01)
                seen.append(measures())
            assert {answer.result() for answer in statuses} == {200}
        # one client disconnects in the middle of its body, another one before sending any of it
        for sent in (body.encode()[:100_000], b""):
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(
                    f"POST {PATHS['chat']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {running.key}\r\n"
                    f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
                    + sent
                )
                wait_until(lambda: measures()["tollgate_request_body_bytes"] == len(body))
        wait_until(lambda: not measures()["tollgate_request_body_bytes"])
        last = measures()
    assert max(each["tollgate_request_body_bytes"] for each in seen) in (len(body), 2 * len(body))
    assert max(each["tollgate_requests_waiting"] for each in seen) > 0
    assert last["tollgate_requests_waiting"] == 0
