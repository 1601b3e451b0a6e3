"""The start of a gateway on a shared store, and what remains when it ends or cannot start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from support.postgres import Server
from support.waiting import until
from tollgate.config.settings import Credits, Store
from tollgate.errors import TollgateError, Unavailable
from tollgate.ledger import StoreInUse, ledger_of
from tollgate.ledger.locks import FileLocks
from tollgate.ledger.shared import change_listener, rounds, usage
from tollgate.ledger.shared.instance_session import InstanceSession

from ..conftest import DONE, job, row, with_alice
from .conftest import close_unpublished, published, until_gone


async def test_a_failed_start_leaves_the_instance_name_free(
    store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        raise Unavailable("nothing is heard")

    with monkeypatch.context() as at_first:
        at_first.setattr(change_listener.ChangeListener, "open", fail)
        with pytest.raises(Unavailable, match="nothing is heard"):
            await ledger_of(store("a"), Credits()).open()
    monkeypatch.setattr(usage, "_LOCK_SECONDS", 0.0)
    async with ledger_of(store("a"), Credits()) as again:
        assert again.ready


async def test_a_start_is_rejected_while_another_gateway_uses_its_usage_files(
    store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is free in this database, but a gateway of another one publishes into the same folder."""
    monkeypatch.setattr(usage, "_LOCK_SECONDS", 0.05)
    locks = FileLocks()
    settings = store("a")
    settings.usage_directory.mkdir()
    locks.take_usage(settings.usage_directory, "a")
    try:
        with pytest.raises(StoreInUse):
            await ledger_of(settings, Credits()).open(patience=0)
    finally:
        locks.release()


async def test_a_usage_folder_that_cannot_be_created_is_reported(store: Callable[[str], Store], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = replace(store("a"), usage_directory=tmp_path / "file" / "usage")
    with pytest.raises(TollgateError, match="file/usage: usage files cannot be kept here: Not a directory"):
        await ledger_of(settings, Credits()).open()


@pytest.mark.parametrize("removed", [False, True], ids=["with its rows", "without its rows, which were too old"])
async def test_a_restarted_gateway_publishes_its_new_rows(
    store: Callable[[str], Store], observer: asyncpg.Connection, tmp_path: Path, removed: bool
) -> None:
    async with ledger_of(store("a"), Credits()) as ledger:
        await with_alice(ledger)
        await ledger.record(row("req_1", time=datetime.now(UTC) - timedelta(days=2)))
        await ledger.settle()
    if removed:
        await observer.execute("DELETE FROM tollgate.usage")
    async with ledger_of(store("a"), Credits()) as again:
        await again.record(row("req_2"))
        await again.settle()
    assert sorted(each for _, ids in published(tmp_path) for each in ids) == ["req_1", "req_2"]


@pytest.mark.parametrize("name", ["a", "a" * 60], ids=["short", "longer than what the database shows"])
async def test_a_gateway_replaces_a_session_of_its_own_that_broke_off(address: str, name: str) -> None:
    """As after a connection that broke off without the database noticing."""
    session = InstanceSession(address, name, f"tollgate {name}")
    await session.open(lambda: None)
    broken_off, session.connection = session.connection, None
    try:
        await session.open(lambda: None)
        assert session.is_open
    finally:
        broken_off.terminate()
        session.drop()


async def test_a_stopped_gateway_leaves_no_session(store: Callable[[str], Store], observer: asyncpg.Connection) -> None:
    async with ledger_of(store("a"), Credits()) as ledger:
        await with_alice(ledger)
        await ledger.list_keys()
        # if they were collected, their sessions would end as well
        kept = ledger._backend.rounds._session.connection, ledger._backend._listener._connection

    async def without_sessions() -> bool:
        return not await observer.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tollgate %'"
        )

    await until(without_sessions)
    assert all(each.is_closed() for each in kept)


async def test_a_job_that_ends_while_the_database_is_down_does_not_block_a_stop(
    store: Callable[[str], Store], postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "CLOSE_SECONDS", 0.05)
    ledger = ledger_of(store("a"), Credits())
    await ledger.open()
    await with_alice(ledger)
    made = job()
    await ledger.generations.create(made)
    await asyncio.to_thread(postgres.stop)
    try:
        ending = asyncio.create_task(ledger.generations.update(made.id, DONE))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(ledger.close(), 20)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(ending, 20)
    finally:
        await asyncio.to_thread(postgres.start)


async def test_unpublished_rows_are_not_published_while_their_files_are_locked_or_the_disk_is_full(
    store: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ledger_of(store("b"), Credits()) as other:
        first = ledger_of(store("a"), Credits())
        await first.open()
        await with_alice(first)
        await close_unpublished(first, "req_1")
        await until_gone(other, "a")
        leftovers = other._backend._publishing._leftovers
        await leftovers.look()
        locks = FileLocks()
        locks.take_usage(tmp_path / "usage", "a")  # the gateway has just returned
        await leftovers.look()
        assert not list(tmp_path.glob("usage/*/*-a.duckdb"))
        locks.release()
        with monkeypatch.context() as full:

            def refuse(*_: object, **__: object) -> None:
                raise OSError("no space left")

            full.setattr("tollgate.ledger.shared.leftovers.Publisher.publish", refuse)
            with pytest.raises(OSError, match="no space left"):
                await leftovers.look()
        await leftovers.look()
        assert published(tmp_path) == [("-a.duckdb", ["req_1"])]
