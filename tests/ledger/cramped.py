"""A process that for a while may not write files beyond a size (RLIMIT_FSIZE), which can interrupt a write.

Run by test_journal.py with a folder, the limit in bytes and the store's pace.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from decimal import Decimal
from pathlib import Path

import duckdb

from support.stores import spent_by
from support.waiting import until
from tollgate.config.settings import Credits, Store
from tollgate.ledger import Ledger, UsageRow


def _row(id: str) -> UsageRow:
    return UsageRow(id, "alice", "key_1", "chat", cost=Decimal(1))


async def main(folder: Path, limit: int, apply_seconds: float) -> None:
    store = Store(
        directory=folder / "var", usage_directory=folder / "usage", apply_seconds=apply_seconds, publish_seconds=0.1
    )
    ledger = Ledger(store, Credits())
    await ledger.open()
    ledger._backend.journal._segment_bytes = 20_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    for turn in range(50):
        await asyncio.gather(*(ledger.record(_row(f"req_{turn}_{each}")) for each in range(10)), return_exceptions=True)
        await asyncio.sleep(0.005)
    await until(lambda: not ledger.ready)
    print("ready under the limit:", ledger.ready)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await until(lambda: ledger.ready)
    await ledger.record(_row("req_last"))
    print("spent:", int(await spent_by(ledger, "alice")))
    await ledger.close()
    ledger = Ledger(store, Credits())
    await ledger.open()
    [[published]] = (
        duckdb.connect()
        .execute(
            f"SELECT count(DISTINCT request_id) FROM read_duckdb('{folder}/usage/*/*.duckdb', table_name = 'usage')"
        )
        .fetchall()
    )
    print(f"after a restart: {await spent_by(ledger, 'alice'):.0f}, published {published}")
    await ledger.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
