"""Administration of accounts, keys and credits, shared by the commands and the dashboard.

Defines the input forms and the views that are shown; `notations` parses single fields. The ledger makes the changes, in
this process or in the running gateway (`ledger.admin_socket.open_books`).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from tollgate.errors import BadRequest
from tollgate.ledger import CAP_WINDOWS, DEFAULT_ACCOUNT, Account, AccountSums, Grant, KeyRecord
from tollgate.ledger.administration import Administration, grantable
from tollgate.money import decimal_text
from tollgate.notations import QUOTED, read_addresses, read_amount, read_endpoints, read_expiry, read_models, read_rate
from tollgate.passwords import hash_password, removed_password
from tollgate.process.concurrency import in_turns

_ACCOUNT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class KeyForm:
    """The settings of a new or changed key, as entered. An empty text means the default: no limit."""

    name: str = ""
    models: str = ""
    expires: str = ""
    cap: str = ""
    window: str = "total"
    rpm: str = ""
    tpm: str = ""
    strict: bool = False
    concurrent: str = ""
    endpoints: str = ""
    addresses: str = ""


_FIELDS = {
    "models": "allowed_models",
    "expires": "expires_at",
    "cap": "spend_cap",
    "window": "cap_window",
    "concurrent": "max_concurrent",
    "addresses": "allowed_addresses",
}
"""Fields of a `KeyForm` with another name in the key."""


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key with its state. `spent` is the sum that counts towards its spend cap."""

    key: KeyRecord
    spent: Decimal
    state: Literal["active", "expired", "revoked"]

    @property
    def models(self) -> str:
        """The models that it may use, as `read_models` reads them."""
        allowed = self.key.allowed_models
        return "all" if allowed is None else ", ".join(allowed) or "none"


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account with its sums and its number of active keys."""

    account: Account
    sums: AccountSums
    active_keys: int


async def initial_account(books: Administration) -> str:
    """The account to sign in to after a start: `default` if it is an operator, else the oldest operator, else the
    oldest account."""
    found = await books.list_accounts()
    operators = [account.id for account in found if account.role == "operator"]
    return DEFAULT_ACCOUNT if DEFAULT_ACCOUNT in operators else (operators or [account.id for account in found])[0]


async def create_account(
    books: Administration, id: str, name: str = "", role: str = "user", credits: str = ""
) -> Account:
    """Create an account, with `credits` if given. Raises `BadRequest` for an invalid field; then nothing is created.
    The id is a readable word, because every usage row has it."""
    amount = grantable(read_amount(credits, "credits"), "credits") if credits.strip() else None
    if amount is not None and amount <= 0:
        raise BadRequest(f"credits is {decimal_text(amount)}, wanted more than 0, or nothing", "credits")
    if not _ACCOUNT_ID.match(id):
        raise BadRequest(
            f'account is "{id[:QUOTED]}", wanted lower-case letters, digits, dot, dash or underscore, at most 63', "id"
        )
    _check_role(role)
    account = await books.create_account(id, _named(name), role)
    if amount is not None:
        await books.grant(id, amount, "at creation")
    return account


async def change_account(
    books: Administration, account_id: str, name: str | None = None, role: str | None = None
) -> Account:
    """Change an account's name or role; None keeps the present one. Raises `BadRequest` for the only operator: without
    one, nobody could administer accounts."""
    if role is not None:
        _check_role(role)
    if role == "user" and [each.id for each in await books.list_accounts() if each.role == "operator"] == [account_id]:
        raise BadRequest(f'account "{account_id}" is the only operator; make another account one first', "role")
    changes = {"name": _named(name) if name is not None else None, "role": role}
    return await books.update_account(
        account_id, **{field: value for field, value in changes.items() if value is not None}
    )


async def set_password(books: Administration, account_id: str, password: str | None) -> Account:
    """Set the dashboard password; None removes it. All sessions of the account end. Raises `BadRequest` if its length
    is not allowed."""
    try:
        hashed = await asyncio.to_thread(hash_password, password) if password is not None else removed_password()
    except ValueError as error:
        raise BadRequest(str(error), "password") from None
    return await books.update_account(account_id, password_hash=hashed)


async def account_view(books: Administration, account_id: str) -> AccountView:
    """One account with its sums; raises `NotFound`."""
    account, now = await books.get_account(account_id), datetime.now(UTC)
    active = sum([state_of(key, now) == "active" async for key in in_turns(await books.list_keys(account_id))])
    return AccountView(account, await books.sums(account_id), active)


async def account_views(books: Administration) -> list[AccountView]:
    """All accounts with their sums. Takes the same few queries for any number of accounts."""
    now = datetime.now(UTC)
    keys = in_turns(await books.list_keys())
    active = Counter([key.account_id async for key in keys if state_of(key, now) == "active"])
    sums = {each.account_id: each async for each in in_turns(await books.list_sums())}
    return [
        AccountView(account, sums[account.id], active[account.id])
        async for account in in_turns(await books.list_accounts())
        if account.id in sums  # else it was created between the queries
    ]


async def create_key(books: Administration, account_id: str, form: KeyForm) -> tuple[KeyRecord, str]:
    """Create a key. Returns it and its secret, which can be shown only now."""
    return await books.create_key(account_id, _named(form.name), **_key_fields(form))


async def change_key(books: Administration, key_id: str, form: KeyForm, only: Collection[str] = ()) -> KeyRecord:
    """Apply `form` to a key, or `only` these fields of it. The secret stays the same."""
    fields = {"name": _named(form.name), **_key_fields(form)}
    kept = {_FIELDS.get(name, name) for name in only} or fields.keys()
    return await books.update_key(key_id, **{name: value for name, value in fields.items() if name in kept})


async def find_key(books: Administration, hint: str, account_id: str | None = None) -> KeyRecord:
    """The key with this id, name or last four characters. If several match, the only one that is not revoked. Raises
    `BadRequest` if that is ambiguous too, `NotFound` if none matches."""
    keys = await books.list_keys(account_id)
    for named in ("id", "name", "last_four"):
        found = [key for key in keys if getattr(key, named) == hint]
        found = [key for key in found if not key.revoked] or found
        if len(found) == 1:
            return found[0]
        if found:
            raise BadRequest(
                f'"{hint}" fits {len(found)} keys: {", ".join(key.id for key in found)}; name one by its id', "key"
            )
    return await books.get_key(hint)


async def key_views(books: Administration, account_id: str | None = None) -> list[KeyView]:
    """The keys with their state and their spending."""
    now, spent = datetime.now(UTC), await books.keys_spent(account_id)
    return [
        KeyView(key, spent[key.id], state_of(key, now))
        async for key in in_turns(await books.list_keys(account_id))
        if key.id in spent  # else it was created between the queries
    ]


def state_of(key: KeyRecord, now: datetime) -> Literal["active", "expired", "revoked"]:
    """The state of a key at `now`."""
    if key.revoked:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "active"


async def grant(books: Administration, account_id: str, amount: str, note: str = "") -> Grant:
    """Grant credits; a negative amount takes them back."""
    await books.get_account(account_id)
    return await books.grant(account_id, read_amount(amount), note[:500])


def _key_fields(form: KeyForm) -> dict[str, Any]:
    if form.window not in CAP_WINDOWS:
        raise BadRequest(f'window is "{form.window[:QUOTED]}", wanted one of {", ".join(CAP_WINDOWS)}', "window")
    return {
        "allowed_models": read_models(form.models),
        "expires_at": read_expiry(form.expires),
        "spend_cap": read_amount(form.cap, "cap") if form.cap.strip() else None,
        "cap_window": form.window,
        "rpm": read_rate(form.rpm, "rpm"),
        "tpm": read_rate(form.tpm, "tpm"),
        "max_concurrent": read_rate(form.concurrent, "concurrent"),
        "endpoints": read_endpoints(form.endpoints),
        "allowed_addresses": read_addresses(form.addresses),
        "strict": form.strict,
    }


def _check_role(role: str) -> None:
    if role not in ("user", "operator"):
        raise BadRequest(f'role is "{role[:QUOTED]}", wanted user or operator', "role")


def _named(name: str) -> str:
    cleaned = " ".join(name.split())
    if len(cleaned) > _LONGEST_NAME:
        raise BadRequest(f"name has {len(cleaned)} characters, wanted at most {_LONGEST_NAME}", "name")
    return cleaned
