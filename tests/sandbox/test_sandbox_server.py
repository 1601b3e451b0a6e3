"""The sandbox as a server: dropped connections, disconnecting clients, the command's options."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from sandbox_talk import body_of, start

from support.places import ROOT


@pytest.fixture(params=["hypercorn", "uvicorn"], scope="module")
def served(request):
    process, url = start("--engine", request.param)
    yield url
    process.terminate()
    assert process.wait(60) == 0


def stats(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/_sandbox/stats", timeout=30) as reply:
        return json.load(reply)


async def post(url: str, text: str, *, leave_at: bytes | None = None, **more) -> bytes:
    """Sends a raw POST. Returns all bytes until the server closes or `leave_at` is received. A cancelled call
    disconnects."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    path, body = body_of("chat", text, **more)
    data = json.dumps(body).encode()
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode()  # noqa: E501
        + data
    )
    received = b""
    try:
        async with asyncio.timeout(30):
            while chunk := await reader.read(65536):
                received += chunk
                if leave_at is not None and leave_at in received:
                    break
    finally:
        writer.close()
    return received


async def test_a_complete_stream_ends_its_body(served):
    assert (await post(served, "hi", stream=True)).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("marker", ["cut=2", "cut-mid=2", "reset"])
async def test_a_cut_stream_does_not_end_its_body(served, marker):
    received = await post(served, f"hi [[{marker}]]", stream=True)
    assert received.startswith(b"HTTP/1.1 200")
    assert not received.endswith(b"0\r\n\r\n")


async def test_a_clean_cut_ends_its_body_without_done(served):
    received = await post(served, "hi [[cut=2 clean]]", stream=True)
    assert received.endswith(b"0\r\n\r\n") and b"[DONE]" not in received


@pytest.mark.parametrize(
    ("marker", "stream"), [("delay=9s", False), ("pace=200ms", True), ("stall=2", True), ("stall", False)]
)
async def test_a_disconnecting_client_is_counted(served, marker, stream):
    before = stats(served)
    request = asyncio.create_task(post(served, f"hi [[{marker}]]", stream=stream))
    deadline = time.monotonic() + 30
    while not (now := stats(served))["running"]:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.02)
    request.cancel()
    while (now := stats(served))["running"] or now["aborted"] == before["aborted"]:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.02)
    assert (now["requests"], now["aborted"]) == (before["requests"] + 1, before["aborted"] + 1)


async def test_paced_events_arrive_one_by_one(served):
    received = await post(served, "hi [[pace=1s]]", stream=True, leave_at=b"data: ")
    assert 1 <= received.count(b"data: ") <= 3


def test_images_have_a_url(served):
    body = json.dumps({"model": "draw", "input": {"prompt": "x [[duration=0s]]"}}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{served}/v1/images", body), timeout=30) as reply:
        url = json.load(reply)["images"][0]["url"]
    with urllib.request.urlopen(url, timeout=30) as reply:
        assert (reply.headers["content-type"], reply.read()[1:4]) == ("image/png", b"PNG")


def test_the_key_option_is_enforced():
    process, url = start("--key", "secret")
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}/v1/models", timeout=30)
        request = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": "Bearer secret"})
        assert urllib.request.urlopen(request, timeout=30).status == 200
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_an_address_in_use_is_reported(sandbox_url):
    bind = sandbox_url.removeprefix("http://")
    found = subprocess.run(
        [sys.executable, "-c", "from tollgate.cli.sandbox import command; command()", "--bind", bind],
        capture_output=True,
        text=True,
        timeout=20,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert (found.returncode, f"could not listen on {bind}" in found.stderr) == (1, True)
