"""Prints the table: passed of total per cell, and every difference, explained or not. `python -m tests.replay.report
[-v] [kind]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]

from replay import traffic
from replay.cells import CLIENTS, UPSTREAMS, Cell, answer_cell, request_cell, stream_cell, tap_cell


def cells(kinds: set[str]) -> Iterator[Cell]:
    for upstream in UPSTREAMS:
        if "tap" in kinds:
            yield tap_cell(upstream)
    for kind, run in (("answer", answer_cell), ("stream", stream_cell), ("request", request_cell)):
        if kind in kinds:
            for client in CLIENTS:
                for upstream in UPSTREAMS:
                    yield run(client, upstream)


def main(arguments: list[str]) -> int:
    if not traffic.present():
        print(traffic.ABSENT)
        return 1
    kinds = {a for a in arguments if not a.startswith("-")} or {"tap", "answer", "stream", "request"}
    total = passed = unexplained = 0
    for cell in cells(kinds):
        total += len(cell.results)
        passed += cell.passed
        unexplained += len(cell.unexplained)
        refused = sum(1 for r in cell.results if r.refused)
        note = f", {refused} refused by name" if refused else ""
        print(
            f"{cell.kind:8} {cell.client:9} <- {cell.upstream:9} {cell.passed:4} of {len(cell.results):4}  "
            f"{cell.share:7.2%}{note}"
        )
        for r in cell.results:
            if not r.passed and (not r.why or "-v" in arguments):
                print(f"    {r.exchange}: {r.why or 'NOT EXPLAINED'}")
                for miss in r.misses:
                    print(f"        {miss}")
    print(f"all: {passed} of {total} ({passed / max(1, total):.2%}); {unexplained} misses not explained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
