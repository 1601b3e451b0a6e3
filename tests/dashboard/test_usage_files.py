"""Queries over the published files: on threads, limited in number and in time."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path

import pytest

from support.waiting import until
from tollgate.dashboard import usage_files
from tollgate.dashboard.usage_files import UsageFiles
from tollgate.errors import Unavailable
from tollgate.ledger.reports import Filters

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 1"


class Wrapped:
    """A connection, of which a test changes a part."""

    def __init__(self, connection):
        self._connection = connection

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def interrupt(self):
        self._connection.interrupt()

    def execute(self, *statement):
        return self._connection.execute(*statement)


@pytest.fixture
def files(tmp_path: Path):
    made = UsageFiles(tmp_path)
    yield made
    made.close()


async def test_a_query_that_takes_too_long_is_stopped(files, monkeypatch):
    monkeypatch.setattr(usage_files, "_SECONDS", 0.05)
    with pytest.raises(Unavailable, match="choose a shorter time"):
        await files.run(lambda: files.query(Filters(), ENDLESS))


async def test_what_does_not_fit_into_memory_goes_to_the_temporary_folder_not_to_the_working_directory(
    files, tmp_path, monkeypatch
):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(usage_files, "_MEMORY", "20MB")
    monkeypatch.chdir(tmp_path)
    spilled = "SELECT count(*) FROM (SELECT range, md5(range::VARCHAR) AS m FROM range(400000) ORDER BY m LIMIT 399999)"
    seen: set[str] = set()
    connect = usage_files.duckdb.connect

    class Watched(Wrapped):
        def __exit__(self, *_):  # its files are still there
            seen.update(str(path.relative_to(tmp_path).parent) for path in tmp_path.rglob("duckdb_temp*"))
            super().__exit__()

    monkeypatch.setattr(usage_files.duckdb, "connect", lambda **options: Watched(connect(**options)))
    assert await files.run(lambda: files.query(Filters(), spilled)) == [(399999,)]
    assert seen == {"scratch"}


async def test_too_many_queries_at_once_are_rejected(files):
    gate = threading.Event()
    waiting = [asyncio.ensure_future(files.run(gate.wait)) for _ in range(32)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many"):
        await files.run(lambda: files.query(Filters(), "SELECT 1"))
    gate.set()
    await asyncio.gather(*waiting)
    assert await files.run(lambda: files.query(Filters(), "SELECT 1")) == [(1,)]


async def test_the_event_loop_runs_during_a_query(files):
    running = asyncio.ensure_future(files.run(lambda: files.query(Filters(), ENDLESS)))
    await until(lambda: files._running)
    for _ in range(10):
        await asyncio.sleep(0.005)
        assert files._running and not running.done()
    files.close()
    with pytest.raises(Unavailable, match="stopping"):
        await running


async def test_closing_stops_running_queries(files):
    task = asyncio.ensure_future(files.run(lambda: files.query(Filters(), ENDLESS)))
    await until(lambda: files._running)
    files.close()
    with pytest.raises(Unavailable, match="stopping"):
        await asyncio.wait_for(task, 20)


async def test_closing_stops_a_query_that_has_not_begun_yet(files, monkeypatch):
    closed = threading.Event()
    connect = usage_files.duckdb.connect

    class Late(Wrapped):
        """A connection whose query begins a little after the first interruption."""

        def interrupt(self):
            self._connection.interrupt()
            closed.set()

        def execute(self, *statement):
            assert closed.wait(20)
            return self._connection.execute(*statement)

    monkeypatch.setattr(usage_files.duckdb, "connect", lambda **options: Late(connect(**options)))
    task = asyncio.ensure_future(files.run(lambda: files.query(Filters(), ENDLESS)))
    await until(lambda: files._running)
    files.close()
    with pytest.raises(Unavailable, match="stopping"):
        await asyncio.wait_for(task, 20)


async def test_an_unchanged_damaged_file_is_read_again_after_a_minute(files, tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("tollgate.dashboard.usage_files.time.monotonic", lambda: now)
    path = tmp_path / "03.duckdb"
    path.touch()
    files._damaged[path] = path.stat().st_mtime_ns, now + 60
    for now, left_out in ((1059.0, [path]), (1061.0, [])):
        assert files._left_out() == left_out


def test_a_file_that_is_removed_because_of_its_age_before_it_is_read_is_left_out(tmp_path, files, monkeypatch):
    old = tmp_path / "2026-11-22" / "06.duckdb"
    old.parent.mkdir()
    old.touch()
    run = files._run_sql

    def run_late(*arguments):
        old.unlink(missing_ok=True)
        return run(*arguments)

    monkeypatch.setattr(files, "_run_sql", run_late)
    assert files.query(Filters(), "SELECT count(*) FROM usage") == [(0,)]
