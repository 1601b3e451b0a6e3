"""What the store takes, and reading it beside the thread that writes it."""

import threading
from collections.abc import Iterator
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest

from tollgate.ledger import KeyRecord
from tollgate.ledger.records import encode
from tollgate.ledger.segments import Entry, write_line
from tollgate.ledger.store import Store

from .conftest import row


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "tollgate.duckdb")
    opened.open()
    yield opened
    opened.close()


def key_entry(seq: int, **more: object) -> Entry:
    key = KeyRecord(f"key_{seq}", "alice")
    values = {each.name: getattr(key, each.name) for each in fields(key)} | {"digest": "d0"} | more
    return Entry(seq, "key", write_line(seq, "key", encode(values))[:-1])


def test_a_spend_cap_that_an_older_version_accepted_and_no_column_holds_is_stored_as_the_largest(store):
    store.apply([key_entry(1, spend_cap="9" * 30)])
    assert [key.spend_cap for key, _ in store.snapshot().keys] == [Decimal("9" * 26)]


def test_an_event_that_no_column_holds_is_given_up_and_keeps_no_other_from_being_stored(store, caplog):
    usage = write_line(4, "usage", encode(row("req_late", time=None)))[:-1]
    store.apply([key_entry(1), key_entry(2, rpm="many"), key_entry(3), Entry(4, "usage", usage)])
    assert [key.id for key, _ in store.snapshot().keys] == ["key_1", "key_3"]
    assert store.progress("applied") == 4
    refused = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert refused[0].startswith("event 2 (key) cannot be stored: ") and refused[0].endswith('given up: {"id":"key_2"}')
    assert "req_late" in refused[1] and "d0" not in caplog.text


def test_no_memory_is_given_back_while_a_store_is_read_page_by_page(store):
    """The writer thread does that now and then; a page read under the low limit would fail."""
    store.connection.execute(
        "INSERT INTO grants (id, account_id, amount, note, created_at) SELECT uuid()::VARCHAR, 'alice', 1, "
        "repeat(uuid()::VARCHAR, 8), TIMESTAMP '2026-11-22' + to_seconds(range) FROM range(20000)"
    )
    store.connection.execute("CHECKPOINT")
    over = threading.Event()

    def give_back() -> None:
        while not over.is_set():
            store.let_go()

    thread = threading.Thread(target=give_back)
    thread.start()
    try:
        found = [sum(map(len, store.pages("SELECT * FROM grants ORDER BY created_at, id"))) for _ in range(8)]
    finally:
        over.set()
        thread.join()
    assert found == [20_000] * 8
