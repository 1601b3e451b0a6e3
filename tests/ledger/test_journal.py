"""The journal: durability, torn ends, damage, full disks, rotation."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import duckdb
import orjson
import pytest

import tollgate.ledger.journal as journal_module
from support.stores import spent_by
from support.waiting import until
from tollgate.errors import TollgateError, Unauthorized, Unavailable
from tollgate.ledger import Generation, Ledger
from tollgate.ledger.journal import Journal
from tollgate.ledger.segments import Entry, read_all, read_line, segments, write_line

from .conftest import Alice, new_ledger, row

# fails on errors in its thread
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


class Disk:
    """A disk that can become full: it then writes half of the data once and refuses the next write."""

    def __init__(self) -> None:
        self.full = False
        self.calls = 0

    def write(self, descriptor: int, data: memoryview) -> int:
        self.calls += 1
        if not self.full:
            return os.write(descriptor, data)
        if len(data) > 10 and self.calls % 2:
            return os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Durable(list[int]):
    def take(self, entries: Sequence[Entry]) -> None:
        self.extend(entry.seq for entry in entries)


async def _journal(folder: Path, disk: Disk | None = None, **options: object) -> tuple[Journal, Durable]:
    durable = Durable()
    write = disk.write if disk else os.write
    journal = Journal(folder, on_durable=durable.take, retry_seconds=0.01, write=write, **options)  # type: ignore[arg-type]
    journal.start(1)
    return journal, durable


async def _free_space(disk: Disk, journal: Journal) -> None:
    """Frees the disk and waits until the journal has noticed."""
    disk.full = False
    await until(lambda: not journal.outage.reason)


async def test_a_waiter_that_left_leaves_no_other_waiting(tmp_path: Path) -> None:
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    waiting = [journal.append("usage", b"{}") for _ in range(6)]
    for left in (0, 2):
        waiting[left].cancel()
    await asyncio.wait_for(asyncio.gather(waiting[1], *waiting[3:]), 30)
    disk.full = True
    refused = [journal.append("usage", b"{}") for _ in range(4)]
    refused[1].cancel()
    for each in (refused[0], *refused[2:]):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(each, 30)
    await _free_space(disk, journal)
    await journal.close()
    assert durable == list(range(1, 11))


async def test_many_rows_share_one_sync(tmp_path: Path) -> None:
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    await asyncio.gather(*(journal.append("usage", b'{"n":%d}' % n) for n in range(1000)))
    await journal.close()
    assert durable == list(range(1, 1001))
    assert disk.calls < 200


async def test_an_appended_event_is_in_the_file(tmp_path: Path) -> None:
    journal, _ = await _journal(tmp_path)
    await journal.append("usage", b'{"n":1}')
    assert [entry.kind for entry in read_all(tmp_path, 0)] == ["usage"]
    await journal.close()


async def test_only_the_owner_may_read_a_segment(tmp_path: Path) -> None:
    journal, _ = await _journal(tmp_path)
    await journal.append("key", b'{"digest":"00"}')
    assert [stat.S_IMODE(path.stat().st_mode) for path in segments(tmp_path)] == [0o600]
    await journal.close()


def test_a_line_is_json_with_a_checksum() -> None:
    line = write_line(42, "usage", b'{"cost":"0.1"}')
    assert orjson.loads(line) == {"seq": 42, "kind": "usage", "row": {"cost": "0.1"}, "crc": orjson.loads(line)["crc"]}
    entry = read_line(line[:-1])
    assert entry is not None
    assert (entry.seq, entry.kind) == (42, "usage")
    for position in range(0, len(line) - 1, 3):
        spoilt = bytearray(line[:-1])
        spoilt[position] ^= 1
        assert read_line(bytes(spoilt)) is None


async def test_a_torn_end_at_any_byte_loses_only_the_torn_line(tmp_path: Path) -> None:
    lines = [write_line(n, "usage", b'{"n":%d}' % n) for n in (1, 2, 3)]
    whole = b"".join(lines)
    path = tmp_path / "00000000000000000001.jsonl"
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        kept = [entry.seq for entry in read_all(tmp_path, 0)]
        complete = sum(length >= len(b"".join(lines[:n])) - 1 for n in (1, 2, 3))
        assert kept == [1, 2, 3][:complete], length
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "a torn end is not kept as damage"


async def test_a_torn_end_followed_by_zeros_is_skipped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "00000000000000000001.jsonl"
    path.write_bytes(write_line(1, "usage", b"{}"))
    assert [entry.seq for entry in read_all(tmp_path, 0)] == [1]
    assert not caplog.records
    path.write_bytes(write_line(1, "usage", b"{}") + write_line(2, "usage", b"{}")[:10] + b"\0" * 4096)
    assert [entry.seq for entry in read_all(tmp_path, 0)] == [1]
    assert "1 unacknowledged line(s) skipped" in caplog.text


async def test_rows_are_written_over_zeros_so_that_the_file_does_not_grow_with_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, _ = await _journal(tmp_path)
    await journal.append("usage", b"{}")
    [path] = segments(tmp_path)
    await until(lambda: path.stat().st_size > journal_module._AHEAD_BYTES)  # all zeros are written, and the row
    size = path.stat().st_size
    for _ in range(20):
        await journal.append("usage", b"{}")
    assert path.stat().st_size == size
    assert [entry.seq for entry in read_all(tmp_path, 0)] == list(range(1, 22))
    assert not caplog.records
    await journal.close()


async def test_rows_are_written_where_no_zeros_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tollgate.ledger.journal.os.pwrite", full)
    journal, durable = await _journal(tmp_path)
    for _ in range(3):
        await journal.append("usage", b"{}")
    assert (durable, journal.outage.reason) == ([1, 2, 3], "")
    await journal.close()


async def test_the_name_of_a_new_segment_is_synced_before_its_first_row_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, list[str]]] = []

    def sync(descriptor: int) -> None:
        synced.append((os.path.sameopenfile(descriptor, folder), [path.name for path in segments(tmp_path)]))

    folder = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr("tollgate.ledger.durable_files.os.fsync", sync)
    journal, _ = await _journal(tmp_path)
    await journal.append("usage", b"{}")
    monkeypatch.undo()
    os.close(folder)
    await journal.close()
    assert synced == [(True, ["00000000000000000001.jsonl"])]


def _refuse(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("link", [os.link, _refuse], ids=["linked", "copied, without hard links"])
async def test_damage_in_the_middle_is_reported_and_the_file_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, link: Callable[..., None]
) -> None:
    monkeypatch.setattr("tollgate.ledger.durable_files.os.link", link)
    synced, sync = [], os.fsync

    def fsync_recorded(descriptor: int) -> None:
        synced.append({path.name for path in tmp_path.iterdir()})
        sync(descriptor)

    monkeypatch.setattr("tollgate.ledger.durable_files.os.fsync", fsync_recorded)
    lines = [bytearray(write_line(n, "usage", b'{"n":%d}' % n)) for n in (1, 2, 3)]
    lines[1][12] ^= 0x20
    (tmp_path / "00000000000000000001.jsonl").write_bytes(b"".join(lines))
    with caplog.at_level(logging.ERROR):
        assert [entry.seq for entry in read_all(tmp_path, 0)] == [1, 3]
    assert "1 damaged line(s)" in caplog.text
    assert (tmp_path / "00000000000000000001.damaged").read_bytes() == b"".join(lines)
    name = "00000000000000000001"
    copied = [{f"{name}.jsonl", f".{name}.damaged.tmp"}] if link is _refuse else []
    assert synced == [*copied, {f"{name}.jsonl", f"{name}.damaged"}], "the segment is removed once its rows are stored"
    assert len(list(tmp_path.iterdir())) == 2


async def test_full_segments_are_closed_and_deleted_once_applied(tmp_path: Path) -> None:
    journal, _ = await _journal(tmp_path, segment_bytes=500)
    for _ in range(40):
        await journal.append("usage", b'{"text":"some forty bytes of a usage row"}')
    assert len(segments(tmp_path)) > 4
    journal.remove_applied(20)
    assert [entry.seq for entry in read_all(tmp_path, 20)] == list(range(21, 41))
    last_of_second = int(segments(tmp_path)[-1].stem) - 1
    journal.remove_applied(last_of_second - 1)
    assert len(segments(tmp_path)) == 2, "one event of the last full segment is not stored"
    journal.remove_applied(last_of_second)
    assert len(segments(tmp_path)) == 1, "all but the current one"
    await journal.close()


async def test_rows_of_a_busy_time_are_batched_and_a_single_row_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_PAUSE_SECONDS", 0.3)
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    first = [journal.append("usage", b"1") for _ in range(20)]
    await asyncio.gather(*first)
    assert disk.calls == 2  # the first row, and those that arrived meanwhile
    later = []
    for _ in range(10):  # one by one, in the pause after a large batch
        later.append(journal.append("usage", b"2"))
        await asyncio.sleep(0)
    await asyncio.gather(*later)
    assert disk.calls == 3
    await asyncio.sleep(0.4)
    await journal.append("usage", b"3")
    assert disk.calls == 4
    await journal.append("usage", b"4")
    assert disk.calls == 5
    await journal.close()
    assert durable == list(range(1, 33))


async def test_a_close_during_the_pause_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_PAUSE_SECONDS", 0.3)
    journal, durable = await _journal(tmp_path)
    await asyncio.gather(*(journal.append("usage", b"1") for _ in range(20)))
    waiting = [journal.append("usage", b"2") for _ in range(5)]
    await journal.close()
    await asyncio.gather(*waiting)
    assert durable == list(range(1, 26))


async def test_all_waiters_of_a_failed_write_receive_the_error(tmp_path: Path) -> None:
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    disk.full = True
    waiting = [journal.append("usage", b'{"n":"kept"}') for _ in range(5)]
    for each in waiting:
        with pytest.raises(Unavailable, match="No space left"):
            await asyncio.wait_for(each, 30)
    await _free_space(disk, journal)
    await journal.append("usage", b'{"n":6}')
    await journal.close()
    assert durable == [1, 2, 3, 4, 5, 6]


async def test_a_full_disk_fails_waiters_keeps_the_events_and_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    await journal.append("usage", b'{"n":1}')
    disk.full = True
    for _ in range(2):
        with pytest.raises(Unavailable, match="No space left"):
            await journal.append("usage", b'{"n":"refused but kept"}')
    assert "No space left" in journal.outage.reason
    assert durable == [1]
    await _free_space(disk, journal)
    await journal.append("usage", b'{"n":4}')
    await journal.close()
    assert "No space left on device; new work is refused until it can, 1 event(s) wait in memory" in caplog.text
    assert "the journal can be written again; " in caplog.text
    assert durable == [1, 2, 3, 4]
    assert [entry.seq for entry in read_all(tmp_path, 0)] == [1, 2, 3, 4]


async def test_a_close_waits_for_a_temporarily_full_disk(tmp_path: Path) -> None:
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    disk.full = True
    with pytest.raises(Unavailable):
        await journal.append("usage", b'{"n":"refused but kept"}')
    closing = asyncio.create_task(journal.close())
    await asyncio.sleep(0.1)
    assert not closing.done()
    disk.full = False
    await asyncio.wait_for(closing, 30)
    assert durable == [entry.seq for entry in read_all(tmp_path, 0)] == [1]


async def test_a_write_is_synced_when_it_returns(tmp_path: Path) -> None:
    journal, _ = await _journal(tmp_path)
    await journal.append("usage", b"{}")
    assert fcntl.fcntl(journal._descriptor, fcntl.F_GETFL) & os.O_DSYNC
    await journal.close()


def test_an_event_in_two_segments_is_read_once(tmp_path: Path) -> None:
    """A failed write may have reached the disk nevertheless; its events are repeated in a new segment."""
    lines = [write_line(n, "usage", b"{}") for n in (1, 2, 3, 4)]
    (tmp_path / "00000000000000000001.jsonl").write_bytes(b"".join(lines[:3]))
    (tmp_path / "00000000000000000002.jsonl").write_bytes(b"".join(lines[1:]))
    assert [entry.seq for entry in read_all(tmp_path, 0)] == [1, 2, 3, 4]


async def test_a_close_on_a_full_disk_gives_up_and_logs_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_module, "CLOSE_SECONDS", 0.05)
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    disk.full = True
    for _ in range(2):
        with pytest.raises(Unavailable):
            await journal.append("usage", b'{"n":"refused but kept"}')
    await asyncio.wait_for(journal.close(), 30)
    [lost] = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert lost.startswith("2 ledger event(s) could not be written before the end: ") and "No space left" in lost
    assert durable == []


async def test_a_partly_written_line_is_cut_off(tmp_path: Path) -> None:
    disk = Disk()
    journal, _ = await _journal(tmp_path, disk)
    for n in (1, 2):
        await journal.append("usage", b'{"n":%d}' % n)
    disk.full = True
    with pytest.raises(Unavailable, match="No space left"):
        await journal.append("usage", b'{"n":"refused but kept"}')
    assert segments(tmp_path)[0].read_bytes().endswith(b"\n")
    disk.full = False
    await journal.close()


async def test_no_rows_follow_a_torn_end_that_cannot_be_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full copy-on-write file system may also refuse to truncate a file."""
    disk = Disk()
    journal, durable = await _journal(tmp_path, disk)
    for n in (1, 2):
        await journal.append("usage", b'{"n":%d}' % n)

    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", refuse)
    disk.full = True
    with pytest.raises(Unavailable, match="No space left"):
        await journal.append("usage", b'{"n":"refused but kept"}')
    assert not segments(tmp_path)[0].read_bytes().endswith(b"\n"), "half of the line was written"
    await _free_space(disk, journal)
    await journal.append("usage", b'{"n":4}')
    assert [entry.seq for entry in read_all(tmp_path, 0)] == durable == [1, 2, 3, 4]
    assert not list(tmp_path.glob("*.damaged"))
    await journal.close()


