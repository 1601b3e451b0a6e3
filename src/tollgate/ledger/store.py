"""The tables of the DuckDB file: the ledger's truth at start, written by one thread, one transaction for a batch of
journal events.

Usage rows go from the journal's JSON lines straight into columns inside DuckDB (about 6 µs a row, without the
interpreter's lock); the number of the last event stored is written in the same transaction, so an event is stored once
however often it is replayed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson

from tollgate.errors import TollgateError
from tollgate.ledger.documents import FOLDER_NAME, LARGE, Documents
from tollgate.ledger.interface import Snapshot
from tollgate.ledger.records import Account, Generation, Grant, KeyRecord, Record, columns_of, decode, fitting
from tollgate.ledger.schema import choose_merging, transaction
from tollgate.ledger.segments import Entry
from tollgate.ledger.store_file import StoreFile, with_zone
from tollgate.ledger.usage_row import ROW_COLUMNS, base_type
from tollgate.wire import PENDING

log = logging.getLogger("tollgate.ledger")

FILE_NAME = "tollgate.duckdb"
BATCH = 2000
RECENT_IDS = 8_192
_ROWS_CACHED = 4000
"""After so many stored rows DuckDB's cached pages are given back. Storing the rows takes 40 ms, this under one."""

_TABLES = {
    "account": ("accounts", columns_of(Account)),
    "key": ("keys", (*columns_of(KeyRecord), "digest")),
    "grant": ("grants", columns_of(Grant)),
}
"""The table and the columns for the records of each kind of event."""
_SHAPE = orjson.dumps({"seq": "BIGINT", "row": {c.name: base_type(c) for c in ROW_COLUMNS}}).decode()
_INSERT_USAGE = (
    f"INSERT INTO usage BY NAME SELECT unnest(x.row), x.seq AS seq FROM (SELECT from_json(j, '{_SHAPE}') AS x "
    "FROM (SELECT unnest(?::VARCHAR[]) AS j))"
)
_PUBLISHED = "WHERE time >= ? AND time < ? AND seq <= ?"
_SPENT = (
    "(SELECT account_id, key_id, cost, time FROM usage UNION ALL SELECT account_id, key_id, cost, last_time FROM "
    "removed)"
)
"""What was ever charged: rows, and sums of those that were removed."""
_DAYS_OF_CAPS = 40
"""How many days with rows are read for spend caps: a month's, and some from times when the clock was wrong. They are
counted and not compared with today, which may be wrong at a start and be corrected later."""
_MOST_CAP = Decimal(10) ** 26 - 1
"""The largest spend cap that its column holds. Versions before 2026-12 accepted larger ones, which are in the journals
of stores that could not take them."""
_JOBS = 500
"""Image jobs removed in one transaction; some of them have 64 KB."""


