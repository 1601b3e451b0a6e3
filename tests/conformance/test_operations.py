"""A gateway in its own process, on either engine: clients that leave, SIGTERM, reload, full disks, many streams,
constant memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import time
import urllib.request
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from conformance.conftest import ENGINES
from conformance.requests import CHAT, MESSAGES, RESPONSES, chat, stats
from support.client import Raw
from support.inprocess import write_config
from support.places import ROOT
from support.running import free_port, start_gateway
from support.usage_files import usage_rows
from support.waiting import until

# ---- clients that leave (PITFALLS 7, 27) ----------------------------------------------------------------------------
SLOW = "[[delay=30s]] x"
STREAMING = "[[pace=30ms]] [[tokens=600]] x"
LEAVING = {
    "waiting for a whole answer": (CHAT, chat(SLOW, model="remote/echo", stream=False), False),
    "waiting for the first byte": (CHAT, chat(SLOW, model="remote/echo"), False),
    "during the stream": (CHAT, chat(STREAMING, model="remote/echo"), True),
    "in a converted stream": (MESSAGES, chat(STREAMING, model="only-chat/reasoner", max_tokens=900), True),
    "waiting for a converted answer": (RESPONSES, {"model": "only-messages/reasoner", "input": SLOW}, False),
}


@pytest.mark.parametrize("reset", [False, True], ids=["closing", "resetting"])
@pytest.mark.parametrize(("path", "body", "reads"), LEAVING.values(), ids=LEAVING.keys())
async def test_07_a_client_that_leaves_stops_the_upstream(running, path, body, reads, reset):
    before = stats(running)
    async with Raw(running.base, running.key) as client:
        await client.send(path, body)
        if reads:
            assert (await client.head())[0] == 200
            for _ in range(5):
                await client.reader.readline()
        else:
            await until(lambda: stats(running)["running"] > before["running"])
        if reset:
            client.reset()
    await until(
        lambda: stats(running)["aborted"] == before["aborted"] + 1 and stats(running)["running"] == before["running"]
    )


async def test_06_an_abandoned_stream_is_billed_once_for_what_was_received(running):
    async with Raw(running.base, running.key) as client:
        # slowly, so that few tokens arrive while a busy machine has not noticed yet that the client left
        await client.send(CHAT, chat("[[pace=100ms]] [[tokens=600]] x", model="remote/echo", user="leaver"))
        request_id = (await client.head())[1]["x-request-id"]
        for _ in range(30):
            await client.reader.readline()
    found: list[dict] = []

    def published() -> bool:
        found[:] = usage_rows(running.folder, f"request_id = '{request_id}'")
        return bool(found)

    await until(published)
    (row,) = found
    assert (row["outcome"], row["status"], row["estimated"], row["end_user"]) == ("client_gone", 499, True, "leaver")
    assert 3 <= row["output_tokens"] <= 60 and row["input_tokens"] > 0 and row["cost"] > 0


# ---- many at once ---------------------------------------------------------------------------------------------------
async def test_500_concurrent_paced_streams_are_all_complete(running):
    async def one(n: int) -> tuple[int, str]:
        async with Raw(running.base, running.key) as client:
            status, _, body = await client.ask(CHAT, chat(f"[[pace=40ms]] [[tokens=12]] stream {n}"))
            return status, body.decode()

    done = await asyncio.gather(*(one(n) for n in range(500)))
    assert [status for status, _ in done] == [200] * 500
    assert all(text.endswith("data: [DONE]\n\n") and '"usage"' in text for _, text in done)


def resident_kb(pid: int) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))


async def test_22_memory_stays_constant_over_thousands_of_requests(running):
    """Whole, streamed, converted, rejected and failing ones, over kept connections. A busy machine warms up longer: a
    leak grows in every round."""
    mix = [
        (CHAT, chat("hello", stream=False)),
        (CHAT, chat("hello")),
        (MESSAGES, chat("hello", max_tokens=50)),
        (RESPONSES, {"model": "only-chat/reasoner", "input": "hi", "stream": True}),
        (CHAT, chat("[[error=500]] x")),
        (CHAT, chat("x", model="nobody/nothing")),
        (CHAT, b"{not json"),
        (MESSAGES, chat("[[cut=2]] a b c", max_tokens=9)),
    ]

    async def worker(count: int) -> None:
        async with Raw(running.base, running.key) as client:
            for n in range(count):
                path, body = mix[n % len(mix)]
                await client.ask(path, body)

    async def ask(count: int) -> None:
        await asyncio.gather(*(worker(count) for _ in range(8)))

    async def grown(count: int) -> int:
        before, best = resident_kb(running.process.pid), 1 << 30
        await ask(count)
        ends = time.monotonic() + 10
        # storing and publishing (once a second here) allocate memory and release it again
        while best >= 8_000 and time.monotonic() < ends:
            await asyncio.sleep(0.2)
            best = min(best, resident_kb(running.process.pid) - before)
        return best

    await ask(160)
    await asyncio.sleep(2.5)
    rounds: list[int] = []
    while not rounds or rounds[-1] >= 8_000:
        assert len(rounds) < 4, f"{rounds} kB more after another 1,920 requests each"
        rounds.append(await grown(240))


async def test_a_connection_is_kept_however_often_it_is_used(running):
    request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", int(running.base.rpartition(":")[2]))
    for _ in range(1100):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(b'{"status":"ok"}'))
        assert head.startswith(b"HTTP/1.1 200") and b"close" not in head.lower()
    writer.close()


# ---- SIGTERM --------------------------------------------------------------------------------------------------------
def requests_running(running) -> int:
    """The number of requests that the gateway is answering, besides this one."""
    with urllib.request.urlopen(running.base + "/metrics", timeout=30) as reply:
        return int(re.search(r"^tollgate_requests_running (\d+)", reply.read().decode(), re.MULTILINE).group(1)) - 1


def draining_in(folder, engine: str, seconds: int):
    """A gateway of its own on this engine, with this time to drain."""
    write_config(folder, settings=f"server: {{engine: {engine}, drain_seconds: {seconds}}}\n")
    return start_gateway(folder)


@pytest.mark.parametrize("engine", ENGINES)
async def test_05_after_sigterm_a_running_stream_finishes_and_new_work_is_rejected(tmp_path, engine):
    running = draining_in(tmp_path, engine, 10)
    async with (
        Raw(running.base, running.key) as streaming,
        Raw(running.base, running.key) as waiting,
        Raw(running.base, running.key) as kept,
    ):
        await kept.send(CHAT, chat("first", stream=False))
        await kept.body((await kept.head())[1])
        await streaming.send(CHAT, chat("[[pace=60ms]] [[tokens=35]] to the end"))
        status, headers = await streaming.head()
        running.process.send_signal(signal.SIGSTOP)  # so that the process receives both at once, however slow it is
        running.process.send_signal(signal.SIGTERM)
        await kept.send(CHAT, chat("under way at the shutdown", stream=False))
        running.process.send_signal(signal.SIGCONT)
        last, last_headers = await kept.head()
        assert last == 200 and "under way" in (await kept.body(last_headers)).decode()
        assert await asyncio.wait_for(waiting.reader.read(), 30) == b"", "an idle connection is closed"
        refused = True
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with Raw(running.base, running.key) as late:
                await late.send(CHAT, chat("newer work", stream=False))
                refused = (await late.head())[0] == 503
        body = await streaming.body(headers)
    assert status == 200 and body.endswith(b"data: [DONE]\n\n") and refused
    running.process.wait(60)
    assert running.process.returncode == 0, running.log.read_text()[-2000:]
    assert "Traceback" not in running.log.read_text()
    rows = usage_rows(tmp_path)
    assert [row["outcome"] for row in rows] == ["ok"] * 3
    assert headers["x-request-id"] in {row["request_id"] for row in rows}


@pytest.mark.parametrize("engine", ENGINES)
async def test_05_requests_still_running_after_the_drain_end_with_a_shutdown_error(tmp_path, engine):
    running = draining_in(tmp_path, engine, 2)
    async with Raw(running.base, running.key) as streaming, Raw(running.base, running.key) as waiting:
        await streaming.send(CHAT, chat("[[pace=200ms]] [[tokens=200]] never to the end"))
        status, headers = await streaming.head()
        await waiting.send(CHAT, chat("[[delay=20s]] late", stream=False))
        await until(lambda: requests_running(running) == 2)
        running.process.send_signal(signal.SIGTERM)
        body = await streaming.body(headers)
        late, late_headers = await waiting.head()
        late_body = await waiting.body(late_headers)
    assert status == 200 and b"[DONE]" not in body
    assert "shutting down" in json.loads(body.strip().rpartition(b"data: ")[2])["error"]["message"]
    assert late == 503 and b"unavailable" in late_body and late_headers["x-request-id"]
    running.process.wait(60)
    assert running.process.returncode == 0 and "Traceback" not in running.log.read_text()
    rows = {row["request_id"]: row for row in usage_rows(tmp_path)}
    assert {(row["outcome"], row["status"], row["stream"]) for row in rows.values()} == {
        ("error", 200, True),
        ("error", 503, False),
    }
    assert 0 < rows[headers["x-request-id"]]["output_tokens"] < 60


# ---- a full disk ----------------------------------------------------------------------------------------------------
async def test_after_a_full_disk_new_work_is_rejected_nothing_is_lost_and_it_recovers(tmp_path):
    """The kernel rejects every further byte in the files of the process, and later allows them again."""
    write_config(tmp_path)
    running = start_gateway(tmp_path)
    pid, (soft, hard) = running.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
    seen: list[str] = []
    try:
        async with httpx.AsyncClient(
            base_url=running.base, headers={"authorization": f"Bearer {running.key}"}, timeout=20
        ) as client:

            async def ask(stream: bool) -> tuple[int, str]:
                reply = await client.post(CHAT, json=chat("hello", stream=stream))
                if reply.status_code == 200 and (not stream or reply.text.endswith("data: [DONE]\n\n")):
                    seen.append(reply.headers["x-request-id"])
                return reply.status_code, reply.text

            for n in range(4):
                assert (await ask(bool(n % 2)))[0] == 200
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
            status, text = await ask(True)  # admitted before the failure was known
            assert status in (200, 503) and not text.endswith("[DONE]\n\n")
            assert status == 503 or set(json.loads(text.strip().rpartition("data: ")[2])) == {"error"}
            refused = [await ask(stream) for stream in (False, True)]
            ready = await client.get("/readyz")
            assert ready.status_code == 503 and ready.json()["reason"]
            assert [status for status, _ in refused] == [503, 503] and (await client.get("/healthz")).status_code == 200
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))

            async def ready_again() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await until(ready_again)
            for n in range(4):
                assert (await ask(bool(n % 2)))[0] == 200
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert running.stop() == 0
    ids = [row["request_id"] for row in usage_rows(tmp_path)]
    assert len(ids) == len(set(ids)) and set(seen) <= set(ids) and len(seen) == 8


# ---- reload ---------------------------------------------------------------------------------------------------------
ROUTE = """
provider: moving
speaks: chat
url: app://sandbox/v1/chat/completions
models:
  moving/model:
    upstream: {upstream}
    context: 1000
    price: {{prompt: "{price}", completion: "0", unit: 1, currency: USD}}
