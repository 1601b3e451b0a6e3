"""`tollgate store move`: an embedded store is moved into a database, once."""

from __future__ import annotations

import json
from pathlib import Path

from .tollgate import Tollgate


async def test_a_store_is_moved_once_and_commands_then_use_the_database(tollgate: Tollgate, address: str) -> None:
    await tollgate.in_thread("accounts", "create", "alice")
    await tollgate.in_thread("credits", "grant", "alice", "10.000000000001")
    tollgate.write("gateway.yaml", f'store: {{url: "{address}"}}\n')
    dry_run = await tollgate.in_thread("store", "move", "--dry-run")
    assert dry_run.code == 0
    assert "together 10.000000000001 credits are left; nothing was changed: a dry run" in dry_run.out
    done = json.loads((await tollgate.in_thread("store", "move", "--json")).out)
    assert done == {
        "moved": True,
        "again": False,
        "balance": "10.000000000001",
        "accounts": 1,
        "keys": 0,
        "grants": 1,
        "usage_rows": 0,
        "image_jobs": 0,
    }
    assert "balance 9.000000000001" in (await tollgate.in_thread("credits", "grant", "alice", "-1")).out
    again = await tollgate.in_thread("store", "move")
    assert again.code == 0
    assert again.out.startswith("moved already, at 2")
    tollgate.write("gateway.yaml", "{}\n")
    refused = await tollgate.in_thread("credits", "show")
    assert refused.code == 1
    assert "var: this store was moved into a shared one at 2" in refused.err
    assert "with 0 rows. Set store.url; who deletes " in refused.err


def test_without_a_store_url_nothing_is_moved(tollgate: Tollgate) -> None:
    done = tollgate("store", "move")
    assert (done.code, done.out) == (1, "")
    assert "store.url is not set, wanted the address of the shared store to move into" in done.err


async def test_a_folder_without_a_store_is_reported(tollgate: Tollgate, address: str, tmp_path: Path) -> None:
    tollgate.write("gateway.yaml", f'store: {{url: "{address}"}}\n')
    done = await tollgate.in_thread("store", "move", "--from", str(tmp_path / "old"))
    assert done.code == 1
    assert done.err == f"{tmp_path}/old: no embedded store is here\n"
