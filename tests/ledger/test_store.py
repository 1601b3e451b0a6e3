"""What the store takes, and reading it beside the thread that writes it."""

import threading
from decimal import Decimal

from tollgate.ledger import KeyRecord
from tollgate.ledger.records import encode
from tollgate.ledger.segments import Entry, write_line
from tollgate.ledger.store import Store


def test_a_spend_cap_that_an_older_version_accepted_and_no_column_holds_keeps_nothing_from_being_stored(tmp_path):
    store = Store(tmp_path / "tollgate.duckdb")
    store.open()
    key = {
        name: getattr(KeyRecord("key_1", "alice", spend_cap=Decimal("9" * 30)), name) for name in KeyRecord.__slots__
    }
    store.apply([Entry(1, "key", write_line(1, "key", encode(key | {"digest": "00"}))[:-1])])
    assert [key.spend_cap for key, _ in store.snapshot().keys] == [Decimal("9" * 26)]
    store.close()


def test_no_memory_is_given_back_while_a_store_is_read_page_by_page(tmp_path):
    """The writer thread does that now and then; a page read under the low limit would fail."""
    store = Store(tmp_path / "tollgate.duckdb")
    store.open()
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
    store.close()
