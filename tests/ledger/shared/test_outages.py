"""A database that fails and recovers, gateways that die, and rows that cannot be stored."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import asyncpg
import duckdb
import pytest

from support.postgres import Server
from support.waiting import until
from tollgate.config.settings import Credits, Store
from tollgate.errors import TollgateError, Unavailable
from tollgate.ledger import Ledger, ledger_of
from tollgate.ledger.locks import FileLocks
from tollgate.ledger.shared import change_listener, connections, rounds, tables

from ..conftest import DONE, Alice, job, row, with_alice
from .conftest import close_unpublished, published, until_gone


async def cut(observer: asyncpg.Connection, instance: str) -> None:
    """Terminates all sessions of a gateway, like a network failure."""
    await observer.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1 AND pid <> "
        "pg_backend_pid()",
        f"tollgate {instance}%",
    )


async def until_ready(ledger: Ledger) -> None:
    await until(lambda: ledger.ready)


async def test_a_lost_connection_loses_no_row_and_no_hold(alice: Alice, observer: asyncpg.Connection) -> None:
    first, second = await alice.ledger.hold(alice.key, Decimal(1)), await alice.ledger.hold(alice.key, Decimal(2))
    for number in range(5):
        await cut(observer, "a")
        with contextlib.suppress(Unavailable):  # the row may be durable at once or later
            await alice.ledger.record(row(f"req_{number}", key_id=alice.key.id, cost="0.5"), first)
    await until_ready(alice.ledger)
    await alice.ledger.settle()
    sums = await alice.ledger.sums("alice")
    assert (sums.spent, sums.held) == (Decimal("2.5"), 2)
    second.release()
    await alice.ledger.settle()
    assert (await alice.ledger.sums("alice")).held == 0


@pytest.mark.parametrize("fails", ["the first statement", "listening"])
async def test_a_connection_that_cannot_be_used_is_closed(
    address: str, observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A gateway tries again twice a second: connections left open would use up those that the database has."""

    async def sessions() -> int:
        return await observer.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tollgate left'")

    async def nothing(what: str, id: str) -> None:
        pass

    kept = []
    if fails == "listening":
        monkeypatch.setattr(change_listener, "CHANNEL", "")
    else:
        monkeypatch.setitem(connections.KEEPALIVE, "SESSION", "SELECT nothing")
    for _ in range(3):
        with pytest.raises(TollgateError) as failed:
            await change_listener.ChangeListener(address, "tollgate left", nothing).open()
        kept.append(failed)  # with its traceback, and the connection in it, which is not collected therefore

    async def closed() -> bool:
        return await sessions() == 0

    await until(closed)


async def test_a_temporarily_read_only_database_is_reported_and_used_again(
    alice: Alice, observer: asyncpg.Connection, store: Callable[[str], Store]
) -> None:
    """For example, the address may point to a replica for a while."""
    name = await observer.fetchval("SELECT current_database()")
    await observer.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await cut(observer, "a")
    with pytest.raises(Unavailable, match="read-only transaction"):
        await ledger_of(store("b"), Credits(), serving=False).open()  # as commands do
    with pytest.raises(Unavailable):
        await alice.ledger.record(row("req_1", key_id=alice.key.id, cost="0.5"))
        await alice.ledger.settle()
    assert not alice.ledger.ready
    await observer.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await until_ready(alice.ledger)
    await alice.ledger.settle()
    assert (await alice.ledger.sums("alice")).spent == Decimal("0.5")


