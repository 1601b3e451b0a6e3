"""CPU per request of the gateway beside others, on one upstream, in one run.

    python bench/run.py [--rounds 5] [--seconds 1.5] [--engines hypercorn,uvicorn] [--python PATH] [--only "40 KB"]
    [--json FILE] [--quick]

Rounds interleave: every scenario goes through all targets before the next, in an order that turns each round, and the
table shows medians. CPU is user and system time of the target's processes and threads, idle time's share taken off;
the ledger is on and a pause after each load lets it finish its writes. `--quick` only checks that everything works.
See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

import targets
from driver import Result, crowd, drive, pace, percentile, request
from scenarios import SCENARIOS, Scenario
from targets import Target


@dataclass
class Cell:
    """All rounds of one scenario on one target. CPU in µs per unit, latencies in ms."""

    cpu: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    first_p99: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    done: int = 0
    failures: list[str] = field(default_factory=list)


Table = dict[str, dict[str, Cell]]

_AT_REST = 6.0
"""Seconds after which what a target still does on its own is over: the gateway tidies up after its start."""


async def measure(options: argparse.Namespace, folder: Path) -> tuple[Table, list[Target], dict[str, int]]:
    """Starts everything, runs all rounds, stops everything."""
    chosen = [s for s in SCENARIOS if not options.only or any(word in s.name for word in options.only)]
    upstream, port = targets.mock(folder, options.pace)
    running: list[Target] = []
    memory: dict[str, int] = {}
    try:
        for made in starters(options, folder, port):
            if target := made():
                alike = sum(each.name.partition(" #")[0] == target.name for each in running)
                if alike:  # two interpreters of one version: results are kept by name
                    target.name += f" #{alike + 1}"
                running.append(target)
                say(f"started {target.name}" + (f" in {target.start_seconds:.2f} s" if target.start_seconds else ""))
        if not running:
            raise RuntimeError("nothing to measure")
        idle = {t.name: await idle_share(t, options) for t in running}
        table: Table = {s.name: defaultdict(Cell) for s in chosen}
        for number in range(options.rounds + (0 if options.quick else 1)):
            warm = number == 0 and not options.quick
            say("warming up" if warm else f"round {number + (1 if options.quick else 0)} of {options.rounds}")
            for scenario in chosen:
                turn = number % len(running)
                for target in running[turn:] + running[:turn]:
                    known = table[scenario.name].get(target.name)
                    if not (scenario.plain or target.converts) or (known and known.failures):
                        continue
                    cell = Cell() if warm else table[scenario.name][target.name]
                    await once(scenario, target, cell, idle[target.name], options, warm)
                    if warm and cell.failures:
                        table[scenario.name][target.name] = cell  # it cannot do this: said in the report, not measured
                        say(f"{target.name} fails at: {scenario.name}")
                if scenario.how == "rate" and not warm:
                    found = await pace(
                        port, request("POST", scenario.path, scenario.body), rate=40, seconds=options.seconds
                    )
                    note(table[scenario.name]["upstream alone"], found)
        memory = {t.name: t.started.rss() for t in running}
    finally:
        for target in running:
            target.started.stop()
        upstream.stop()
    return table, running, memory


def starters(options: argparse.Namespace, folder: Path, port: int) -> list[Callable[[], Target | None]]:
    """What to start, in the order of the table's columns."""
    found: list[Callable[[], Target | None]] = [
        lambda engine=engine, python=python, place=f"{engine}-{number}": targets.gateway(
            folder / place, port, engine, python=python, measured=not options.quick
        )
        for engine in options.engines.split(",")
        if engine
        for number, python in enumerate(options.python or [sys.executable])
    ]
    found.append(lambda: targets.bare(folder, port))
    if not options.quick:
        found.append(lambda: targets.nginx(folder, port))
        found.append(lambda: targets.litellm(folder, port, options.litellm))
        found.append(lambda: targets.portkey(folder, port, options.portkey))
    return found


async def idle_share(target: Target, options: argparse.Namespace) -> float:
    """CPU seconds a second the target spends doing nothing."""
    if options.quick:
        return 0.0
    await asyncio.sleep(_AT_REST)
    before = target.started.cpu()
    await asyncio.sleep(1.0)
    return target.started.cpu() - before


async def once(
    scenario: Scenario, target: Target, cell: Cell, idle: float, options: argparse.Namespace, warm: bool
) -> None:
    """One load on one target."""
    body = scenario.body
    for ours, theirs in target.models.items():
        body = body.replace(f'"model":"{ours}"'.encode(), f'"model":"{theirs}"'.encode())
    data = request(scenario.method, scenario.path, body, target.key, scenario.headers | target.headers)
    seconds = min(options.seconds, 0.5) if warm else options.seconds
    loop = asyncio.get_running_loop()
    before, began = target.started.cpu(), loop.time()
    if scenario.how == "crowd":
        found = await crowd(target.port, data, many=min(options.crowd, 50) if warm else options.crowd, end=scenario.end)
    elif scenario.how == "rate":
        found = await pace(target.port, data, rate=40, seconds=seconds, end=scenario.end)
    else:
        connections = 8 if options.quick else options.connections
        count = connections if warm or (options.quick and scenario.per == "event") else options.count
        found = await drive(target.port, data, end=scenario.end, connections=connections, count=count, seconds=seconds)
    await asyncio.sleep(0 if options.quick else options.settle)
    used = target.started.cpu() - before - idle * (loop.time() - began)
    note(cell, found)
    units = found.events if scenario.per == "event" else found.done
    if units and not found.failures:
        cell.cpu.append(used / units * 1e6)