"""


async def test_23_a_reload_does_not_affect_running_streams_and_an_invalid_file_changes_nothing(tmp_path):
    write_config(tmp_path, providers={"moving": ROUTE.format(upstream="echo", price="0.001")})
    running = start_gateway(tmp_path)
    file = tmp_path / "providers" / "moving.yaml"
    try:
        async with httpx.AsyncClient(
            base_url=running.base, headers={"authorization": f"Bearer {running.key}"}, timeout=20
        ) as client:

            async def served_by(model: str) -> bool:
                reply = await client.post(CHAT, json=chat("hi", model="moving/model", stream=False))
                return reply.json()["model"] == model

            async with Raw(running.base, running.key) as streaming:
                await streaming.send(CHAT, chat("[[pace=100ms]] [[tokens=40]] on the old one", model="moving/model"))
                _, headers = await streaming.head()
                file.write_text(ROUTE.format(upstream="echo-mini", price="0.002"))
                running.process.send_signal(signal.SIGHUP)
                await until(lambda: served_by("echo-mini"))
                file.write_text(ROUTE.format(upstream="echo", price="a lot").replace("context:", "contxt:"))
                await until(lambda: "a lot" in running.log.read_text())
                log = running.log.read_text()
                assert "providers/moving.yaml:" in log and "context" in log, "both errors, with their place"
                assert await served_by("echo-mini")
                file.write_text(ROUTE.format(upstream="echo", price="0.003"))
                await until(lambda: served_by("echo"))  # a corrected file is loaded by itself
                body = (await streaming.body(headers)).decode()
            assert body.endswith("data: [DONE]\n\n") and "echo-mini" not in body
    finally:
        assert running.stop() == 0
    old = usage_rows(tmp_path, f"request_id = '{headers['x-request-id']}'")[0]
    assert old["upstream_model"] == "echo" and old["cost"] == old["input_tokens"] * Decimal("0.001")


async def test_a_plugin_that_hangs_at_a_reload_delays_neither_requests_nor_the_shutdown(tmp_path):
    write_config(tmp_path)
    (tmp_path / "acme_waiter.py").write_text("import threading\n\nthreading.Event().wait()\n")
    running = start_gateway(tmp_path, environ={"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"})
    file = tmp_path / "gateway.yaml"
    file.write_text(file.read_text() + "\nplugins: [acme_waiter]\n")
    running.process.send_signal(signal.SIGHUP)
    await until(lambda: "plugin `acme_waiter` is being imported" in running.log.read_text())
    async with Raw(running.base, running.key) as client:
        await client.send(CHAT, chat("still here", stream=False))
        assert (await client.head())[0] == 200
    start = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - start < 25 and "Traceback" not in running.log.read_text()


# ---- start ----------------------------------------------------------------------------------------------------------
def cpu_seconds(pid: int) -> float:
    """What a process has worked so far: what others take of the machine is not counted."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def test_30_it_starts_fast_and_two_cannot_share_a_ledger(tmp_path):
    write_config(tmp_path)
    running = start_gateway(tmp_path, anew=True)
    took = cpu_seconds(running.process.pid)
    try:
        assert took < 6, f"{took:.1f} s of work to the first answer (1.2 s on an idle machine)"
        with pytest.raises(AssertionError, match="in use by another process"):
            start_gateway(tmp_path, port=free_port())
    finally:
        assert running.stop() == 0