async def test_while_the_database_is_down_new_work_is_rejected_and_finished_work_kept(
    alice: Alice, postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    hold = await alice.ledger.hold(alice.key, Decimal(1))
    made = job()
    await alice.ledger.generations.create(made)
    await asyncio.to_thread(postgres.stop)
    try:
        with pytest.raises(Unavailable, match="the database"):
            await alice.ledger.record(row("req_kept", key_id=alice.key.id, cost="0.25"), hold)
        assert not alice.ledger.ready
        assert "the database" in alice.ledger.not_ready_reason
        with pytest.raises(Unavailable):
            await alice.ledger.hold(alice.key, Decimal(1))
        with pytest.raises(Unavailable):
            await alice.ledger.grant("alice", Decimal(1))
        ending = asyncio.create_task(alice.ledger.generations.update(made.id, DONE, row("req_job", cost="0.04")))
        await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(postgres.start)
    with contextlib.suppress(Unavailable):  # an error only means that it is not durable yet
        assert await ending
    await until_ready(alice.ledger)
    await alice.ledger.settle()
    sums = await alice.ledger.sums("alice")
    assert (sums.granted, sums.spent, sums.held) == (10, Decimal("0.29"), 0)
    assert "the store can be written again" in caplog.text
    assert "tollgate@" not in caplog.text


async def test_the_holds_of_a_dead_gateway_are_released_by_others(
    alice: Alice, observer: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await observer.execute(
        "SELECT tollgate.set_held('gone', jsonb_build_array(jsonb_build_object('account', 'alice', 'key', $1::text, "
        "'amount', '4')))",
        alice.key.id,
    )
    held = await alice.ledger.hold(alice.key, Decimal(10))
    assert held.amount == 5
    alice.ledger._backend.rounds._session._look_at = 0.0
    await alice.ledger.settle()
    assert (await alice.ledger.sums("alice")).held == 5
    assert 'gateway "gone" is gone' in caplog.text
    held.release()


async def test_the_holds_of_a_running_gateway_are_kept(alice: Alice, gateway) -> None:
    other = await gateway("b")
    held = await other.hold(alice.key, Decimal(4))
    alice.ledger._backend.rounds._session._look_at = 0.0
    await alice.ledger.settle()
    assert (await alice.ledger.sums("alice")).held == 4
    held.release()


async def test_a_gateway_starts_without_the_holds_of_its_previous_run(
    gateway, store: Callable[[str], Store], observer: asyncpg.Connection
) -> None:
    async with ledger_of(store("a"), Credits()) as first:
        alice = await with_alice(first)
        await observer.execute(
            "SELECT tollgate.set_held('c', jsonb_build_array(jsonb_build_object('account', 'alice', 'key', $1::text, "
            "'amount', '3')))",
            alice.key.id,
        )
        assert (await first.sums("alice")).held == 3
        again = await gateway("c")
        await again.settle()
        assert (await again.sums("alice")).held == 0


async def test_a_row_that_cannot_be_stored_does_not_block_others(
    alice: Alice, caplog: pytest.LogCaptureFixture
) -> None:
    broken = alice.ledger._backend.rounds.row(
        "alice",
        b'{"request_id": "req_broken", "account_id": "alice", "key_id": "k", "endpoint": "chat", "time": "never", '
        b'"cost": "1"}',
    )
    good = [alice.ledger.record(row(f"req_{number}", cost="0.5")) for number in range(3)]
    hold = await alice.ledger.hold(alice.key, Decimal(1))
    await asyncio.gather(*good)
    with pytest.raises(TollgateError, match="the database refused"):
        await broken
    assert hold.amount == 1
    assert alice.ledger.ready
    assert "req_broken" in caplog.text
    assert (await alice.ledger.sums("alice")).spent == Decimal("1.5")
    hold.release()


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a valid row"])
async def test_settle_does_not_wait_for_a_row_that_cannot_be_stored(alice: Alice, beside: bool) -> None:
    await alice.ledger.settle()
    broken = alice.ledger._backend.rounds.row(
        "alice",
        b'{"request_id": "req_broken", "account_id": "alice", "key_id": "k", "endpoint": "chat", "time": "never", '
        b'"cost": "1"}',
    )
    if beside:
        alice.ledger.record(row("req_good"))
    async with asyncio.timeout(20):
        await alice.ledger.settle()
    assert broken.exception() is not None


async def test_the_hold_of_a_cancelled_request_is_released(alice: Alice) -> None:
    for pause in (0.0, 0.001, 0.002, 0.004, 0.01):
        request = asyncio.create_task(alice.ledger.hold(alice.key, Decimal(1)))
        await asyncio.sleep(pause)
        if not request.cancel():
            (await request).release()
    await alice.ledger.settle()
    await alice.ledger.settle()  # the round that granted it may be the one that the first call waited for
    assert (await alice.ledger.sums("alice")).held == 0


async def test_a_stop_writes_all_pending_rows(store: Callable[[str], Store], observer: asyncpg.Connection) -> None:
    async with ledger_of(store("a"), Credits()) as ledger:
        alice = await with_alice(ledger)
        hold = await ledger.hold(alice.key, Decimal(1))
        for number in range(50):
            ledger.record(row(f"req_{number}", cost="0.01"), hold if number == 49 else None)
    assert await observer.fetchrow("SELECT count(*), sum(cost) FROM tollgate.usage") == (50, Decimal("0.5"))
    assert await observer.fetchrow("SELECT spent, held FROM tollgate.balances") == (Decimal("0.5"), 0)


async def test_a_stop_while_the_database_is_down_ends_and_logs_the_loss(
    store: Callable[[str], Store], postgres: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rounds, "CLOSE_SECONDS", 0.05)
    ledger = ledger_of(store("a"), Credits())
    await ledger.open()
    await with_alice(ledger)
    await asyncio.to_thread(postgres.stop)
    try:
        with pytest.raises(Unavailable):
            await ledger.record(row("req_lost"))
        await asyncio.wait_for(ledger.close(), 20)
    finally:
        await asyncio.to_thread(postgres.start)
    assert "1 row(s) and 0 job(s) could not be written before the end: " in caplog.text


async def test_missing_usage_files_are_written_again(store: Callable[[str], Store], tmp_path: Path) -> None:
    async with ledger_of(store("a"), Credits()) as ledger:
        await with_alice(ledger)
        await ledger.record(row("req_1"))
    for path in tmp_path.glob("usage/*/*.duckdb"):
        path.unlink()
    async with ledger_of(store("a"), Credits()) as ledger:
        await ledger.record(row("req_2"))
    found = duckdb.sql(
        f"FROM read_duckdb('{tmp_path}/usage/**/*.duckdb', table_name = 'usage') SELECT list(request_id ORDER BY seq), "
        "count(DISTINCT seq)"
    ).fetchall()
    assert found == [(["req_1", "req_2"], 2)]


async def test_unpublished_rows_of_a_dead_gateway_are_published_by_another_at_its_second_look(
    store: Callable[[str], Store], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ledger_of(store("a"), Credits()) as first, ledger_of(store("b"), Credits()) as other:
        await with_alice(first)
        await first.record(row("req_1"))
        await first.settle()
        looking = other._backend._publishing._leftovers
        await looking.look()
        assert looking._gone == set(), "the gateway has a session"
        await close_unpublished(first, "req_2", "req_3")
        await until_gone(other, "a")
        await looking.look()
        assert published(tmp_path) == [("-a.duckdb", ["req_1"])]
        async with ledger_of(store("c"), Credits()) as third:
            await third._backend._publishing._leftovers.look()
            await asyncio.gather(looking.look(), third._backend._publishing._leftovers.look())
        assert published(tmp_path) == [("-a.duckdb", ["req_1", "req_2", "req_3"])]
        assert caplog.text.count('gateway "a" is gone; 1 usage file(s) got the rows that it had not published') == 1
        await looking.look()
        assert looking._gone == set()
        async with ledger_of(store("a"), Credits()) as again:
            await again.record(row("req_4"))
        assert published(tmp_path) == [("-a.duckdb", ["req_1", "req_2", "req_3", "req_4"])]


async def test_a_start_waits_while_another_gateway_writes_its_usage_files(
    store: Callable[[str], Store], tmp_path: Path
) -> None:
    async with ledger_of(store("a"), Credits()) as first:
        await with_alice(first)
        await close_unpublished(first, "req_1")
    locks = FileLocks()
    locks.take_usage(tmp_path / "usage", "a")
    asyncio.get_running_loop().call_later(0.3, locks.release)
    async with ledger_of(store("a"), Credits()) as again:
        await again.record(row("req_2"))
    assert published(tmp_path) == [("-a.duckdb", ["req_1", "req_2"])]


async def test_changes_missed_without_a_listener_are_read_afterwards(
    alice: Alice, observer: asyncpg.Connection
) -> None:
    await observer.execute("UPDATE tollgate.keys SET revoked = true")  # without a notification
    await cut(observer, "a")
    await until(lambda: alice.ledger._memory.keys[alice.key.id].revoked)


async def test_many_gateways_may_start_on_an_empty_database_at_once(gateway) -> None:
    ledgers = await asyncio.gather(*(gateway(name) for name in "abcdef"))
    await ledgers[0].create_account("alice")

    async def all_know_her() -> bool:
        return all([await ledger.list_accounts() for ledger in ledgers])

    await until(all_know_her)


async def test_a_user_who_owns_only_the_schema_may_start_a_gateway(
    store: Callable[[str], Store], observer: asyncpg.Connection
) -> None:
    await observer.execute("CREATE ROLE tenant LOGIN; CREATE SCHEMA tollgate AUTHORIZATION tenant")
    try:
        settings = replace(store("a"), url=store("a").url.replace("//tollgate@", "//tenant@"))
        async with ledger_of(settings, Credits()) as ledger:
            assert ledger.ready
    finally:
        await observer.execute("DROP OWNED BY tenant; DROP ROLE tenant")


async def test_tables_of_a_newer_program_are_rejected(alice: Alice, gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "VERSIONS", ())
    with pytest.raises(TollgateError, match="schema version 8, this program knows up to 0"):
        await gateway("b")


async def test_a_new_usage_column_is_added_at_the_next_start(
    store: Callable[[str], Store], observer: asyncpg.Connection
) -> None:
    async with ledger_of(store("a"), Credits()) as ledger:
        await with_alice(ledger)
        await ledger.record(row("req_1", cost="0.5"))
    await observer.execute("ALTER TABLE tollgate.usage DROP COLUMN native_cost, DROP COLUMN lost")
    async with ledger_of(store("a"), Credits()) as ledger:
        await ledger.record(row("req_2", native_cost=Decimal("0.25"), lost="a"))
    found = await observer.fetch("SELECT native_cost, lost FROM tollgate.usage ORDER BY request_id")
    assert [tuple(each) for each in found] == [(None, None), (Decimal("0.25"), "a")]


_OLD_KEY = (
    "INSERT INTO tollgate.keys (id, account_id, digest, name, last_four, revoked, cap_window, strict, created_at) "
    "VALUES ($1, 'bob', $1, '', 'abcd', false, 'total', false, now())"
)
"""What gateways of versions 1 and 2 write, also while they run beside this one."""


@pytest.mark.parametrize("version", [1, 2])
async def test_older_tables_are_upgraded(
    store: Callable[[str], Store], observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as older:
        older.setattr(tables, "VERSIONS", tables.VERSIONS[:version])
        await tables.migrate(observer)
        await observer.execute("INSERT INTO tollgate.instances (name) VALUES ('a')")
        await observer.execute("INSERT INTO tollgate.accounts VALUES ('bob', 'Bob', 'user', '', now())")
        await observer.execute(_OLD_KEY, "00")
    async with ledger_of(store("a"), Credits()) as ledger:
        await with_alice(ledger)
        await ledger.record(row("req_1"))
        await observer.execute(_OLD_KEY, "01")
        assert [(key.id, key.restricted) for key in await ledger.list_keys("bob")] == [("00", False), ("01", False)]
        changed = await ledger.update_key("00", endpoints=("chat",), max_concurrent=2)
        assert (changed.endpoints, changed.max_concurrent, changed.restricted) == (("chat",), 2, True)
    assert await observer.fetchrow("SELECT published, rows_from FROM tollgate.instances") == (1, None)


_FIRST_FUNCTIONS = (
    "CREATE FUNCTION tollgate.hold(p_instance text, p_ask jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p_ask $$",
    "CREATE FUNCTION tollgate.release_gone(p_instance text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT p_instance $$",
)
"""As in the first stores, with other parameters and results."""


async def test_functions_of_an_older_store_are_replaced(
    store: Callable[[str], Store], observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(tables, "VERSIONS", tables.VERSIONS[:3])
        await tables.migrate(observer)
        for each in _FIRST_FUNCTIONS:
            await observer.execute(each)
    async with ledger_of(store("a"), Credits()) as ledger:
        alice = await with_alice(ledger)
        await ledger.record(row("req_1", cost="0.5"), await ledger.hold(alice.key, Decimal(1)))
        assert (await ledger.sums("alice")).balance == Decimal("9.5")


def test_changed_functions_have_a_new_version() -> None:
    """Change both together: the version of functions.sql, and its hash."""
    text = Path(tables.__file__).with_name("functions.sql").read_bytes()
    version = [number for number, names in enumerate(tables.VERSIONS, start=1) if "functions.sql" in names]
    assert (version, hashlib.sha256(text).hexdigest()[:16]) == ([8], "c0bcd1efbf0d8384")


async def test_a_connection_sets_only_what_poolers_accept_and_enables_keepalive_later(alice: Alice) -> None:
    """PgBouncer rejects a connection that starts with other settings."""
    assert connections._options("x")["server_settings"].keys() == {"application_name", "timezone"}
    assert await alice.ledger._backend.rounds._session.connection.fetchval("SHOW tcp_keepalives_idle") == "10"


async def test_a_gateway_that_receives_no_notifications_does_not_start(
    store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler in transaction mode, which swallows notifications."""

    async def in_vain(*_: object) -> None:
        pass

    monkeypatch.setattr(asyncpg.Connection, "add_listener", in_vain)
    monkeypatch.setattr(change_listener, "_HELLO_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="a pooler has to pool sessions, not transactions"):
        await ledger_of(store("a"), Credits()).open()


async def test_a_database_timeout_is_reported_as_no_answer() -> None:
    with pytest.raises(Unavailable, match="the database does not answer"), connections.driver_errors():
        raise TimeoutError


async def test_a_lost_prepared_statement_is_reported_as_a_pooler_mode() -> None:
    reported = pytest.raises(Unavailable, match="a pooler has to pool sessions, not transactions")
    with reported, connections.driver_errors():
        raise asyncpg.exceptions.InvalidSQLStatementNameError('prepared statement "x" does not exist')


async def test_a_certificate_that_does_not_fit_is_reported_as_such() -> None:
    with pytest.raises(Unavailable, match="certificate is not valid for 'db'"), connections.driver_errors():
        raise ssl.SSLCertVerificationError(1, "certificate is not valid for 'db'")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/x", "the database cannot be used"),
        ("postgresql://me:hunter2@127.0.0.1:port/x", "not the address of a PostgreSQL database"),
        ("postgresql://me:x@[hunter2@127.0.0.1/x", "not the address of a PostgreSQL database"),
        ("postgresql://me:hunter2@127.0.0.1/x?sslmode=on", "store.url: `sslmode` parameter must be one of: disable"),
        (
            "postgresql://me:hunter2@127.0.0.1/x?sslmode=verify-full&sslrootcert=/nowhere/ca.crt",
            "the database cannot be used: .*No such file",
        ),
    ],
    ids=["nothing listens", "an invalid port", "an invalid host", "an invalid option", "no such file"],
)
async def test_an_unreachable_database_is_reported_without_its_password(url: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TollgateError, match=message) as raised:
        await ledger_of(Store(url=url, directory=tmp_path, usage_directory=tmp_path), Credits()).open()
    assert "hunter2" not in str(raised.value)


async def test_a_missing_package_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(TollgateError, match="pip install asyncpg"):
        ledger_of(Store(url="postgresql://db/x", directory=tmp_path), Credits())


async def test_a_mistake_of_ours_does_not_end_publishing(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tollgate.ledger.shared.usage.Publisher.publish", lambda *_: {}["a"])
        await alice.ledger.record(row("req_1"))
        await until(lambda: not alice.ledger.published)
    assert "KeyError" in caplog.text
    await until(lambda: alice.ledger.published)
    assert published(tmp_path) == [("-a.duckdb", ["req_1"])]
