"""A process that records rows as fast as it can and prints each id when its row is durable.

Run by test_kill.py with a folder, a run number and the number of days for which rows are kept (0: forever). It is
killed at a random time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from tollgate.config.settings import Credits, Store
from tollgate.ledger import KeyRecord, Ledger, UsageRow, retention

COST = Decimal("0.000123")
WRITERS = 16
KEY = KeyRecord("key_1", "alice")


async def main(folder: Path, run: str, days: int) -> None:
    if not sys.stdin.readline():  # it starts before its turn, as its imports take longer than its turn
        return
    store = Store(
        directory=folder / "var",
        usage_directory=folder / "usage",
        apply_seconds=0.02,
        publish_seconds=0.02,
        keep_rows_days=days,
    )
    ledger = Ledger(store, Credits())
    await ledger.open()
    if not await ledger.list_accounts():
        await ledger.create_account("alice")
        await ledger.grant("alice", Decimal(1_000_000))
    os.write(1, b"ready\n")

    async def write(writer: int) -> None:
        number = 0
        while True:
            number += 1
            id = f"req_{run}_{writer}_{number}"
            with await ledger.hold(KEY, Decimal("0.01")) as hold:
                time = datetime.now(UTC) - timedelta(days=number % 3 * 2)
                await ledger.record(UsageRow(id, "alice", "key_1", "chat", time, cost=COST), hold)
            os.write(1, f"{id}\n".encode())

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))


if __name__ == "__main__":
    retention.LOOK_SECONDS = 0.02
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
