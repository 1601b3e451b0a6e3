"""SIGKILL while rows are recorded, many times: no acknowledged row is lost, none is charged twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from support.stores import spent_by

from .conftest import new_ledger
from .hammer import COST

KILLS = 22


def _hammer(folder: Path, run: int, days: int) -> subprocess.Popen[bytes]:
    """Starts a hammer, which waits for its turn."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", "ledger.hammer", str(folder), str(run), str(days)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=Path(__file__).parents[1],
    )


def _run_and_kill(process: subprocess.Popen[bytes], after: float) -> set[str]:
    """Lets the hammer record and kills it `after` seconds; returns the ids that it reported as durable."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.stdout.readline() == b"ready\n"
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    output = process.stdout.read()
    process.wait()
    process.stdout.close()
    return set(output[: output.rfind(b"\n") + 1].decode().split())


@pytest.mark.parametrize(
    ("kills", "longest", "days"), [(KILLS, 0.25, 0), (8, 1.2, 1)], ids=["rows are kept", "old rows are removed"]
)
async def test_every_acknowledged_row_survives_many_kills_exactly_once(
    tmp_path: Path, kills: int, longest: float, days: int
) -> None:
    rng = random.Random(7)
    acknowledged: set[str] = set()
    following = _hammer(tmp_path, 0, days)
    for run in range(kills):
        hammer, following = following, _hammer(tmp_path, run + 1, days)
        acknowledged |= _run_and_kill(hammer, rng.uniform(0.02, longest))
    following.kill()
    following.communicate()
    assert len(acknowledged) > kills

    async with new_ledger(tmp_path) as ledger:
        balance, spent = ledger.balance("alice"), await spent_by(ledger, "alice")
        await ledger.settle()
    store = duckdb.connect(str(tmp_path / "var" / "tollgate.duckdb"), read_only=True)
    stored = {row[0] for row in store.execute("SELECT request_id FROM usage").fetchall()}
    granted, total, count = store.execute(
        "SELECT (SELECT sum(amount) FROM grants), (SELECT sum(cost) FROM usage) + (SELECT coalesce(sum(cost), 0) FROM "
        "removed), (SELECT count(*) FROM usage) + (SELECT coalesce(sum(row_count), 0) FROM removed)"
    ).fetchone()
    store.close()
    published = [
        row[0]
        for row in duckdb.connect()
        .execute(f"SELECT request_id FROM read_duckdb('{tmp_path}/usage/**/*.duckdb', table_name = 'usage')")
        .fetchall()
    ]

    assert count == len(published) == len(set(published)), "a row was stored twice, or published twice"
    assert acknowledged <= set(published), "an acknowledged row was lost"
    assert stored <= set(published)
    assert days or len(stored) == count
    assert spent == total == COST * count
    assert balance == granted - total == Decimal(1_000_000) - COST * count
    assert list((tmp_path / "var" / "journal").iterdir()) == []
