"""`tollgate credits`: grant credits and list grants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tollgate import accounts
from tollgate.cli.books import config_option, json_option, print_json, print_views, with_books
from tollgate.ledger.administration import Administration
from tollgate.ledger.records import AccountSums
from tollgate.money import decimal_text


@click.group(help="Grant credits and show balances.")
def command() -> None:
    pass


@command.command(
    help="Give an account credits (USD); a negative AMOUNT takes them back.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("account")
@click.argument("amount")
@click.option("--note", default="", help="Why; kept with the grant.")
@json_option
@config_option
def grant(path: Path | None, account: str, amount: str, note: str, as_json: bool) -> None:
    async def work(books: Administration) -> tuple[Any, Any]:
        made = await accounts.grant(books, account, amount, note)
        return made, await books.sums(account)

    made, sums = with_books(path, work)
    if as_json:
        print_json(
            {"id": made.id, "account_id": account, "amount": made.amount, "note": made.note, "balance": sums.balance}
        )
    else:
        click.echo(f"{account}: {decimal_text(made.amount)} credits granted, balance {decimal_text(sums.balance)}")


@command.command(help="Show an account's credits: grants, spending, balance. Without ACCOUNT, all balances.")
@click.argument("account", required=False)
@json_option
@config_option
def show(path: Path | None, account: str | None, as_json: bool) -> None:
    async def work(books: Administration) -> tuple[list[Any], list[Any]]:
        if account is None:
            return await books.list_sums(), []
        return [await books.sums(account)], await books.list_grants(account)

    sums, grants = with_books(path, work)
    if as_json:
        shown = [{"account_id": each.account_id, **plain_sums(each)} for each in sums]
        given = [
            {"id": each.id, "amount": each.amount, "note": each.note, "created_at": each.created_at} for each in grants
        ]
        print_json(shown if account is None else shown[0] | {"grants": given})
        return
    amounts = ("granted", "spent", "balance", "held")
    print_views({"account": "account_id", **{name: name for name in amounts}}, sums, numbers=frozenset(amounts))
    if grants:
        columns = {"granted on": "created_at", "amount": "amount", "note": "note"}
        print_views(columns, grants, numbers=frozenset({"amount"}))


def plain_sums(sums: AccountSums) -> dict[str, Any]:
    """The credits of an account as `--json` prints them."""
    return {"granted": sums.granted, "spent": sums.spent, "balance": sums.balance, "held": sums.held}
