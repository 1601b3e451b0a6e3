"""Stores of gateways under test, without what DuckDB spends most time on: creating tables and starting its engine.

An empty store is created once in this process and copied afterwards. Copies share one identity, which distinguishes
stores that are imported into a database. Inside `reused_duckdb`, a store is attached to an engine that an earlier test
has left, instead of one of its own. Tests of the store itself use neither.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tollgate.config.settings import Credits
from tollgate.config.settings import Store as StoreSettings
from tollgate.errors import NotFound
from tollgate.ledger import Ledger, store_file
from tollgate.ledger.embedded import EmbeddedBackend
from tollgate.ledger.interface import Snapshot
from tollgate.ledger.store import FILE_NAME, Store

_idle: list[duckdb.DuckDBPyConnection] = []
"""Engines without a store."""
_reusing = ContextVar("_reusing", default=False)


class _Attached:
    """A store's connection to a reused engine, which has no other store meanwhile."""

    folds_log = True
    """Whether closing it folds the write-ahead log into the store's file. A store that nobody opens again needs that
    not: it takes longer than storing the rows."""

    def __init__(self, path: str, config: dict[str, Any]) -> None:
        self.path = Path(path)
        self._engine = _idle.pop() if _idle else duckdb.connect(config=config)
        self._engine.execute(f"ATTACH '{path}' AS tollgate")
        self._connection = self.cursor()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = self._engine.cursor()
        cursor.execute("USE tollgate")
        return cursor

    def execute(self, statement: str, *values: Any) -> Any:
        """Runs a statement, but sets no comments on the columns of usage files: that is most of the time a small file
        takes, and tests/ledger/test_publish.py has a test of the comments."""
        return None if statement.startswith("COMMENT ON ") else self._connection.execute(statement, *values)

    def close(self) -> None:
        self._connection.close()
        if self.folds_log:
            self._engine.execute("DETACH tollgate")
        else:
            self._engine.execute("PRAGMA disable_checkpoint_on_shutdown; DETACH tollgate")
            self._engine.execute("PRAGMA enable_checkpoint_on_shutdown")
        _idle.append(self._engine)


class _DuckDB:
    """What the store's module sees as `duckdb`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(duckdb, name)

    def connect(self, path: str, config: dict[str, Any]) -> Any:
        return _Attached(path, config) if _reusing.get() else duckdb.connect(path, config=config)


store_file.duckdb = _DuckDB()


@contextlib.contextmanager
def reused_duckdb() -> Iterator[None]:
    """Stores opened inside the `with` block are attached to reused engines, until they are closed."""
    token = _reusing.set(True)
    try:
        yield
    finally:
        _reusing.reset(token)


@functools.cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Store(Path(folder) / FILE_NAME)
        made.open()
        made.close()
        return (Path(folder) / FILE_NAME).read_bytes()


@functools.cache
def _first_snapshot() -> Snapshot:
    """What an empty store gives memory to start with, from the store itself."""
    with tempfile.TemporaryDirectory() as folder:
        made = Store(Path(folder) / FILE_NAME)
        made.open()
        try:
            return _read_snapshot(made)
        finally:
            made.close()


_unused: set[Path] = set()
"""Copies of the empty store that nothing has read yet."""
_migrate, _read_progress, _read_snapshot = store_file.migrate, Store.progress, Store.snapshot
# A copy of the empty store is asked nothing: the queries of a start take half of the CPU time of such a gateway.


def _migrate_used(connection: Any) -> None:
    """Leaves a copy of the empty store as it is: up to date."""
    if not (isinstance(connection, _Attached) and connection.path in _unused):
        _migrate(connection)


def _progress(self: Store, name: str) -> int:
    return 0 if self._path in _unused else _read_progress(self, name)


def _snapshot(self: Store) -> Snapshot:
    if self._path not in _unused:
        return _read_snapshot(self)
    _unused.remove(self._path)
    return deepcopy(_first_snapshot())


store_file.migrate = _migrate_used
Store.progress = _progress  # type: ignore[method-assign]
Store.snapshot = _snapshot  # type: ignore[method-assign]


_incomplete: set[Path] = set()
"""Directories of stores and usage files that lack their last rows."""


async def close_without_storing(ledger: Ledger) -> None:
    """Closes a ledger without the last round of its writer, in which it stores and publishes its newest rows: that
    takes longer than the rest of most tests."""
    backend = ledger._backend
    await backend.journal.close()
    with backend._wake:
        backend._waiting.clear()
        backend.publisher._rechecks = False
        backend._publish = _publish_nothing
    if isinstance(backend.store._connection, _Attached):
        backend.store._connection.folds_log = False
    await Ledger.close(ledger)
    _incomplete.update((ledger.store.directory, ledger.store.usage_directory))


def _publish_nothing(*, now: bool) -> None:
    """Takes the place of publishing in the writer's last two rounds, which would write files that nobody may read."""


@contextlib.contextmanager
def published_later(backend: EmbeddedBackend) -> Iterator[None]:
    """Inside the `with` block, what is stored is not published. The next settlement after it publishes that, too."""

    def publish_nothing(*, now: bool) -> None:
        backend._unpublished = False  # else the writer would try at once again

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "_publish", publish_nothing)
        yield


def check_complete(directory: Path) -> None:
    """Fails if this directory of a store or of usage files was left by `close_without_storing`."""
    assert directory not in _incomplete, f"the last rows of {directory} were not stored: its gateway needs `read_later`"


def empty_store(settings: StoreSettings) -> None:
    """Copies it to a gateway's store directory, unless there is a store already."""
    path = settings.directory / FILE_NAME
    _unused.discard(path)
    if path.exists():
        check_complete(settings.directory)
        return
    # pytest deletes the folder of a test that passed, and may give its name to the next one
    _incomplete.difference_update((settings.directory, settings.usage_directory))
    if not settings.directory.exists():  # else there may be a journal, whose rows the store gets before it is asked
        _unused.add(path)
    settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(_made())


@contextlib.asynccontextmanager
async def open_ledger(settings: StoreSettings) -> AsyncIterator[Ledger]:
    """An open ledger with a new store, or with the one that is there, on a reused engine."""
    empty_store(settings)
    ledger = Ledger(settings, Credits())
    with reused_duckdb():
        await ledger.open()
    try:
        yield ledger
    finally:
        await ledger.close()


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
