"""Processes under test: starting them, their CPU time and memory from /proc, ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Started:
    """A running process and its children. CPU time is that of all of them."""

    popen: subprocess.Popen[bytes]

    @property
    def pids(self) -> list[int]:
        """The process and its descendants."""
        found, at = [self.popen.pid], 0
        while at < len(found):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{found[at]}/task").iterdir():
                    found += [int(p) for p in (task / "children").read_text().split()]
            at += 1
        return found

    def cpu(self) -> float:
        """Seconds of CPU so far, of every thread, in nanosecond resolution where the kernel gives it."""
        total = 0.0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    total += _task_seconds(task)
        return total

    def rss(self) -> int:
        """Resident bytes now."""
        total = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return total

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after a while."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(15)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait(5)


def _task_seconds(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(command: list[str], *, cwd: Path | None = None, log: Path, env: dict[str, str] | None = None) -> Started:
    """Start a command with its output in `log`."""
    with log.open("ab") as sink:
        return Started(subprocess.Popen(command, cwd=cwd, stdout=sink, stderr=sink, env={**os.environ, **(env or {})}))


def port_of(started: Started, log: Path, seconds: float = 10.0) -> int:
    """The port a bench server prints as its first line."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop and started.popen.poll() is None:
        text = log.read_text().strip()
        if text:
            return int(text.splitlines()[0])
        time.sleep(0.01)
    raise RuntimeError(f"did not start: {log.read_text()}")


def wait_for(url: str, started: Started, log: Path, seconds: float = 60.0) -> float:
    """Wait until `url` answers 200; gives the seconds it took."""
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        if started.popen.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=2) as reply:
            if reply.status == 200:
                return time.perf_counter() - began
        time.sleep(0.01)
    raise RuntimeError(f"{url} did not answer:\n{log.read_text()[-3000:]}")
