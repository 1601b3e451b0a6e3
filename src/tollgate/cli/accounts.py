"""`tollgate accounts`: who pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tollgate.cli.books import config_option, json_option, print_json, print_table, with_books


@click.group(help="Create and list accounts.")
def command() -> None:
    pass


@command.command("list", help="List all accounts with their credits.")
@json_option
@config_option
def list_(path: Path | None, as_json: bool) -> None:
    from tollgate import accounts

    views = with_books(path, accounts.account_views)
    if as_json:
        print_json([_plain(view) for view in views])
        return
    print_table(("account", "name", "role", "balance", "held", "spent", "granted", "active keys", "created"),
                [(v.account.id, v.account.name, v.account.role, v.sums.balance, v.sums.held, v.sums.spent, v.sums.granted,
                  v.active_keys, v.account.created_at) for v in views],
                numbers=frozenset({"balance", "held", "spent", "granted", "active keys"}))


@command.command(help="Create an account without credits. ID is a readable word: usage rows show it.")
@click.argument("id")
@click.option("--name", default="", help="Name to display; default: the id.")
@click.option("--role", type=click.Choice(["user", "operator"]), default="user", show_default=True,
              help="An operator sees every account in the dashboard.")
@click.option("--credits", "amount", default=None, help="Credits to begin with.")
@json_option
@config_option
def create(path: Path | None, id: str, name: str, role: str, amount: str | None, as_json: bool) -> None:
    from tollgate import accounts

    async def work(books: Any) -> accounts.AccountView:
        if amount is not None:
            accounts.read_amount(amount)
        await accounts.create_account(books, id, name, role)
        if amount is not None:
            await accounts.grant(books, id, amount, "at creation")
        return await accounts.account_view(books, id)

    view = with_books(path, work)
    if as_json:
        print_json(_plain(view))
    else:
        click.echo(f"account {id} is there; give it credits with: tollgate credits grant {id} 10" if amount is None
                   else f"account {id} is there with {amount} credits")


@command.command(help="Show one account, its credits and keys.")
@click.argument("id")
@json_option
@config_option
def show(path: Path | None, id: str, as_json: bool) -> None:
    from tollgate import accounts

    async def work(books: Any) -> tuple[accounts.AccountView, list[accounts.KeyView]]:
        return await accounts.account_view(books, id), await accounts.key_views(books, id)

    view, keys = with_books(path, work)
    if as_json:
        from tollgate.cli.keys import plain_key

        print_json(_plain(view) | {"keys": [plain_key(key) for key in keys]})
        return
    from tollgate.cli.keys import print_keys

    account, sums = view.account, view.sums
    print_table(("account", account.id), [
        ("name", account.name), ("role", account.role), ("created", account.created_at), ("granted", sums.granted),
        ("spent", sums.spent), ("balance", sums.balance), ("held by running requests", sums.held)])
    print_keys(keys)


def _plain(view: Any) -> dict[str, Any]:
    account, sums = view.account, view.sums
    return {"id": account.id, "name": account.name, "role": account.role, "created_at": account.created_at,
            "granted": sums.granted, "spent": sums.spent, "balance": sums.balance, "held": sums.held,
            "active_keys": view.active_keys}
