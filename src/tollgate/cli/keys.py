"""`tollgate keys`: the keys of accounts. A secret is printed once, at creation, on stdout and nowhere else."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tollgate import accounts
from tollgate.accounts import KeyView
from tollgate.cli.books import config_option, confirm_or_stop, json_option, print_json, print_views, with_books
from tollgate.config.build import load_gateway
from tollgate.errors import BadRequest, ConfigErrors, NotFound
from tollgate.ledger import KeyRecord
from tollgate.ledger.administration import Administration
from tollgate.money import decimal_text

_LIMITS = {
    "expires": "never",
    "cap": "none",
    "rpm": "none",
    "tpm": "none",
    "concurrent": "none",
    "endpoints": "all",
    "addresses": "all",
}
"""Options of a change, with the word that removes the limit. An empty text does not, because it may be an empty
variable of a script."""


def _named_list(_context: click.Context, option: click.Parameter, text: str | None) -> str:
    """Callback of an option that is a list. An empty one is refused: a script with an empty variable means none, and
    would get all."""
    if text is not None and not text.replace(",", " ").strip():
        wanted = (
            "names no model; leave it out (or say all) to allow every model, none to allow no model"
            if option.name == "models"
            else f"names none of its {option.name}; leave it out, or say all, for no limit"
        )
        raise click.BadParameter(f'"{text}" {wanted}')
    return text or ""


def _limit(_context: click.Context, _option: click.Parameter, text: str | None) -> str:
    """Callback of an option that limits a new key. An empty one is refused for the same reason."""
    if text is not None and not text.strip():
        raise click.BadParameter("it is empty; leave it out for no limit")
    return text or ""


@click.group(help="Create, list, change and revoke keys.")
def command() -> None:
    pass


@command.command("list", help="List keys with their limits, state and spending.")
@click.option("--account", help="Only this account's.")
@json_option
@config_option
def list_(path: Path | None, account: str | None, as_json: bool) -> None:
    async def work(books: Administration) -> list[KeyView]:
        if account is not None:
            await books.get_account(account)
        return await accounts.key_views(books, account)

    views = with_books(path, work)
    if as_json:
        print_json([plain_key(view) for view in views])
    else:
        print_keys(views)


@command.command(help="Create a key and print its secret, this once.")
@click.option("--account", default="default", show_default=True, help="Account that pays.")
@click.option("--name", default="", help="What or who it is for.")
@click.option(
    "--expires", callback=_limit, help="30d (also m, h, w, y), a last day such as 2027-01-31 (UTC), or never."
)
@click.option(
    "--models",
    callback=_named_list,
    help='Models it may use, globs separated by commas, "!" in front of those it may not; all (the default) or none.',
)
@click.option(
    "--cap",
    callback=_limit,
    metavar="USD",
    help="Credits it may spend per window; the request that reaches them is still answered.",
)
@click.option(
    "--window",
    type=click.Choice(["day", "week", "month", "total"]),
    default="total",
    show_default=True,
    help="When the cap starts anew (UTC; weeks from Monday).",
)
@click.option("--rpm", callback=_limit, metavar="N", help="Most requests a minute.")
@click.option("--tpm", callback=_limit, metavar="N", help="Most tokens a minute.")
@click.option("--concurrent", callback=_limit, metavar="N", help="Most requests at once, at each gateway.")
@click.option(
    "--endpoints",
    callback=_named_list,
    help="What it may be used for, separated by commas: chat, responses, messages (with count_tokens), embeddings, "
    "images, mcp; all is the default.",
)
@click.option(
    "--addresses",
    callback=_named_list,
    help="From where it may be used, addresses and networks separated by commas; all is the default.",
)
@click.option("--strict", is_flag=True, help="Refuse requests that a conversion would lose something of.")
@json_option
@config_option
def create(path: Path | None, account: str, as_json: bool, **form: Any) -> None:
    async def work(books: Administration) -> tuple[KeyRecord, str]:
        try:
            await books.get_account(account)
        except NotFound as error:
            raise NotFound(
                f"{error.message}: make it with `tollgate accounts create {account}`, or name another with --account"
            ) from None
        return await accounts.create_key(books, account, accounts.KeyForm(**form))

    key, secret = with_books(path, work)
    _warn_of_no_models(path, key.allowed_models)
    if as_json:
        print_json(
            {"id": key.id, "account_id": key.account_id, "name": key.name, "key": secret, "expires_at": key.expires_at}
        )
        return
    click.echo(secret)
    click.echo(f"key {key.id} of account {key.account_id}; this is the only time it is shown", err=True)


@command.command(
    help="Change a key's name or limits; its secret and what is not named stay. KEY is its id, its name or its last "
    "four characters."
)
@click.argument("key")
@click.option("--account", help="Look among this account's keys only.")
@click.option("--name", help="What or who it is for.")
@click.option("--expires", help="As for create; never ends the limit.")
@click.option("--models", callback=_named_list, help="As for create; all ends the limit.")
@click.option("--cap", metavar="USD", help="As for create; none ends the limit.")
@click.option("--window", type=click.Choice(["day", "week", "month", "total"]), help="When the cap starts anew.")
@click.option("--rpm", metavar="N", help="Most requests a minute; none ends the limit.")
@click.option("--tpm", metavar="N", help="Most tokens a minute; none ends the limit.")
@click.option("--concurrent", metavar="N", help="Most requests at once, at each gateway; none ends the limit.")
@click.option("--endpoints", help="As for create; all ends the limit.")
@click.option("--addresses", help="As for create; all ends the limit.")
@click.option("--strict/--no-strict", default=None, help="Refuse requests that a conversion would lose something of.")
@json_option
@config_option
def change(path: Path | None, key: str, account: str | None, as_json: bool, **form: Any) -> None:
    changes = {name: value for name, value in form.items() if value is not None and (name, value) != ("models", "")}
    if not changes:
        raise click.UsageError(
            "nothing to change; name at least one of --name, --expires, --models, --cap, --window, --rpm, --tpm, "
            "--concurrent, --endpoints, --addresses, --strict"
        )
    if empty := [name for name in _LIMITS if name in changes and not changes[name].replace(",", " ").strip()]:
        raise click.UsageError(f"--{empty[0]} is empty; say {_LIMITS[empty[0]]} to end the limit")
    typed: dict[str, Any] = {
        name: "" if name in _LIMITS and value.strip().lower() == _LIMITS[name] else value
        for name, value in changes.items()
    }

    async def work(books: Administration) -> KeyView:
        found = await accounts.find_key(books, key, account)
        if found.revoked:
            raise BadRequest(f"key {found.id} is revoked, which is for good; make another one")
        await accounts.change_key(books, found.id, accounts.KeyForm(**typed), only=typed.keys())
        return next(view for view in await accounts.key_views(books, found.account_id) if view.key.id == found.id)

    view = with_books(path, work)
    if "models" in typed:
        _warn_of_no_models(path, view.key.allowed_models)
    if as_json:
        print_json(plain_key(view))
    else:
        print_keys([view])


@command.command(help="End a key for good. KEY is its id, its name or its last four characters.")
@click.argument("key")
@click.option("--account", help="Look among this account's keys only.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@config_option
def revoke(path: Path | None, key: str, account: str | None, yes: bool, as_json: bool) -> None:
    found = with_books(path, lambda books: accounts.find_key(books, key, account))
    confirm_or_stop(f'Revoke key {found.id} "{found.name}" (...{found.last_four}) of account {found.account_id}?', yes)
    revoked = with_books(path, lambda books: books.revoke_key(found.id))
    if as_json:
        print_json(
            {"id": revoked.id, "account_id": revoked.account_id, "name": revoked.name, "revoked": revoked.revoked}
        )
    else:
        click.echo(f"key {revoked.id} is revoked")


def _warn_of_no_models(path: Path | None, globs: Sequence[str] | None) -> None:
    """Warn on stderr of a key's globs that match nothing in the configuration: an alias, a mistake, or a provider
    that is off."""
    if not globs:
        return
    try:
        providers = load_gateway(path, environ=os.environ).gateway.providers.values()
    except ConfigErrors:
        return  # `tollgate check` reports the mistake; the key is made anyway
    on = [model.id for provider in providers if not provider.off for model in provider.models]
    off = [model.id for provider in providers if provider.off for model in provider.models]
    listing = any(provider.discover is not None and not provider.off for provider in providers)
    for glob in globs:
        wanted = glob.removeprefix("!")
        if fnmatch.filter(on, wanted):
            continue
        found = "only models of providers that are off" if fnmatch.filter(off, wanted) else "no model"
        later = ", unless a provider's own list has one" if listing else ""
        click.echo(
            f"warning: {glob} fits {found}{later}; wanted are whole ids such as sandbox/echo, or a * in them (aliases "
            "do not count)",
            err=True,
        )


def print_keys(views: list[KeyView]) -> None:
    """Keys as a table, with the last four characters of their secrets. Rare settings have a column only if one of
    these keys has them."""
    columns: dict[str, str | Callable[[KeyView], object]] = {
        "key": "key.id",
        "ends in": "key.last_four",
        "account": "key.account_id",
        "name": "key.name",
        "state": "state",
        "expires": "key.expires_at",
        "models": "models",
        "spent": "spent",
        "cap": _cap,
        "rpm": "key.rpm",
        "tpm": "key.tpm",
    }
    if any(view.key.restricted for view in views):
        columns |= {
            "at once": "key.max_concurrent",
            "endpoints": lambda view: ", ".join(view.key.endpoints or ("all",)),
            "addresses": lambda view: ", ".join(view.key.allowed_addresses or ("all",)),
        }
    if any(view.key.strict for view in views):
        columns["strict"] = "key.strict"
    columns["last used"] = "key.last_used"
    print_views(columns, views, numbers=frozenset({"spent", "cap", "rpm", "tpm", "at once"}))


def _cap(view: KeyView) -> str | None:
    cap = view.key.spend_cap
    return None if cap is None else f"{decimal_text(cap)}/{view.key.cap_window}"


_JSON_FIELDS = (
    *("id", "account_id", "name", "last_four", "state", "expires_at", "allowed_models", "spent", "spend_cap"),
    *("cap_window", "rpm", "tpm", "max_concurrent", "endpoints", "allowed_addresses", "strict"),
    *("created_at", "last_used"),
)


def plain_key(view: KeyView) -> dict[str, Any]:
    """A key as JSON has it."""
    seen = {"state": view.state, "spent": view.spent}
    return {name: seen[name] if name in seen else getattr(view.key, name) for name in _JSON_FIELDS}
