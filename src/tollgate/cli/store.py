"""`tollgate store`: moves the data of one gateway from its folder into a database that several gateways share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from tollgate.cli.books import config_option, fail, json_option, print_json, print_table, settings
from tollgate.ledger.shared.moving import move as moved_to


@click.group(help="Move an embedded store into one that several gateways share.")
def command() -> None:
    pass


@command.command(
    help="Move the embedded store into the shared one that store.url names: accounts, keys, grants, balances, usage "
    "rows, image jobs. All of it or nothing; every sum is compared to the last digit. No gateway may run on the "
    "embedded store."
)
@click.option(
    "--from",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the embedded store; default: store.directory.",
)
@click.option("--instance", help="Name under which its usage files were published; default: store.instance.")
@click.option("--dry-run", is_flag=True, help="Do everything, compare, and take it back.")
@json_option
@config_option
def move(path: Path | None, folder: Path | None, instance: str | None, dry_run: bool, as_json: bool) -> None:
    store = settings(path).store
    if not store.url:
        fail("store.url is not set, wanted the address of the shared store to move into (docs/shared-store.md)")
    source = replace(store, directory=folder or store.directory, instance=instance or store.instance)
    moved = asyncio.run(moved_to(source, store.url, dry_run=dry_run))
    counts = {
        "accounts": moved.accounts,
        "keys": moved.keys,
        "grants": moved.grants,
        "usage rows": moved.rows,
        "image jobs": moved.jobs,
    }
    if as_json:
        print_json(
            {
                "moved": not dry_run and not moved.again,
                "again": moved.again,
                "balance": moved.balance,
                **{name.replace(" ", "_"): count for name, count in counts.items()},
            }
        )
    elif moved.again:
        click.echo(
            f"moved already, at {moved.at:%Y-%m-%d %H:%M:%S} UTC, with {moved.rows} usage rows; nothing was changed"
        )
    else:
        print_table(("what", "count"), list(counts.items()), numbers=frozenset({"count"}))
        click.echo(
            f"together {moved.balance:f} credits are left; "
            + ("nothing was changed: a dry run" if dry_run else f"{source.directory} is of no use any more")
        )
