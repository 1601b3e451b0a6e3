"""The admin socket: the same administration, with or without a running gateway."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import duckdb
import orjson
import pytest

from tollgate.config.settings import Credits, Store
from tollgate.errors import BadRequest, NotFound, TollgateError, Unauthorized, Unavailable
from tollgate.ledger import Ledger, StoreInUse
from tollgate.ledger.admin_socket import METHODS, RemoteLedger, open_books

from .conftest import Alice, new_ledger, row, settings


async def test_a_change_through_the_admin_socket_applies_in_the_gateway_at_once(alice: Alice, tmp_path: Path) -> None:
    await alice.ledger.serve_admin()
    expires = datetime.now(UTC) + timedelta(days=1)
    async with open_books(settings(tmp_path), Credits()) as administration:
        assert isinstance(administration, RemoteLedger)
        key, secret = await administration.create_key(
            "alice",
            "remote",
            allowed_models=("acme/*",),
            expires_at=expires,
            spend_cap=Decimal("1.5"),
            max_concurrent=3,
            endpoints=("chat",),
            allowed_addresses=("::1",),
        )
        assert key.restricted
        assert alice.ledger.find_key(secret) == key
        await administration.revoke_key(alice.key.id)
        grant = await administration.grant("alice", Decimal("2.50"), "more")
        assert (grant.amount, grant.note) == (Decimal("2.5"), "more")
        assert [each.id for each in await administration.list_keys("alice")] == [alice.key.id, key.id]
        assert await administration.list_keys() == await alice.ledger.list_keys()
        assert await administration.list_grants("alice") == await alice.ledger.list_grants("alice")
        assert await administration.sums("alice") == await alice.ledger.sums("alice")
        changed = await administration.update_key(
            key.id, name="renamed", allowed_models=None, allowed_addresses=("::2", "::3")
        )
        assert (changed.name, changed.allowed_models, changed.allowed_addresses) == ("renamed", None, ("::2", "::3"))
        assert alice.ledger.find_key(secret) == changed
        assert (await administration.create_account("bob", role="operator")).role == "operator"
        assert (await administration.update_account("bob", name="Bob")).name == "Bob"
        await administration.settle()
    assert alice.ledger.balance("alice") == Decimal("12.5")
    with pytest.raises(Unauthorized, match="revoked"):
        alice.ledger.find_key(alice.secret)


async def test_without_a_gateway_the_store_is_opened_directly(tmp_path: Path) -> None:
    async with open_books(settings(tmp_path), Credits()) as administration:
        assert isinstance(administration, Ledger)
        await administration.create_account("alice")
    async with open_books(settings(tmp_path), Credits()) as administration:
        assert [each.id for each in await administration.list_accounts()] == ["alice"]


@pytest.mark.parametrize(
    "answer", [ConnectionResetError(), b"", b'{"result": {"id": "gr'], ids=["reset", "closed", "half an answer"]
)
async def test_a_gateway_that_dies_before_it_answers_is_reported(answer: bytes | Exception) -> None:
    reader, writer = asyncio.StreamReader(), create_autospec(asyncio.StreamWriter, instance=True)
    if isinstance(answer, Exception):
        reader.set_exception(answer)
    else:
        reader.feed_data(answer)
        reader.feed_eof()
    with pytest.raises(Unavailable, match="whether the change was made is not known"):
        await RemoteLedger(reader, writer).grant("alice", Decimal(1))


async def test_errors_keep_their_types(alice: Alice, tmp_path: Path) -> None:
    await alice.ledger.serve_admin()
    async with open_books(settings(tmp_path), Credits()) as administration:
        with pytest.raises(NotFound, match='no account "bob"'):
            await administration.grant("bob", Decimal(1))
        with pytest.raises(BadRequest, match="exists already"):
            await administration.create_account("alice")
        with pytest.raises(AttributeError):
            administration.record  # noqa: B018
        assert len(await administration.list_accounts()) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"[]",
        b"{}",
        b'{"call":"close"}',
        b'{"call":"record","with":{}}',
        b'{"call":"grant","with":{"amount":"x"}}',
        b'{"call":"grant","with":{"nonsense":1}}',
    ],
)
async def test_an_invalid_call_is_an_error_and_keeps_the_connection_open(
    alice: Alice, tmp_path: Path, line: bytes
) -> None:
    await alice.ledger.serve_admin()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "var" / "admin.sock")
    for _ in range(2):
        writer.write(line + b"\n")
        assert orjson.loads(await reader.readline())["error"]["kind"] == "BadRequest"
    writer.close()


async def test_an_unexpected_failure_is_reported_and_logged_and_keeps_the_connection_open(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await alice.ledger.serve_admin()
    failure = create_autospec(alice.ledger.list_grants, side_effect=duckdb.FatalException("the database is broken"))
    monkeypatch.setattr(alice.ledger, "list_grants", failure)
    async with open_books(settings(tmp_path), Credits()) as administration:
        with pytest.raises(TollgateError, match="the gateway failed, FatalException: the database is broken; its log"):
            await administration.list_grants("alice")
        assert (await administration.get_account("alice")).name == "Alice"
    assert "list_grants" in caplog.text and "FatalException" in caplog.text


async def test_an_answer_may_be_longer_than_a_call(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollgate.ledger.admin_socket._CALL_LIMIT", 1000)
    await alice.ledger.serve_admin()
    for _ in range(10):
        await alice.ledger.create_key("alice", "x" * 100)
    async with open_books(settings(tmp_path), Credits()) as administration:
        assert await administration.list_keys() == await alice.ledger.list_keys()


async def test_the_socket_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "var" / "admin.sock"
    async with new_ledger(tmp_path) as ledger:
        await ledger.serve_admin()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_folders_that_other_threads_make_meanwhile_keep_their_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage files could not be written into a folder that its owner may not enter."""
    bind, meanwhile = socket.socket.bind, tmp_path / "2026-11-22"

    def bind_and_make(*arguments: Any) -> None:
        meanwhile.mkdir()
        bind(*arguments)

    monkeypatch.setattr(socket.socket, "bind", bind_and_make)
    async with new_ledger(tmp_path) as ledger:
        await ledger.serve_admin()
    assert stat.S_IMODE(meanwhile.stat().st_mode) & stat.S_IRWXU == stat.S_IRWXU


