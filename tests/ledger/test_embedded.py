"""The writer thread of the embedded backend: temporary failures must not end it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest

from support.stores import spent_by
from support.waiting import until
from tollgate.errors import TollgateError, Unavailable
from tollgate.ledger import Ledger
from tollgate.ledger.journal import Journal
from tollgate.ledger.records import Grant, encode
from tollgate.ledger.reports import Filters, open_usage
from tollgate.ledger.segments import read_all, segment_path, segments, write_line

from .conftest import Alice, new_ledger, row


async def test_reopening_the_store_is_retried(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger: Ledger = alice.ledger
    backend: Any = ledger._backend
    store = backend.store
    apply, opened, tries = store.apply, store.open, []

    def refuse(entries: Any) -> None:
        monkeypatch.setattr(store, "apply", apply)
        raise duckdb.Error("the disk is gone")

    def cannot_open() -> None:
        tries.append(store._connection)
        if len(tries) == 3:
            monkeypatch.setattr(store, "open", opened)
        raise TollgateError("the store cannot be opened")

    monkeypatch.setattr(store, "apply", refuse)
    monkeypatch.setattr(store, "open", cannot_open)
    await ledger.record(row("req_1", cost="1"))
    await until(lambda: tries)
    assert not ledger.ready and "the store cannot be" in ledger.not_ready_reason
    with pytest.raises(Unavailable, match="the store is closed"):
        await ledger.generations.succeeded("alice", 100)
    await until(lambda: ledger.ready)
    assert len(tries) == 3
    await ledger.settle()
    assert [grant.note for grant in await ledger.list_grants("alice")] == ["first credits"]


async def test_rows_stored_despite_a_reported_failure_are_not_stored_again(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Ledger = alice.ledger
    backend: Any = ledger._backend
    apply = backend.store.apply

    def apply_then_fail(entries: Any) -> None:
        if any(entry.kind == "usage" for entry in entries):
            monkeypatch.setattr(backend.store, "apply", apply)
            apply(entries)
            raise duckdb.Error("the commit went wrong")
        apply(entries)

    monkeypatch.setattr(backend.store, "apply", apply_then_fail)
    await ledger.record(row("req_1", cost="1"))
    await until(lambda: backend.store.apply is apply and ledger.ready)
    await ledger.record(row("req_2", cost="1"))
    await ledger.settle()
    assert backend.store.read("SELECT request_id FROM usage ORDER BY seq") == [("req_1",), ("req_2",)]
    assert not backend._waiting, "or the writer would never be idle"


async def test_an_error_without_a_message_does_not_end_the_writer(
    alice: Alice, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Ledger = alice.ledger
    backend: Any = ledger._backend
    apply = backend.store.apply

    def refuse(entries: Any) -> None:
        monkeypatch.setattr(backend.store, "apply", apply)
        raise duckdb.Error

    monkeypatch.setattr(backend.store, "apply", refuse)
    await ledger.record(row("req_1", cost="1"))
    await until(lambda: backend.store.apply is apply and ledger.ready)
    await ledger.settle()
    assert await spent_by(ledger, "alice") == 1


async def test_rows_and_the_number_of_the_last_one_are_stored_together(
    alice: Alice, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Ledger = alice.ledger
    store: Any = ledger._backend.store  # type: ignore[attr-defined]
    remember, failed = store.set_progress, []

    def fail_once(name: str, seq: int) -> None:
        if name == "applied" and not failed:
            failed.append(seq)
            raise duckdb.Error("the disk is gone")
        remember(name, seq)

    monkeypatch.setattr(store, "set_progress", fail_once)
    await ledger.record(row("req_1", cost="1"))
    await until(lambda: failed and ledger.ready)
    await ledger.settle()
    assert store.read("SELECT request_id FROM usage") == [("req_1",)]


async def test_rows_of_a_replaced_store_do_not_overwrite_published_rows(tmp_path: Path) -> None:
    async with new_ledger(tmp_path) as ledger:
        await ledger.record(row("req_1"))
        await ledger.record(row("req_2"))
        await ledger.settle()
    shutil.rmtree(tmp_path / "var")
    async with new_ledger(tmp_path) as ledger:
        await ledger.record(row("req_3"))
        await ledger.settle()
    with open_usage(tmp_path / "usage") as usage:
        found = usage.execute("SELECT request_id FROM usage ORDER BY seq").fetchall()
    assert found == [("req_1",), ("req_2",), ("req_3",)]


async def test_a_folder_whose_name_is_not_utf_8_is_rejected(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    with pytest.raises(TollgateError, match=r"caf\\udce9/var/tollgate.duckdb': .* its path is not UTF-8"):
        await new_ledger(folder).open()


async def test_a_store_that_was_moved_away_is_reported_and_used_again_when_it_returns(
    alice: Alice, tmp_path: Path
) -> None:
    ledger: Ledger = alice.ledger
    path, away = tmp_path / "var", tmp_path / "away"
    path.rename(away)
    await until(lambda: not ledger.ready)
    assert f"{path / 'tollgate.duckdb'} was removed or moved away" in ledger.not_ready_reason
    await ledger.record(row("req_1", cost="1"))  # of a request that was already running
    await ledger.settle()
    away.rename(path)
    await until(lambda: ledger.ready)
    [[stored]] = ledger._backend.store.read("SELECT count(*) FROM usage")  # type: ignore[attr-defined]
    assert stored == 1


async def test_another_store_in_its_place_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "var"
    async with new_ledger(tmp_path) as ledger:
        path.rename(tmp_path / "away")
        (path / "journal").mkdir(parents=True)
        backup = [path / "tollgate.duckdb", path / "journal" / "00000000000000000007.jsonl"]
        for file in backup:
            file.write_bytes(b"of a backup")
        await until(lambda: not ledger.ready)
        assert "and another file is in its place" in ledger.not_ready_reason
    assert [file.read_bytes() for file in backup] == [b"of a backup"] * 2


async def test_a_missing_store_is_not_created_anew_when_it_fails(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Ledger = alice.ledger
    store: Any = ledger._backend.store  # type: ignore[attr-defined]
    path, away, apply, failed = tmp_path / "var" / store._path.name, tmp_path / "away", store.apply, []
    path.rename(away)
    await until(lambda: not ledger.ready)

    def fail_twice(entries: Any) -> None:
        if len(failed) < 2:
            failed.append(entries)
            raise duckdb.Error("the disk is gone")
        apply(entries)

    monkeypatch.setattr(store, "apply", fail_twice)
    await ledger.record(row("req_1", cost="1"))  # of a request that was already running
    await until(lambda: store.read("SELECT count(*) FROM usage") == [(1,)])
    assert not path.exists()
    away.rename(path)
    await until(lambda: ledger.ready)


async def test_settle_stores_rows_that_nobody_waited_for(alice: Alice) -> None:
    rows = [alice.ledger.record(row()) for _ in range(100)]
    await alice.ledger.settle()
    stored = alice.ledger._backend.store.read("SELECT count(*) FROM usage")  # type: ignore[attr-defined]
    assert stored == [(100,)] and all(each.done() for each in rows)


async def test_a_journal_file_that_cannot_be_removed_is_kept(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger: Ledger = alice.ledger
    backend: Any = ledger._backend
    monkeypatch.setattr(backend.journal, "_segment_bytes", 1)
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        await ledger.record(row("req_1", cost="1"))
        await ledger.settle()
        assert segments(tmp_path / "var" / "journal") and "Permission denied" in caplog.text
    assert ledger.ready
    await ledger.record(row("req_2", cost="1"))
    await ledger.settle()
    assert await spent_by(ledger, "alice") == 2


async def test_rows_of_any_time_that_a_clock_can_tell_are_published(alice_in_either: Alice, tmp_path: Path) -> None:
    for time in (datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)):
        await alice_in_either.ledger.record(row(time=time))
    await alice_in_either.ledger.settle()
    assert alice_in_either.ledger.published
    for since, count in ((None, 2), (datetime(1, 1, 1, tzinfo=UTC), 2), (datetime.now(UTC), 1)):
        with open_usage(tmp_path / "usage", Filters(since=since)) as usage:
            assert usage.execute("SELECT count(*) FROM usage").fetchall() == [(count,)]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_gateway_stops_as_usual_on_a_disk_that_has_become_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = new_ledger(tmp_path)
    await ledger.open()
    await ledger.serve_admin()
    await ledger.record(row("req_1", cost="1"))
    await ledger.settle()
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "unlink", Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
        await ledger.close()
    async with new_ledger(tmp_path) as again:
        assert await spent_by(again, "alice") == 1


@pytest.mark.parametrize(
    ("place", "ready"), [("store.apply", False), ("publisher.publish", True), ("_retention.look", True)]
)
async def test_a_mistake_of_ours_does_not_end_the_writer(
    alice: Alice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str, ready: bool
) -> None:
    ledger: Ledger = alice.ledger
    with monkeypatch.context() as patch:
        owner, name = place.split(".")
        patch.setattr(getattr(ledger._backend, owner), name, Mock(side_effect=KeyError("a")))
        await ledger.record(row("req_1", cost="1"))
        if ready:
            await ledger.settle()
        else:
            with pytest.raises(TollgateError, match="the store cannot be written: 'a'"):
                await asyncio.wait_for(ledger.settle(), 30)
        assert ledger.ready == ready and "KeyError" in caplog.text
    await until(lambda: ledger.ready)
    await ledger.settle()
    assert ledger.published and await spent_by(ledger, "alice") == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_nothing_waits_for_a_writer_that_has_ended(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger: Ledger = alice.ledger
    backend: Any = ledger._backend

    def fail() -> None:
        raise SystemExit

    monkeypatch.setattr(backend, "_round", fail)
    await until(lambda: not backend._thread.is_alive())
    with pytest.raises(TollgateError, match="the store's writer stopped: SystemExit"):
        await asyncio.wait_for(ledger.settle(), 30)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_nothing_waits_for_a_journal_whose_writer_has_ended(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    journal = Journal(tmp_path, on_durable=fail)
    journal.start(1)
    for _ in range(2):
        with pytest.raises(Unavailable, match="the journal's writer stopped: ZeroDivisionError"):
            await asyncio.wait_for(journal.append("usage", b"{}"), 30)
    await journal.close()
    assert [entry.seq for entry in read_all(tmp_path, 0)] == [1]


async def test_settle_raises_why_rows_cannot_be_stored(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    store = alice.ledger._backend.store

    def refuse(entries: Any) -> None:
        raise duckdb.Error("the disk is gone")

    with monkeypatch.context() as full:
        full.setattr(store, "apply", refuse)
        await alice.ledger.record(row("req_1", cost="1"))
        with pytest.raises(TollgateError, match="the store cannot be written: the disk is gone"):
            await asyncio.wait_for(alice.ledger.settle(), 30)
    await until(lambda: alice.ledger.ready)
    await alice.ledger.settle()
    assert store.snapshot().spent == {"alice": 1}


async def test_rows_not_stored_at_the_end_are_stored_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise duckdb.Error("the disk is gone")

    with monkeypatch.context() as full:
        async with new_ledger(tmp_path) as ledger:
            await ledger.create_account("alice")
            await ledger.settle()
            full.setattr(ledger._backend.store, "apply", refuse)
            await ledger.record(row("req_1", cost="1"))
    assert segments(tmp_path / "var" / "journal")
    async with new_ledger(tmp_path) as ledger:
        assert await spent_by(ledger, "alice") == 1


async def test_an_idle_store_gives_cached_pages_back(tmp_path: Path) -> None:
    async with new_ledger(tmp_path, publish_seconds=60) as ledger:
        backend: Any = ledger._backend
        await ledger.settle()
        applied = backend.store.progress("applied")
        await ledger.record(row())
        await until(lambda: backend.store.progress("applied") > applied and not backend.store.rows_cached)
        assert backend.store.progress("published") == applied


async def test_a_read_while_memory_is_given_back_is_repeated(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    store = alice.ledger._backend.store
    await alice.ledger.settle()
    read, free = store._read, []

    def read_out_of_memory(*given: object) -> list[tuple[object, ...]]:
        free.append(not store._giving_back.locked())
        if len(free) == 1:
            raise duckdb.OutOfMemoryException("failed to pin block of size 256.0 KiB (1.6 MiB/1.9 MiB used)")
        return read(*given)

    monkeypatch.setattr(store, "_read", read_out_of_memory)
    assert [grant.amount for grant in store.grants("alice")] == [10]
    assert free == [True, False], "no limit is lowered during the second read"


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o750), (0o777, 0o770), (0o700, 0o700)], ids=oct)
async def test_an_accessible_store_folder_is_closed_to_others(tmp_path: Path, before: int, after: int) -> None:
    """A service manager or a volume may have created it. DuckDB's files, which contain hashes of keys, are readable by
    all who can reach them."""
    (tmp_path / "var").mkdir()
    (tmp_path / "var").chmod(before)
    async with new_ledger(tmp_path):
        assert (tmp_path / "var").stat().st_mode & 0o777 == after
        assert (tmp_path / "usage").stat().st_mode & 0o005 == 0o005, "usage files are for analysts to read"


@pytest.mark.parametrize(
    ("error", "why"),
    [(PermissionError(1, "Operation not permitted"), "Operation not permitted"), (None, "keeps no modes")],
    ids=["refused", "without effect"],
)
async def test_a_store_folder_that_cannot_be_closed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: OSError | None, why: str
) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var").chmod(0o755)

    def refuse(path: Path, mode: int) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(Path, "chmod", refuse)
    async with new_ledger(tmp_path):
        pass
    assert "every user of this machine may look into it" in caplog.text and why in caplog.text


async def test_a_journal_of_a_newer_program_is_rejected_and_kept(tmp_path: Path) -> None:
    async with new_ledger(tmp_path) as ledger:
        await ledger.create_account("alice")
        await ledger.grant("alice", Decimal(10))
    path = segment_path(tmp_path / "var" / "journal", 1000)
    grant = encode(Grant(id="grant_1", account_id="alice", amount=Decimal(5)))
    path.write_bytes(write_line(1000, "grant", grant) + write_line(1001, "voucher", b'{"amount":"1"}'))
    before = path.read_bytes()
    with pytest.raises(TollgateError, match='has an event of kind "voucher", .*: use the newer program'):
        await new_ledger(tmp_path).open()
    assert path.read_bytes() == before
    path.write_bytes(write_line(1000, "grant", grant))
    async with new_ledger(tmp_path) as ledger:
        assert ledger.balance("alice") == 15


async def test_a_store_of_a_newer_program_is_rejected(tmp_path: Path) -> None:
    async with new_ledger(tmp_path):
        pass
    with duckdb.connect(str(tmp_path / "var" / "tollgate.duckdb")) as connection:
        connection.execute("INSERT INTO schema_version VALUES (1000, now())")
    with pytest.raises(TollgateError, match="schema version 1000, this program knows up to .*: use the newer program"):
        await new_ledger(tmp_path).open()