def _disk_of(ledger: Ledger) -> Disk:
    """A disk under this ledger's journal that can become full."""
    disk, journal = Disk(), ledger._backend.journal
    journal._os_write, journal._retry_seconds = disk.write, 0.01
    return disk


async def test_retries_on_a_full_disk_create_nothing_twice(alice: Alice) -> None:
    ledger, disk = alice.ledger, _disk_of(alice.ledger)
    disk.full = True
    with pytest.raises(Unavailable, match="the change is made, and lost if this process ends before it can be written"):
        await ledger.grant("alice", Decimal(1))
    for again in (ledger.grant("alice", Decimal(1)), ledger.create_key("alice"), ledger.create_account("bob")):
        with pytest.raises(Unavailable, match=r"No space left on device$"):
            await again
    with pytest.raises(Unavailable):
        await ledger.revoke_key(alice.key.id)  # a leaked key is revoked nevertheless
    with pytest.raises(Unauthorized):
        ledger.find_key(alice.secret)
    await _free_space(disk, ledger._backend.journal)
    assert [grant.amount for grant in await ledger.list_grants("alice")] == [1, 10]
    assert (len(await ledger.list_keys()), len(await ledger.list_accounts())) == (1, 1)


async def test_grants_can_be_read_while_the_disk_is_full(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, disk = alice.ledger, _disk_of(alice.ledger)

    def refuse(entries: object) -> None:
        raise duckdb.Error("the disk is full")

    monkeypatch.setattr(ledger._backend.store, "apply", refuse)
    await ledger.grant("alice", Decimal(2))
    await ledger.create_account("bob")
    await ledger.grant("bob", Decimal(3))
    disk.full = True
    with pytest.raises(Unavailable):
        await ledger.create_key("alice")
    assert [grant.amount for grant in await ledger.list_grants("alice")] == [2, 10]
    monkeypatch.undo()
    await _free_space(disk, ledger._backend.journal)
    await ledger.settle()
    assert [grant.amount for grant in await ledger.list_grants("alice")] == [2, 10]


async def test_the_end_of_a_job_is_visible_only_once_it_is_on_disk(alice: Alice) -> None:
    ledger, disk = alice.ledger, _disk_of(alice.ledger)
    made = Generation(id=str(uuid.uuid4()), account_id="alice", model="acme/draw")
    await ledger.generations.create(made)
    disk.full = True
    ending = asyncio.ensure_future(ledger.generations.update(made.id, {"status": "succeeded"}, row(cost="1")))
    await asyncio.sleep(0)
    assert await ledger.generations.succeeded("alice", 100) == []
    with pytest.raises(Unavailable):
        await ending
    with pytest.raises(Unavailable):
        await ledger.generations.get("alice", made.id)
    assert await ledger.generations.get("bob", made.id) is None
    assert await ledger.generations.succeeded("alice", 100) == []
    await _free_space(disk, ledger._backend.journal)
    await ledger.settle()
    ended = await ledger.generations.get("alice", made.id)
    assert ended is not None
    assert ended.status == "succeeded"
    assert [each.id for each in await ledger.generations.succeeded("alice", 100)] == [made.id]


async def test_a_ledger_on_a_full_disk_is_not_ready_and_loses_nothing(tmp_path: Path) -> None:
    async with new_ledger(tmp_path) as ledger:
        await ledger.create_account("alice")
        disk = _disk_of(ledger)
        await ledger.record(row("req_1", cost="1"))
        disk.full = True
        with pytest.raises(Unavailable):
            await ledger.record(row("req_2", cost="1"))
        assert not ledger.ready
        assert "No space left" in ledger.not_ready_reason
        with pytest.raises(Unavailable):
            await ledger.record(row("req_2", cost="1"))
        await _free_space(disk, ledger._backend.journal)
        await ledger.record(row("req_2", cost="1"))
        assert await spent_by(ledger, "alice") == 2
    async with new_ledger(tmp_path) as ledger:
        assert await spent_by(ledger, "alice") == 2


@pytest.mark.parametrize(
    ("limit", "apply_seconds"),
    [
        pytest.param(2_500, 60, id="journal"),
        pytest.param(15_000, 0.02, id="journal-and-store"),
        pytest.param(60_000, 0.02, id="store"),
    ],
)
def test_a_kernel_limit_on_file_size_is_survived(tmp_path: Path, limit: int, apply_seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ledger.cramped", str(tmp_path), str(limit), str(apply_seconds)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert done.stdout.split("\n")[:3] == [
        "ready under the limit: False",
        "spent: 501",
        "after a restart: 501, published 501",
    ], done.stderr


async def test_events_only_in_the_journal_are_stored_at_the_next_start(tmp_path: Path) -> None:
    abandoned = new_ledger(tmp_path, apply_seconds=60)
    await abandoned.open()
    await abandoned.create_account("alice")
    for n in range(3000):
        abandoned.record(row(f"req_{n}", cost="0.001"))
    await abandoned.record(row("req_last", cost="1"))
    saved = {path.name: path.read_bytes() for path in segments(tmp_path / "var" / "journal")}
    assert saved
    other = tmp_path / "other"
    (other / "var" / "journal").mkdir(parents=True)
    for name, data in saved.items():
        (other / "var" / "journal" / name).write_bytes(data + b'{"seq":99999,"kind":"usa')
    for _ in range(2):
        async with new_ledger(other) as replayed:
            assert await spent_by(replayed, "alice") == 4
            assert await replayed.get_account("alice")
            assert not segments(other / "var" / "journal"), "stored events are removed from the journal"
    await abandoned.close()
    assert not segments(tmp_path / "var" / "journal"), "also at an orderly end"


async def test_a_start_on_a_full_disk_fails_and_the_next_one_loses_nothing(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "var").mkdir(parents=True)
    await alice.ledger.record(row("req_1", cost="1"))
    shutil.copytree(tmp_path / "var" / "journal", other / "var" / "journal")

    def full(*_: object) -> None:
        raise duckdb.TransactionException("Failed to commit: No space left on device\nand more")

    with (
        monkeypatch.context() as patch,
        pytest.raises(TollgateError, match="var: the ledger cannot be brought up to date.*No space left on device$"),
    ):
        patch.setattr("tollgate.ledger.store.Store.apply", full)
        await new_ledger(other).open()
    async with new_ledger(other) as again:
        assert again.balance("alice") == 9


async def test_replaying_a_journal_twice_changes_nothing(alice: Alice, tmp_path: Path) -> None:
    ledger: Ledger = alice.ledger
    await ledger.record(row("req_1", cost="1"))
    folder = tmp_path / "var" / "journal"
    saved = {path.name: path.read_bytes() for path in segments(folder)}
    await ledger.close()
    for name, data in saved.items():
        (folder / name).write_bytes(data)
    async with new_ledger(tmp_path) as again:
        assert again.balance("alice") == 9
        assert len(await again.list_grants("alice")) == 1
