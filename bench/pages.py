"""How quick the dashboard's pages are over many rows, idle and while the gateway works, and what they do to its
answers.

    python bench/usage_files.py DIR --rows 10000000 --days 30        once: 2 minutes, 1.5 GB
    python bench/pages.py DIR

Prints, for each page, the first view (nothing kept yet) and p50 and p95 of the next ones; then the same under load with
the latency of chat answers beside it, measured in the same run without anybody looking at pages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from driver import pace, percentile, request

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support.running import gateway

OWN = (
    "/usage?range=24h",
    "/usage?range=7d",
    "/usage?range=30d",
    "/usage?range=30d&model=acme/large",
    "/requests",
    "/requests?range=30d&text=nothing-like-it",
    "",
    "/keys",
    "/models",
)
ALL = (
    "/operator/usage?range=24h",
    "/operator/usage?range=7d",
    "/operator/usage?range=30d",
    "/operator/requests",
    "/operator/providers",
)


def sign_in(running, account: str) -> httpx.Client:
    """A browser signed in by link."""
    client = httpx.Client(base_url=running.base, timeout=120, follow_redirects=True)
    link = running.cli("accounts", "link", "--account", account).strip()
    token = re.search(r'name="form_token" value="([^"]+)"', client.get(link).text)
    assert token
    assert client.post(link, data={"form_token": token[1]}).status_code == 200
    return client


def view(client: httpx.Client, path: str) -> float:
    """Seconds one page takes."""
    began = time.perf_counter()
    reply = client.get("/dashboard" + path)
    assert reply.status_code == 200, (path, reply.status_code)
    return time.perf_counter() - began


def table(title: str, client: httpx.Client, paths: tuple[str, ...], views: int) -> list[float]:
    """Print a table; gives all times of later views."""
    print(f"\n{title}\n{'page':50} {'first':>9} {'p50':>9} {'p95':>9}   ms")
    later: list[float] = []
    for path in paths:
        first = view(client, path)
        times = [view(client, path) for _ in range(views)]
        later += times
        print(
            f"{path or '/':50} {first * 1000:9.0f} {percentile(times, 0.5) * 1000:9.0f} "
            f"{percentile(times, 0.95) * 1000:9.0f}",
            flush=True,
        )
    return later


def load(port: int, key: str, rate: float, seconds: float, body: str) -> subprocess.Popen[bytes]:
    """Chat requests at a fixed rate, in a process of their own; prints its latencies as JSON."""
    return subprocess.Popen(
        [
            sys.executable,
            __file__,
            "--load",
            str(port),
            "--key",
            key,
            "--rate",
            str(rate),
            "--seconds",
            str(seconds),
            "--body",
            body,
        ],
        stdout=subprocess.PIPE,
    )


def told(process: subprocess.Popen[bytes]) -> tuple[int, float, float, int]:
    """(answers, p50, p99 in ms, failures) of a load."""
    out, _ = process.communicate()
    said = json.loads(out)
    return (
        len(said["latencies"]),
        percentile(said["latencies"], 0.5) * 1000,
        percentile(said["latencies"], 0.99) * 1000,
        said["failures"],
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("usage", type=Path, nargs="?")
    parser.add_argument("--account", default="account-3")
    parser.add_argument("--views", type=int, default=20)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--load", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--key", default="", help=argparse.SUPPRESS)
    parser.add_argument("--body", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        wire = request("POST", "/v1/chat/completions", options.body.encode(), options.key)
        result = asyncio.run(pace(options.load, wire, rate=options.rate, seconds=options.seconds))
        print(json.dumps({"latencies": result.latencies, "failures": len(result.failures)}))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "gateway.yaml").write_text(f"store: {{usage_directory: {options.usage.resolve()}}}\n")
        (folder / "providers").mkdir()
        (folder / "providers" / "sandbox.yaml").write_text((ROOT / "providers" / "sandbox.yaml").read_text())
        with gateway(folder) as running:
            running.cli("accounts", "create", options.account, "--credits", "1000")
            mine, everything = sign_in(running, options.account), sign_in(running, "default")
            table(f"One account of many ({options.account})", mine, OWN, options.views)
            table("All accounts, as an operator", everything, ALL, options.views)
            body = json.dumps({"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]})
            port = int(running.base.rpartition(":")[2])
            alone = told(load(port, running.key, options.rate, options.seconds, body))
            busy = load(port, running.key, options.rate, options.seconds, body)
            time.sleep(1)
            table(f"The same pages at {options.rate:g} chat requests a second", mine, OWN, 5)
            together = told(busy)
            print("\nchat answers            done     p50     p99   ms  failed")
            print(f"nobody looks        {alone[0]:8} {alone[1]:7.2f} {alone[2]:7.2f}      {alone[3]:6}")
            print(f"pages being viewed  {together[0]:8} {together[1]:7.2f} {together[2]:7.2f}      {together[3]:6}")


if __name__ == "__main__":
    main()
