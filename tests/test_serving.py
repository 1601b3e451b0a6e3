"""`tollgate serve` as a process: addresses, failures before anything is created, and reloads with command-line
options."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from support.inprocess import write_config, write_unused_mappings
from support.running import environment, free_port, start_gateway, started_before
from support.waiting import until, wait_until
from tollgate.cli.serve import command, set_logging
from tollgate.reload import Reloader
from tollgate.server import _stop_on_signals

ENGINES = ["hypercorn", "uvicorn"]


@contextlib.contextmanager
def served(folder, **options):
    """Runs a gateway for a block and asserts that it stops cleanly."""
    running = start_gateway(folder, **options)
    try:
        yield running
    finally:
        assert running.stop() == 0


def serve(folder, *words):
    """Runs a `tollgate serve` that is expected to exit by itself."""
    if list(folder.iterdir()):
        started_before(folder / "var")
    return subprocess.run(
        [sys.executable, "-m", "tollgate", "serve", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_start_with_an_address_in_use_creates_no_key(tmp_path, engine):
    write_config(tmp_path)
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        done = serve(tmp_path, "--bind", address, "--engine", engine)
        assert (
            (done.returncode, done.stdout) == (1, "")
            and f"cannot listen on {address}: Address already in use; to use another address," in done.stderr
            and "Traceback" not in done.stderr
        )
    with served(tmp_path, extra=("--engine", engine)) as running:
        assert running.key.startswith("sk-tg-"), "the first successful start shows the key"


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "::1:80", "unix:", "http://127.0.0.1:80"]
)
def test_an_invalid_address_is_reported(tmp_path, address):
    done = serve(tmp_path, "--bind", address)
    assert done.returncode == 2 and f'"{address}" is no address' in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


class _Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def _health(path):
    """The status of /healthz over a unix socket."""
    connection = _Unix(path)
    connection.request("GET", "/healthz")
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("engine", ENGINES)
def test_a_unix_socket_serves_beside_a_port(tmp_path, engine):
    write_config(tmp_path)
    path = str(tmp_path / "s")
    for _ in range(2):  # the second start finds the socket file of the first
        running = start_gateway(tmp_path, extra=("--bind", f"unix:{path}", "--engine", engine))
        try:
            assert _health(path) == 200
            assert os.stat(path).st_mode & 0o060 == 0o060, "the folder's group may connect, for example a proxy"
        finally:
            assert running.stop() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_unix_socket_in_use_is_not_replaced(tmp_path, engine):
    path = str(tmp_path / "s")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_config(tmp_path / name)
    running = start_gateway(tmp_path / "first", extra=("--bind", f"unix:{path}", "--engine", engine))
    try:
        done = serve(tmp_path / "second", "--bind", f"unix:{path}", "--engine", engine)
        assert (done.returncode, done.stdout) == (1, "")
        assert (
            f"cannot listen on unix:{path}: another process is listening there; to use another address," in done.stderr
            and "Traceback" not in done.stderr
        )
        assert _health(path) == 200, "the first one still answers"
        running.kill()
        # the socket file of the killed process is replaced
        running = start_gateway(tmp_path / "second", extra=("--bind", f"unix:{path}", "--engine", engine))
        assert _health(path) == 200
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_an_h2c_upgrade_of_a_request_with_a_body_is_ignored(tmp_path, engine):
    """Java's HTTP client requests the upgrade with its first request (curl does with --http2); the body must not be
    lost."""
    write_config(tmp_path)
    with served(tmp_path, extra=("--engine", engine)) as running:
        client = http.client.HTTPConnection(running.base.removeprefix("http://"), timeout=60)
        upgrade = {
            "Connection": "Upgrade, HTTP2-Settings",
            "Upgrade": "h2c",
            "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
        }
        for headers in (upgrade, {}):
            client.request(
                "POST",
                "/v1/chat/completions",
                json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hi h2c"}]}),
                {"authorization": f"Bearer {running.key}", "content-type": "application/json", **headers},
            )
            reply = client.getresponse()
            body = reply.read()
            assert reply.status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "You said: hi h2c", (
                body
            )


def test_a_port_chosen_by_the_system_is_logged_and_kept_by_a_reload(tmp_path):
    write_config(tmp_path)
    port = free_port()
    with served(tmp_path, port=port, extra=("--bind", "127.0.0.2:0")) as running:

        def address():
            return re.search(rf"listening on 127\.0\.0\.1:{port}, 127\.0\.0\.2:([1-9]\d*)\n", running.log.read_text())

        wait_until(address)
        client = http.client.HTTPConnection("127.0.0.2", int(address()[1]), timeout=60)
        client.request("GET", "/healthz")
        assert client.getresponse().status == 200
        client.close()
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "configuration reloaded" in running.log.read_text())
    assert "taken at the next start only" not in running.log.read_text(), "nothing changed"


def test_a_reload_keeps_command_line_options(tmp_path):
    write_config(tmp_path)
    port = free_port()
    with served(tmp_path, port=port, extra=("--bind", f"127.0.0.2:{port}")) as running:
        for _ in range(2):
            client = http.client.HTTPConnection("127.0.0.2", port, timeout=60)
            client.request("GET", "/v1/images/mcp", headers={"authorization": f"Bearer {running.key}"})
            reply = client.getresponse()
            assert reply.status == 200, "the tool server accepts the hosts of all bound addresses"
            assert json.loads(reply.read())["name"] == "service-images"
            client.close()
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "configuration reloaded" in running.log.read_text())
        assert "configuration reloaded" in running.log.read_text()


def test_a_reload_signal_does_not_end_a_start(monkeypatch):
    seen = []

    def begin(_level):
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
        seen.extend(signal.sigpending())
        sys.exit(1)

    monkeypatch.setattr("tollgate.cli.serve.set_logging", begin)
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        CliRunner().invoke(command)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        signal.signal(signal.SIGHUP, previous)
    assert seen == [signal.SIGHUP]


async def test_a_reload_signal_that_arrived_during_the_start_reloads():
    loop, reloads = asyncio.get_running_loop(), []
    tasks = SimpleNamespace(spawn=lambda work: reloads.append(work.__name__) or work.close())
    services = SimpleNamespace(tasks=tasks)
    opened = SimpleNamespace(services=services, reloader=Reloader(None, None))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
    _stop_on_signals(opened)
    await until(lambda: "reload" in reloads)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.remove_signal_handler(number)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_signal_ends_running_requests(tmp_path, engine):
    write_config(tmp_path)
    with served(tmp_path, extra=("--engine", engine)) as running:
        client = http.client.HTTPConnection("127.0.0.1", int(running.base.rpartition(":")[2]), timeout=20)
        body = {
            "model": "sandbox/echo",
            "stream": True,
            "messages": [{"role": "user", "content": "[[pace=200ms]] [[tokens=200]] talk"}],
        }
        client.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"authorization": f"Bearer {running.key}", "content-type": "application/json"},
        )
        reply = client.getresponse()
        reply.read(10)
        running.process.send_signal(signal.SIGINT)
        words = "stopping: 1 running requests have 30 seconds to finish; the same signal again ends them now"
        wait_until(lambda: words in running.log.read_text())
        began = time.monotonic()
        reply.read(1000)
        assert running.process.poll() is None, "a stop waits for running requests"
        running.process.send_signal(signal.SIGINT)
        assert reply.read().endswith(b'data: {"error":{"message":"the gateway is shutting down; try again later"}}\n\n')
        assert time.monotonic() - began < 25
        assert running.process.wait(60) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stop_waits_for_as_long_as_the_last_reload_said(tmp_path, engine):
    """The engines kept `drain_seconds` of the start, and dropped requests whose time was not over."""
    path = write_config(tmp_path, settings="server: {drain_seconds: 0.2}\n")
    with served(tmp_path, extra=("--engine", engine)) as running:
        path.write_text(path.read_text().replace("drain_seconds: 0.2", "drain_seconds: 40"))
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "configuration reloaded" in running.log.read_text())
        client = http.client.HTTPConnection("127.0.0.1", int(running.base.rpartition(":")[2]), timeout=60)
        body = {
            "model": "sandbox/echo",
            "stream": True,
            "messages": [{"role": "user", "content": "[[pace=200ms]] [[tokens=12]] talk"}],
        }
        headers = {"authorization": f"Bearer {running.key}", "content-type": "application/json"}
        client.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        reply = client.getresponse()
        reply.read(10)
        running.process.send_signal(signal.SIGTERM)
        assert reply.read().endswith(b"data: [DONE]\n\n")


def test_a_listening_tool_client_does_not_delay_a_stop(tmp_path):
    write_config(tmp_path)
    with served(tmp_path) as running:
        listening = http.client.HTTPConnection("127.0.0.1", int(running.base.rpartition(":")[2]), timeout=20)
        listening.request(
            "GET", "/v1/images/mcp", headers={"authorization": f"Bearer {running.key}", "accept": "text/event-stream"}
        )
        assert listening.getresponse().readline() == b": listening\n"
        began = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - began < 25, "waiting for it would take the 30 seconds of drain_seconds"


def test_the_store_is_accessible_to_its_owner_only(tmp_path):
    write_config(tmp_path)
    write_unused_mappings(tmp_path)
    with served(tmp_path, anew=True):
        assert stat.S_IMODE((tmp_path / "var").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "var" / "admin.sock").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("level", "ours", "others"),
    [("debug", "DEBUG", "WARNING"), ("info", "INFO", "WARNING"), ("error", "ERROR", "ERROR")],
)
def test_a_log_level_applies_to_our_lines_only(monkeypatch, level, ours, others):
    """At debug level, the HTTP/2 library logs each header, including callers' keys."""
    root, gateway = logging.getLogger(), logging.getLogger("tollgate")
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(gateway, "level", gateway.level)
    set_logging(level)
    try:
        for name, wanted in (("tollgate.completions", ours), ("hpack.hpack", others), ("httpx", others)):
            assert logging.getLevelName(logging.getLogger(name).getEffectiveLevel()) == wanted, name
    finally:
        monkeypatch.undo()
        logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]
