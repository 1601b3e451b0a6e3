"""An empty store, created once in this process and copied afterwards: DuckDB takes longer to create its tables than
most tests take for everything else. Copies share one identity, which distinguishes stores that are imported into a
database; tests of the ledger itself create their own."""

from __future__ import annotations

import functools
import tempfile
from decimal import Decimal
from pathlib import Path

from tollgate.errors import NotFound
from tollgate.ledger import Ledger
from tollgate.ledger.store import FILE_NAME, Store


@functools.cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / FILE_NAME)
        store.open()
        store.close()
        return (Path(folder) / FILE_NAME).read_bytes()


def empty_store(directory: Path) -> None:
    """Copies it to a gateway's store directory, unless there is a store already."""
    if not (directory / FILE_NAME).exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / FILE_NAME).write_bytes(_made())


async def available_to(ledger: Ledger, account: str) -> Decimal:
    """An account's balance minus what running requests hold."""
    sums = await ledger.sums(account)
    return sums.balance - sums.held


async def spent_by(ledger: Ledger, account: str) -> Decimal:
    """The sum of all recorded costs of an account. Rows may belong to an account that was never created and so has no
    grants."""
    try:
        return (await ledger.sums(account)).spent
    except NotFound:
        return -ledger.balance(account)
