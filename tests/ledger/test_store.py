"""Reading the store, beside the thread that writes it."""

import threading

from tollgate.ledger.store import Store


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
