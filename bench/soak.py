"""Whether memory stays flat: the gateway's resident size while it answers many requests.

    python bench/soak.py [--requests 100000] [--steps 10] [--stream] [--engine uvicorn] [--most 120]

Exits with 1 when the last size is over `--most` MB, or more than a tenth over the size at half-way.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import targets
from driver import drive, request
from scenarios import SCENARIOS


async def main(options: argparse.Namespace, folder: Path) -> int:
    scenario = SCENARIOS[1 if options.stream else 0]
    upstream, port = targets.mock(folder, 0.02)
    gateway = None
    sizes: list[float] = []
    try:
        gateway = targets.gateway(folder / "gateway", port, options.engine)
        print(f"{gateway.name}, {scenario.name}: {gateway.started.rss() / 1e6:.0f} MB at the start", flush=True)
        for step in range(options.steps):
            found = await drive(
                gateway.port,
                request("POST", scenario.path, scenario.body, gateway.key),
                end=scenario.end,
                count=options.requests // options.steps,
                seconds=600,
            )
            if found.failures:
                print(f"FAILED: {len(found.failures)}: {found.failures[0]}")
                return 1
            await asyncio.sleep(options.settle)
            sizes.append(gateway.started.rss() / 1e6)
            print(
                f"{(step + 1) * options.requests // options.steps:>9,} requests: {sizes[-1]:.0f} MB, "
                f"{found.done / found.seconds:,.0f} a second",
                flush=True,
            )
    finally:
        if gateway:
            gateway.started.stop()
        upstream.stop()
    grown = sizes[-1] > sizes[len(sizes) // 2] * 1.1
    if grown or sizes[-1] > options.most:
        print("FAILED: memory " + ("still grows" if grown else f"is over {options.most} MB"))
        return 1
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--engine", default="uvicorn", choices=["hypercorn", "uvicorn"])
    parser.add_argument("--most", type=float, default=120.0, help="MB at the end")
    parser.add_argument(
        "--settle", type=float, default=2.0, help="pause before a size is taken, so that deferred writes are done"
    )
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="tollgate-soak-"))
    try:
        status = asyncio.run(main(given, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(status)