async def test_a_socket_left_by_a_killed_gateway_is_replaced(tmp_path: Path) -> None:
    script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])"
    (tmp_path / "var").mkdir()
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "var" / "admin.sock")], check=True)
    async with open_books(settings(tmp_path), Credits()) as administration:
        await administration.create_account("alice")
    async with new_ledger(tmp_path) as ledger:
        await ledger.serve_admin()
        async with open_books(settings(tmp_path), Credits()) as administration:
            assert isinstance(administration, RemoteLedger)


async def test_a_locked_store_without_a_socket_is_waited_for_and_then_reported(alice: Alice, tmp_path: Path) -> None:
    with pytest.raises(StoreInUse, match=r"in use by another process \(pid \d+\)"):
        async with open_books(settings(tmp_path), Credits(), patience=0.2):
            pass


async def test_a_gateway_that_stops_in_the_middle_is_reported(tmp_path: Path) -> None:
    ledger = new_ledger(tmp_path)
    await ledger.open()
    await ledger.serve_admin()
    async with open_books(settings(tmp_path), Credits()) as administration:
        await administration.list_accounts()
        await ledger.close()
        with pytest.raises((Unavailable, ConnectionError)):
            await administration.list_accounts()


async def test_a_folder_with_a_very_long_path_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with new_ledger(deep) as ledger:
        await ledger.serve_admin()
        async with open_books(settings(deep), Credits()) as administration:
            assert isinstance(administration, RemoteLedger)
            await administration.create_account("alice")
        assert (await ledger.get_account("alice")).id == "alice"


async def test_a_folder_that_cannot_contain_a_socket_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bind(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("tollgate.ledger.admin_socket.socket.socket.bind", bind)
    async with new_ledger(tmp_path) as ledger:
        await ledger.serve_admin()
        assert ledger.ready
    assert "admin.sock: no socket can be made here (Operation not supported)" in caplog.text


def test_every_remote_method_exists_in_the_ledger() -> None:
    assert all(callable(getattr(Ledger, name)) for name in METHODS)


async def test_the_gateway_records_rows_while_it_is_administered(alice: Alice, tmp_path: Path) -> None:
    await alice.ledger.serve_admin()
    async with open_books(settings(tmp_path), Credits()) as administration:
        await asyncio.gather(
            *(alice.ledger.record(row(cost="0.001")) for _ in range(200)),
            *(administration.grant("alice", Decimal("0.01")) for _ in range(20)),
        )
    assert alice.ledger.balance("alice") == Decimal(10)


async def test_two_gateways_cannot_publish_under_the_same_name(tmp_path: Path) -> None:
    """Each gateway numbers its own rows, so in a shared file one would mistake the other's rows for its own and omit
    its own."""

    def store(name: str, instance: str = "main") -> Store:
        return Store(directory=tmp_path / name, usage_directory=tmp_path / "usage", instance=instance)

    async with Ledger(store("one"), Credits()):
        with pytest.raises(
            StoreInUse,
            match=rf"usage gets the usage files of another gateway \(pid {os.getpid()}\) under the same name; give one of them a `store.instance`",  # noqa: E501
        ):
            await Ledger(store("two"), Credits()).open(patience=0)
        async with Ledger(store("two", "eu-1"), Credits()):
            pass
    async with Ledger(store("two"), Credits()):
        pass
