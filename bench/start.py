"""How long a start takes and what it holds in memory.

    python bench/start.py                                # 5 starts of each kind
    python bench/start.py --starts 9 --requests 100000   # and memory after 1,000, 10,000 and 100,000 chat requests

A start counts from the process's birth to the end of its first chat answer. `cold` starts in an empty folder: nothing
compiled is kept from before, the database is created. `warm` starts again in the same folder. `all secrets` has a
made-up value for every secret the shipped providers name, so that all of them are on. CPU is user and system time of
the process and all its threads, which holds still where wall time does not; both are medians. Memory: resident, and
of it private (what another copy of the process would need again).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import targets
from driver import drive, request
from process import Started
from scenarios import SCENARIOS

SHIPPED = Path(__file__).resolve().parent.parent / "providers"
SETTLE = 2.0
"""Pause before a size is taken, so that deferred writes are done."""


@dataclass
class Start:
    """One start: seconds, seconds of CPU, and bytes after it."""

    wall: float
    cpu: float
    rss: int
    private: int


def fake_secrets(folder: Path) -> dict[str, str]:
    """A value for every secret of the shipped providers; one that names a file gets one. A proxy that is not there
    keeps discovery from asking the providers themselves."""
    account = folder / "service-account.json"
    account.write_text(
        json.dumps(
            {
                "type": "service_account",
                "client_email": "bench@example.com",
                "private_key": "none",
                "token_uri": "https://example.com",
            }
        )
    )
    names = {name for file in SHIPPED.glob("*.yaml") for name in re.findall(r"\$secret\.(\w+)", file.read_text())}
    nowhere = {
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    return nowhere | {
        name: str(account) if name.endswith("_CREDENTIALS") else f"bench-{name.lower().replace('_', '-')}"
        for name in sorted(names)
    }


def private_bytes(started: Started) -> int:
    """Bytes of the process that no other shares."""
    rollup = Path(f"/proc/{started.popen.pid}/smaps_rollup").read_text()
    return sum(int(size) * 1024 for size in re.findall(r"^Private_\w+:\s+(\d+) kB", rollup, re.MULTILINE))


def one(folder: Path, secrets: dict[str, str], engine: str) -> Start:
    """Start in `folder`, ask once, measure, end."""
    folder.mkdir(parents=True, exist_ok=True)
    started, _, _, wall = targets.serve(folder, ["--engine", engine], "sandbox/echo", secrets)
    try:
        found = Start(wall, started.cpu(), started.rss(), private_bytes(started))
        until = time.monotonic() + 20
        # left some seconds after the start
        while not (folder / "var" / "cache" / "files.bin").exists() and time.monotonic() < until:
            time.sleep(0.1)
        return found
    finally:
        started.stop()


def starts(folder: Path, count: int, secrets: dict[str, str], engine: str) -> tuple[list[Start], list[Start]]:
    """Cold and warm starts, in turn. The database is new each time, as only a new one prints a key to ask with."""
    cold, warm = [], []
    for number in range(count):
        place = folder / f"start-{number}"
        cold.append(one(place, secrets, engine))
        for entry in (place / "var").iterdir():
            if entry.name != "cache":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        warm.append(one(place, secrets, engine))
        shutil.rmtree(place)
    return cold, warm


def show(name: str, found: list[Start]) -> None:
    """One row of the table."""
    middle = {
        field: statistics.median(getattr(each, field) for each in found) for field in ("wall", "cpu", "rss", "private")
    }
    best = min(each.wall for each in found)
    print(
        f"| {name} | {middle['wall']:.2f} | {best:.2f} | {middle['cpu']:.2f} | {middle['rss'] / 1e6:.0f} | "
        f"{middle['private'] / 1e6:.0f} |",
        flush=True,
    )


async def requests(folder: Path, counts: list[int], engine: str, secrets: dict[str, str]) -> None:
    """Memory while chat requests pass through to the bench's upstream, all shipped providers beside it."""
    upstream, port = targets.mock(folder, 0.02)
    place = folder / "gateway"
    try:
        target = targets.gateway(place, port, engine, shipped=True, secrets=secrets)
        scenario = SCENARIOS[0]
        done = 0
        try:
            print(f"| 0 | {target.started.rss() / 1e6:.0f} | {private_bytes(target.started) / 1e6:.0f} |", flush=True)
            for count in counts:
                found = await drive(
                    target.port,
                    request("POST", scenario.path, scenario.body, target.key),
                    count=count - done,
                    seconds=900,
                )
                if found.failures:
                    raise RuntimeError(f"{len(found.failures)} failed: {found.failures[0]}")
                done = count
                await asyncio.sleep(SETTLE)
                print(
                    f"| {count:,} | {target.started.rss() / 1e6:.0f} | {private_bytes(target.started) / 1e6:.0f} |",
                    flush=True,
                )
        finally:
            target.started.stop()
    finally:
        upstream.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--starts", type=int, default=5, help="of each kind")
    parser.add_argument(
        "--requests", type=int, default=0, help="also load the gateway with so many chat requests, and watch its memory"
    )
    parser.add_argument("--engine", default="hypercorn", choices=["hypercorn", "uvicorn"])
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tollgate-start-"))
    try:
        print(
            f"{targets.describe_machine()}\n\n| start | s | best | CPU s | RSS MB | private MB "
            "|\n|---|---|---|---|---|---|"
        )
        secrets = fake_secrets(folder)
        for name, known in (("default files", {}), ("all secrets", secrets)):
            if given.starts:
                cold, warm = starts(folder, given.starts, known, given.engine)
                show(f"{name}, cold", cold)
                show(f"{name}, warm", warm)
        if given.requests:
            counts = [count for count in (1_000, 10_000, 100_000) if count < given.requests] + [given.requests]
            print("\n| requests | RSS MB | private MB |\n|---|---|---|")
            asyncio.run(requests(folder, counts, given.engine, secrets))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