def note(cell: Cell, found: Result) -> None:
    """Adds one load's latencies and failures."""
    cell.done += found.done
    cell.failures += found.failures
    if found.done:
        cell.p50.append(percentile(found.latencies, 0.5) * 1000)
        cell.p99.append(percentile(found.latencies, 0.99) * 1000)
        cell.first_p99.append(percentile(found.firsts, 0.99) * 1000)
        cell.rate.append(found.done / found.seconds)


def report(table: Table, running: list[Target], memory: dict[str, int], starts: list[float]) -> str:
    """The tables as Markdown."""
    names = [t.name for t in running]
    lines = [
        "",
        "CPU µs per request (or event), median of rounds; in brackets the ratio to the first column",
        "",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for scenario, cells in table.items():
        row, first = [], None
        for name in names:
            found = cells.get(name)
            if found is None or not found.cpu:
                row.append("–")
                continue
            middle = statistics.median(found.cpu)
            row.append(f"{middle:,.0f}" + (f" (x{middle / first:.2f})" if first else ""))
            first = first or middle
        lines.append(f"| {scenario} | " + " | ".join(row) + " |")
    lines += [
        "",
        "Latency, median of rounds: p50 / p99 in ms (of the whole answer; for many streams: first byte p99)",
        "",
        "| | " + " | ".join([*names, "upstream alone"]) + " |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for scenario, cells in table.items():
        row = [_latency(cells.get(name), crowd="500" in scenario) for name in [*names, "upstream alone"]]
        lines.append(f"| {scenario} | " + " | ".join(row) + " |")
    lines += ["", "| process | memory after the run | start to first answer |", "|---|---|---|"]
    for target in running:
        seconds = (
            f"{target.start_seconds:.2f} s ({targets.MODELS:,} models)"
            if target.start_seconds and target.key.startswith("sk-tg")
            else f"{target.start_seconds:.2f} s"
            if target.start_seconds
            else "–"
        )
        lines.append(f"| {target.name} | {memory[target.name] / 1e6:.0f} MB | {seconds} |")
    if starts:
        lines.append(f"| tollgate, default files | – | {statistics.median(starts):.2f} s |")
    lines += ["", *failed(table)]
    return "\n".join(lines)


def _latency(cell: Cell | None, *, crowd: bool) -> str:
    if cell is None or not cell.p50:
        return "–"
    if crowd:
        return f"first {statistics.median(cell.first_p99):.1f}"
    return f"{statistics.median(cell.p50):.2f} / {statistics.median(cell.p99):.2f}"


def failed(table: Table) -> list[str]:
    """A line for every cell with failures, or for one that did nothing."""
    lines = []
    for scenario, cells in table.items():
        for name, cell in cells.items():
            if cell.failures or not cell.done:
                why = cell.failures[0] if cell.failures else "no answer at all"
                lines.append(
                    f"FAILED {name}, {scenario}: {len(cell.failures)} of {cell.done + len(cell.failures)}: {why}"
                )
    return lines


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of one load")
    parser.add_argument("--count", type=int, default=20_000, help="most requests of one load")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--crowd", type=int, default=500, help="streams at the same time")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between events of a paced stream")
    parser.add_argument(
        "--settle", type=float, default=1.2, help="pause after a load, so that deferred writes are counted"
    )
    parser.add_argument("--engines", default="hypercorn,uvicorn", help="HTTP servers to run the gateway on")
    parser.add_argument(
        "--python", action="append", help="interpreter to run the gateway with; may be repeated, for a column each"
    )
    parser.add_argument("--only", action="append", help="scenarios whose name holds this; may be repeated")
    parser.add_argument("--litellm", default=None, help="command that starts LiteLLM's proxy")
    parser.add_argument("--portkey", default=None, help="command that starts Portkey's gateway; {port} is replaced")
    parser.add_argument("--json", type=Path, default=None, help="write every round's figures here")
    parser.add_argument("--keep", type=Path, default=None, help="use this folder and keep it (logs, ledger)")
    parser.add_argument("--quick", action="store_true", help="one short round; only checks that everything works")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.pace, options.count, options.crowd = 1, 0.3, 0.002, 32, 16
    folder = options.keep or Path(tempfile.mkdtemp(prefix="tollgate-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    starts: list[float] = []
    try:
        if options.engines and not options.quick:
            starts = [targets.start_seconds(folder / f"start-{i}") for i in range(3)]
        table, running, memory = uvloop.run(measure(options, folder))
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(targets.describe_machine())
    print(report(table, running, memory, starts))
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "machine": targets.describe_machine(),
                    "memory": memory,
                    "start": starts,
                    "cells": {
                        s: {n: vars(c) | {"failures": len(c.failures)} for n, c in cells.items()}
                        for s, cells in table.items()
                    },
                },
                indent=1,
            )
        )
    return 1 if any(line.startswith(("FAILED tollgate", "FAILED bare")) for line in failed(table)) else 0


if __name__ == "__main__":
    sys.exit(main())
