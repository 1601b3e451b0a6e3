"""Reading a store page by page, for whoever moves it elsewhere."""

import threading

from tollgate.ledger.contents import Contents
from tollgate.ledger.store import Store


def test_a_store_that_is_read_page_by_page_gives_no_pages_back_meanwhile(tmp_path):
    """The writer thread does so now and then; a page that met the low limit would end the reading."""
    store = Store(tmp_path / "tollgate.duckdb")
    store.open()
    store.connection.execute(
        "INSERT INTO grants (id, account_id, amount, note, created_at) SELECT uuid()::VARCHAR, 'alice', 1, "
        "repeat(uuid()::VARCHAR, 8), TIMESTAMP '2026-11-22' + to_seconds(range) FROM range(20000)"
    )
    store.connection.execute("CHECKPOINT")
    contents = Contents(store)
    over = threading.Event()

    def give_back() -> None:
        while not over.is_set():
            store.let_go()

    thread = threading.Thread(target=give_back)
    thread.start()
    try:
        found = [sum(map(len, contents.grants())) for _ in range(8)]
    finally:
        over.set()
        thread.join()
    assert found == [20_000] * 8
    store.close()
