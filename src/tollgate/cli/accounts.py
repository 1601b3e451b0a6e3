"""`tollgate accounts`: who pays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tollgate import accounts
from tollgate.cli.books import (
    Command,
    config_option,
    fail,
    json_option,
    print_json,
    print_row,
    print_views,
    with_books,
)
from tollgate.cli.credits import plain_sums
from tollgate.cli.keys import plain_key, print_keys
from tollgate.ledger import Ledger
from tollgate.ledger.administration import Administration


@click.group(help="Create, show and change accounts; passwords, sign-in links.")
def command() -> None:
    pass


@command.command("list", help="List all accounts with their credits.")
@json_option
@config_option
def list_(path: Path | None, as_json: bool) -> None:
    views = with_books(path, accounts.account_views)
    if as_json:
        print_json([_plain(view) for view in views])
        return
    columns = {"account": "account.id", "name": "account.name", "role": "account.role"}
    amounts = {"balance": "sums.balance", "held": "sums.held", "spent": "sums.spent", "granted": "sums.granted"}
    counts = {"active keys": "active_keys"}
    print_views(
        {**columns, **amounts, **counts, "created": "account.created_at"}, views, numbers=frozenset((*amounts, *counts))
    )


def _role_option(default: str | None) -> Callable[[Command], Command]:
    return click.option(
        "--role",
        type=click.Choice(["user", "operator"]),
        default=default,
        show_default=True,
        help="An operator sees every account in the dashboard.",
    )


@command.command(
    help="Create an account, without credits unless some are given. ID is a readable word: usage rows show it."
)
@click.argument("id")
@click.option("--name", default="", help="Name to display; default: the id.")
@_role_option("user")
@click.option("--credits", "amount", metavar="USD", help="Credits to begin with.")
@json_option
@config_option
def create(path: Path | None, id: str, name: str, role: str, amount: str | None, as_json: bool) -> None:
    if amount is not None and not amount.strip():
        raise click.BadParameter("it is empty; leave it out for none", param_hint="'--credits'")

    async def work(books: Administration) -> accounts.AccountView:
        await accounts.create_account(books, id, name, role, amount or "")
        return await accounts.account_view(books, id)

    view = with_books(path, work)
    if as_json:
        print_json(_plain(view))
    else:
        click.echo(
            f"account {id} is there; give it credits with: tollgate credits grant {id} 10"
            if amount is None
            else f"account {id} is there with {amount} credits"
        )


@command.command(help="Show one account, its credits and keys.")
@click.argument("id")
@json_option
@config_option
def show(path: Path | None, id: str, as_json: bool) -> None:
    async def work(books: Administration) -> tuple[accounts.AccountView, list[accounts.KeyView]]:
        return await accounts.account_view(books, id), await accounts.key_views(books, id)

    view, keys = with_books(path, work)
    if as_json:
        print_json(_plain(view) | {"keys": [plain_key(key) for key in keys]})
        return
    account, sums = view.account, view.sums
    print_row(
        ("account", "name", "role", "created", "granted", "spent", "balance", "held by running requests"),
        (account.id, account.name, account.role, account.created_at, sums.granted, sums.spent, sums.balance, sums.held),
    )
    print_keys(keys)


@command.command(help="Change the name or role of an account.")
@click.argument("id")
@click.option("--name", help="Name to display.")
@_role_option(None)
@json_option
@config_option
def change(path: Path | None, id: str, name: str | None, role: str | None, as_json: bool) -> None:
    if name is None and role is None:
        raise click.UsageError("nothing to change; name at least one of --name, --role")

    async def work(books: Administration) -> accounts.AccountView:
        await accounts.change_account(books, id, name, role)
        return await accounts.account_view(books, id)

    view = with_books(path, work)
    if as_json:
        print_json(_plain(view))
    else:
        click.echo(f"account {id} is {view.account.name}, role {view.account.role}")


@command.command(
    short_help="Print a link that signs in to the dashboard.",
    help="Print a link that signs in to the dashboard, once and within 15 minutes. The gateway must be running.",
)
@click.option("--account", default="default", show_default=True, help="Account to sign in as.")
@json_option
@config_option
def link(path: Path | None, account: str, as_json: bool) -> None:
    async def work(books: Administration) -> str:
        if type(books) is Ledger:  # a shared ledger reaches the running gateway itself
            fail("no gateway is running here, so nobody would know the link; start it with: tollgate serve")
        return await books.create_link(account)

    address = with_books(path, work)
    if as_json:
        print_json({"account_id": account, "url": address})
    else:
        click.echo(address)
        click.echo("it works once, within 15 minutes", err=True)


@command.command(
    short_help="Set the dashboard password of an account.",
    help="Set the dashboard password of an account: asked for twice, or one line from stdin. Ends its sessions.",
)
@click.argument("id")
@click.option("--stdin", is_flag=True, help="Read the password from stdin instead of asking.")
@click.option("--remove", is_flag=True, help="Take the password away; links still sign in.")
@config_option
def password(path: Path | None, id: str, stdin: bool, remove: bool) -> None:
    secret = None
    if stdin and not remove:
        secret = sys.stdin.readline().rstrip("\r\n")
    elif not remove:
        if not at_terminal():
            fail("there is no terminal to ask for the password at; to read it from stdin: --stdin")
        with_books(path, lambda books: books.get_account(id))
        secret = click.prompt(f"New password of {id}", hide_input=True, confirmation_prompt=True, err=True)
    with_books(path, lambda books: accounts.set_password(books, id, secret))
    click.echo(f"account {id} has {'no password any more' if remove else 'a new password'}")


def at_terminal() -> bool:
    """Whether there is a terminal, so that a person can be asked."""
    return sys.stdin.isatty()


def _plain(view: Any) -> dict[str, Any]:
    account, sums = view.account, view.sums
    return {
        "id": account.id,
        "name": account.name,
        "role": account.role,
        "created_at": account.created_at,
        **plain_sums(sums),
        "active_keys": view.active_keys,
    }