class Store(StoreFile):
    """The tables of an open file. `apply` belongs to the writer thread; reads may come from any thread."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._documents = Documents(path.parent / FOLDER_NAME)

    def progress(self, name: str) -> int:
        """How far `applied` or `published` has come, as an event number."""
        return int(self.read("SELECT seq FROM progress WHERE name = ?", [name])[0][0])

    def set_progress(self, name: str, seq: int) -> None:
        """Store it (as part of the running transaction, when there is one)."""
        self.connection.execute("UPDATE progress SET seq = ? WHERE name = ?", [seq, name])

    def apply(self, entries: Sequence[Entry]) -> None:
        """Store a batch of events, in order, in one transaction. When it has a value that no column holds, every event
        is stored alone, and the one that is refused again is given up: it must not keep all others, and every start,
        from being stored."""
        if not entries:
            return
        try:
            self._apply(entries)
        except (duckdb.DataError, duckdb.IntegrityError) as error:
            if len(entries) > 1:
                for entry in entries:
                    self.apply([entry])
            else:
                self._give_up(entries[0], error)

    def _give_up(self, entry: Entry, error: duckdb.Error) -> None:
        """Log an event that cannot be stored: its usage row as a whole; of others the id, because they hold digests."""
        row = orjson.loads(entry.line)["row"]
        if entry.kind == "generation":
            row = {"id": row["generation"]["id"], "usage": row["usage"]}
        elif entry.kind != "usage":
            row = {"id": row["id"]}
        said = orjson.dumps(row).decode()
        log.critical("event %d (%s) cannot be stored: %s; it is given up: %s", entry.seq, entry.kind, error, said)
        self.set_progress("applied", entry.seq)

    def _apply(self, entries: Sequence[Entry]) -> None:
        choose_merging(self.connection, len(entries), entries[-1].seq)
        with transaction(self.connection):
            lines: list[bytes] = []
            for seq, kind, line in entries:
                if kind == "usage":
                    lines.append(line)
                else:
                    self._apply_record(seq, kind, orjson.loads(line)["row"], lines)
            for start in range(0, len(lines), BATCH):
                self.connection.execute(_INSERT_USAGE, [[line.decode() for line in lines[start : start + BATCH]]])
            self.set_progress("applied", entries[-1].seq)
        self.rows_cached += len(entries)
        if self.rows_cached >= _ROWS_CACHED:
            self.let_go()

    def oldest_day(self) -> date | None:
        """The day of the oldest row; None without rows."""
        found: date | None = self.read("SELECT CAST(min(time) AS DATE) FROM usage")[0][0]
        return found

    def remove_day(self, first: date) -> int:
        """Remove the published rows of the oldest day before `first`, the first day to keep, and store their sums, in
        one transaction. Returns how many rows, 0 when none are so old."""
        old = [datetime.combine(first, time.min), self.progress("published")]
        [[day]] = self.read("SELECT CAST(min(time) AS DATE) FROM usage WHERE time < ? AND seq <= ?", old)
        if day is None:
            return 0
        start = datetime.combine(day, time.min)
        gone = [start, start + timedelta(days=1), old[1]]
        with transaction(self.connection):
            self.connection.execute(
                "INSERT INTO removed SELECT account_id, key_id, CAST(time AS DATE), count(*), sum(cost), max(time) "
                f"FROM usage {_PUBLISHED} GROUP BY ALL",
                gone,
            )
            [[count]] = self.connection.execute(f"DELETE FROM usage {_PUBLISHED}", gone).fetchall()
        self.rows_cached += 1
        return int(count)

    def remove_jobs(self, first: date) -> int:
        """Remove some image jobs that were made before `first` and have ended, with their pictures. Returns how many, 0
        when there are none. Their costs stay: those are in usage rows.

        Their files are removed first: if the process is killed in between, the next call finds the jobs again.
        """
        old = self.read(
            f"SELECT id, document = '' FROM generations WHERE created_at < ? AND status NOT IN (?, ?) LIMIT {_JOBS}",
            [datetime.combine(first, time.min), *PENDING],
        )
        if old:
            for id, is_file in old:
                if is_file:
                    self._documents.remove(id)
            with transaction(self.connection):
                self.connection.execute(
                    "DELETE FROM generations WHERE id IN (SELECT unnest(?::VARCHAR[]))", [[id for id, _ in old]]
                )
        return len(old)

    def _apply_record(self, seq: int, kind: str, row: dict[str, Any], lines: list[bytes]) -> None:
        if kind == "generation":
            if row["usage"] is not None:
                lines.append(orjson.dumps({"seq": seq, "row": row["usage"]}))
            self._replace_generation(row["generation"])
        elif kind in _TABLES:
            if kind == "key" and row["spend_cap"] is not None:
                row["spend_cap"] = min(Decimal(row["spend_cap"]), _MOST_CAP)
            self._replace(*_TABLES[kind], row)
        elif kind != "mark":
            raise TollgateError(
                f'the journal has an event of kind "{kind}", which this program does not know: use the newer program'
            )

    def _replace_generation(self, job: dict[str, Any]) -> None:
        """Store a job as it is now; a large one, with inline pictures, as files beside the store."""
        answer = orjson.dumps(job.pop("answer", None))
        document = orjson.dumps(job)
        if len(document) + len(answer) > LARGE:
            self._documents.keep(job["id"], document, answer)
            document = answer = b""
        self._replace(
            "generations",
            ("id", "account_id", "status", "model", "created_at", "cost", "document", "answer"),
            job | {"document": document.decode(), "answer": answer.decode()},
        )

    def _replace(self, table: str, columns: Sequence[str], row: dict[str, Any]) -> None:
        self.connection.execute(f"DELETE FROM {table} WHERE id = ?", [row["id"]])
        marks = ", ".join("?" * len(columns))
        self.connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", [row.get(c) for c in columns]
        )

    # ---- reading

    def _records(self, kind: type[Record], rows: str, values: Sequence[object] = ()) -> list[Record]:
        """Records of a kind; `rows` is the table, the condition and the order."""
        columns = columns_of(kind)
        found = self.read(f"SELECT {', '.join(columns)} FROM {rows}", values)
        return [decode(kind, dict(zip(columns, map(with_zone, row), strict=True))) for row in found]

    def snapshot(self) -> Snapshot:
        """Everything that memory starts with. DuckDB computes the sums from grants and usage rows, in exact
        decimals."""
        snapshot = Snapshot()
        snapshot.accounts = self._records(Account, "accounts ORDER BY created_at, id")
        digests = dict(self.read("SELECT id, digest FROM keys"))
        keys = self._records(KeyRecord, "keys ORDER BY created_at, id")
        snapshot.keys = [(key, bytes.fromhex(digests[key.id])) for key in keys]
        snapshot.granted = dict(self.read("SELECT account_id, sum(amount) FROM grants GROUP BY 1"))
        snapshot.spent = defaultdict(Decimal)
        for account, key, cost, last in self.read(
            f"SELECT account_id, key_id, sum(cost), max(time) FROM {_SPENT} GROUP BY 1, 2"
        ):
            snapshot.spent[account] += cost
            snapshot.spent_by_key[key] = snapshot.spent_by_key.get(key, Decimal(0)) + cost
            snapshot.last_used[key] = last.replace(tzinfo=UTC)
        for key, day, cost in self.read(
            f"SELECT key_id, CAST(time AS DATE), sum(cost) FROM {_SPENT} WHERE time >= (SELECT min(day) FROM (SELECT "
            f"DISTINCT CAST(time AS DATE) AS day FROM {_SPENT} ORDER BY day DESC LIMIT {_DAYS_OF_CAPS})) GROUP BY 1, 2"
        ):
            snapshot.spent_by_day.setdefault(key, {})[day] = cost
        pending = self.read("SELECT id, document, answer FROM generations WHERE status IN (?, ?)", PENDING)
        snapshot.pending = list(self._readable(pending))
        applied = self.progress("applied")
        snapshot.recent_ids = [
            row[0]
            for row in self.read("SELECT request_id FROM usage WHERE seq > ? ORDER BY seq", [applied - RECENT_IDS])
        ]
        return snapshot

    def generation(self, account_id: str, id: str) -> Generation | None:
        """One image job of this account, with the provider's answer."""
        rows = self.read(
            "SELECT id, document, answer FROM generations WHERE id = ? AND account_id = ?", [id, account_id]
        )
        return self._generation(*rows[0]) if rows else None

    def generations(self, ids: Sequence[str]) -> list[Generation]:
        """These image jobs of any account, with the providers' answers."""
        return [
            self._generation(*row)
            for row in self.read(
                "SELECT id, document, answer FROM generations WHERE id IN (SELECT unnest(?::VARCHAR[])) ORDER BY "
                "created_at, id",
                [list(ids)],
            )
        ]

    def succeeded(self, account_id: str, limit: int) -> list[Generation]:
        """The newest successful jobs, at most `limit` and as many as fit into one list, without the providers'
        answers."""
        rows = self.read(
            "SELECT id, document FROM generations WHERE account_id = ? AND status = 'succeeded' "
            "ORDER BY created_at DESC, id DESC LIMIT ?",
            [account_id, limit],
        )
        return fitting(replace(job, answer=None) for job in self._readable(rows))

    def _readable(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Generation]:
        """These jobs, without those whose file is gone or damaged, as after a backup of the database alone: neither a
        start nor the list of all others may fail because of one."""
        for row in rows:
            try:
                yield self._generation(*row)
            except TollgateError as error:
                log.error("%s", error.message)

    def _generation(self, id: str, document: str, answer: str = "null") -> Generation:
        job, provider_answer = (orjson.loads(document), orjson.loads(answer)) if document else self._documents.read(id)
        return decode(Generation, job | {"answer": provider_answer})

    def grants(self, account_id: str) -> list[Grant]:
        """All grants of an account, newest first."""
        return self._records(Grant, "grants WHERE account_id = ? ORDER BY created_at DESC, id", [account_id])
