"""A real gateway (and a real sandbox server) in its own process on a loopback port, for end-to-end tests."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.inprocess import write_config
from support.places import ROOT
from tollgate.server import load
from tollgate.start_cache import FOLDER, StartCache

_START_SECONDS = 150  # one second on an idle machine; 44 were measured with thirty processes on two cores
_FREE_PORTS = (20_000, 32_000)


def free_port() -> int:
    """A port that nobody listens on at this moment.

    It is below the ephemeral ports of the kernel: one of those could be assigned to another process before it is used.
    Each process of a parallel run has ports of its own: a gateway listens only a second after its port was chosen.
    """
    step = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = _FREE_PORTS[0] + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % step
    while True:
        port = random.randrange(first, _FREE_PORTS[1], step)
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            return port


@dataclass
class Running:
    """A started gateway: its address, the key of its default account, and how to stop it."""

    base: str
    key: str
    folder: Path
    process: subprocess.Popen[bytes] = field(repr=False)
    log: Path = field(repr=False)

    @property
    def url(self) -> str:
        return self.base + "/v1"

    def cli(self, *words: str) -> str:
        """Runs a `tollgate` command in the gateway's folder; returns its output."""
        done = subprocess.run(
            [sys.executable, "-m", "tollgate", *words],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> int:
        """Sends SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise AssertionError(f"the gateway did not stop: {self.log.read_text()[-3000:]}") from None
        return self.process.returncode


def environment(**extra: str) -> dict[str, str]:
    """The environment of this process with the sources importable and without any provider's secret."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), **extra}


@functools.cache
def _left_by_a_start() -> dict[str, bytes]:
    """The files that a gateway writes for its next start, by name."""
    with tempfile.TemporaryDirectory() as made, contextlib.chdir(made):
        folder = Path(made)
        write_config(folder)
        cache = StartCache(folder / "var")
        cache.write(load(None, environ={}, cache=cache).loaded)
        return {path.name: path.read_bytes() for path in (folder / "var" / FOLDER).iterdir()}


def started_before(folder: Path) -> None:
    """Writes into a new store's folder what an earlier start would have: compiling the shipped mappings is half of the
    start time."""
    if not folder.exists():
        (folder / FOLDER).mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)
        for name, raw in _left_by_a_start().items():
            (folder / FOLDER / name).write_bytes(raw)


def start_gateway(
    folder: Path,
    *,
    port: int | None = None,
    extra: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
    anew: bool = False,
) -> Running:
    """Starts `tollgate serve` in `folder` and waits until it answers. An existing `gateway.yaml` is used. With `anew`
    there is nothing of an earlier start."""
    port = port or free_port()
    if not anew:
        started_before(folder / "var")
    log = folder / "gateway.log"
    with log.open("ab") as sink:
        began = sink.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "tollgate", "serve", "--bind", f"127.0.0.1:{port}", *extra],
            cwd=folder,
            env=environment(**(environ or {})),
            stdout=sink,
            stderr=sink,
        )
    base = f"http://127.0.0.1:{port}"
    _until_it_answers(base + "/healthz", process, log, began)
    found = re.search(r"sk-tg-\S+", log.read_text())
    return Running(base, found.group(0) if found else "", folder, process, log)


def start_sandbox(folder: Path, port: int | None = None) -> tuple[str, subprocess.Popen[bytes]]:
    """Starts `tollgate sandbox` as an HTTP server of its own; returns its address and process."""
    port = port or free_port()
    log = folder / "sandbox.log"
    with log.open("ab") as sink:
        began = sink.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "tollgate", "sandbox", "--bind", f"127.0.0.1:{port}"],
            cwd=folder,
            env=environment(),
            stdout=sink,
            stderr=sink,
        )
    base = f"http://127.0.0.1:{port}"
    _until_it_answers(base + "/_sandbox/stats", process, log, began)
    return base, process


def _until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path, began: int) -> None:
    """Waits for an answer from `url`. Fails with what the process has written to `log` since `began` if it ends or
    takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while not answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"it did not start:\n{log.read_text()[began:]}")
        time.sleep(0.02)


def answers(url: str) -> bool:
    with contextlib.suppress(urllib.error.URLError, OSError):
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.status == 200
    return False


@contextlib.contextmanager
def gateway(folder: Path, **options) -> Iterator[Running]:
    """A gateway inside the `with` block."""
    running = start_gateway(folder, **options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            try:
                running.process.wait(60)
            except subprocess.TimeoutExpired:
                running.process.kill()
