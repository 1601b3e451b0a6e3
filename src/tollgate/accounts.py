"""Accounts, keys and credits as people handle them: what the commands and the dashboard share.

Owns reading what a person typed (an expiry, a list of models, an amount), the checks on it, and the views they are
shown. The changes themselves are the ledger's: in this process, or in the running gateway
(`ledger.admin_socket.open_books`).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_network
from typing import Any, Literal

from tollgate.errors import BadRequest
from tollgate.ledger import CAP_WINDOWS, DEFAULT_ACCOUNT, KEY_ENDPOINTS, Account, AccountSums, Grant, KeyRecord
from tollgate.ledger.administration import Administration
from tollgate.money import PLACES, decimal_of, decimal_text, round_cost
from tollgate.passwords import hash_password

_ACCOUNT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
_SPAN = re.compile(r"([1-9][0-9]{0,4})([mhdwy])\Z")
_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "y": timedelta(days=365),
}
_LONGEST_NAME = 100
_MOST_GLOBS, _LONGEST_GLOB = 500, 200
"""Every request of a key is held against its list: 140,000 entries, which a form can carry,
hold the event loop up for five seconds."""
_MOST_PER_MINUTE = 1_000_000_000
_MOST_ADDRESSES = 500
_MAPPED_BITS = 96
"""What of an address in v6 form comes before the v4 one (RFC 4291, 2.5.5.2)."""


@dataclass(frozen=True, slots=True)
class KeyForm:
    """What a new or changed key shall be, as typed; empty text means the default, which is no limit."""

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
"""Fields of a `KeyForm` that have another name in the key."""


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key with what a list shows beside it. `spent` is what counts against its cap."""

    key: KeyRecord
    spent: Decimal
    state: Literal["active", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account with its sums and how many of its keys work."""

    account: Account
    sums: AccountSums
    active_keys: int


async def starter(books: Administration) -> str:
    """The account of whoever starts the gateway: an operator, `default` before others;
    the oldest where there is none."""
    found = await books.list_accounts()
    operators = [account.id for account in found if account.role == "operator"]
    return DEFAULT_ACCOUNT if DEFAULT_ACCOUNT in operators else (operators or [account.id for account in found])[0]


def read_expiry(text: str, now: datetime | None = None) -> datetime | None:
    """When a key ends: "30d" (m, h, d, w, y from now), "2027-01-31" (that day is its last, UTC), an ISO time,
    or "never"."""
    now = now or datetime.now(UTC)
    entered = text.strip().lower()
    if entered in ("", "never"):
        return None
    try:
        if (span := read_span(entered)) is not None:
            return (now + span).replace(microsecond=0)
        moment = datetime.fromisoformat(text.strip())
        if len(entered) == len("2027-01-31"):
            moment += timedelta(days=1)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise BadRequest(
            f'expiry is "{text}", which is after the year 9999; wanted an earlier one, or never', "expires"
        ) from None
    except ValueError:
        raise BadRequest(
            f'expiry is "{text}", wanted a span such as 30d, a date such as 2027-01-31, or never', "expires"
        ) from None
    if moment <= now:
        raise BadRequest(f'expiry is "{text}", which is over already', "expires")
    return moment


def read_span(text: str) -> timedelta | None:
    """A length of time such as "30d" (m, h, d, w, y), or None when it is written otherwise."""
    span = _SPAN.match(text.strip().lower())
    return int(span[1]) * _UNITS[span[2]] if span else None


def read_models(text: str) -> tuple[str, ...] | None:
    """Which models a key may use: "acme/*, !acme/old*" (globs; "!": not these); "" or "all" is every model,
    "none" is none."""
    entered = text.strip()
    if entered.lower() in ("", "all", "*"):
        return None
    if entered.lower() == "none":
        return ()
    parts = tuple(part for part in (each.strip() for each in re.split(r"[,\s]+", entered)) if part)
    if len(parts) > _MOST_GLOBS or any(len(part) > _LONGEST_GLOB for part in parts):
        raise BadRequest(
            f"models has {len(parts)} entries, wanted at most {_MOST_GLOBS} of at most {_LONGEST_GLOB} characters",
            "models",
        )
    if "!" in parts:
        raise BadRequest(
            f'models is "{entered[:100]}", wanted what is left out right after its !, such as !acme/old', "models"
        )
    return parts


def read_endpoints(text: str) -> tuple[str, ...] | None:
    """Which endpoints a key may be used for, such as "chat, embeddings"; "" or "all" is every one."""
    entered = _listed(text, "endpoints")
    if unknown := [each for each in entered if each not in KEY_ENDPOINTS]:
        raise BadRequest(
            f'endpoints has "{unknown[0][:100]}", wanted all, or some of {", ".join(KEY_ENDPOINTS)}', "endpoints"
        )
    return tuple(name for name in KEY_ENDPOINTS if name in entered) or None


def read_addresses(text: str) -> tuple[str, ...] | None:
    """From which addresses a key may be used: "203.0.113.7, 10.0.0.0/8, 2001:db8::/32"; "" or "all" is from any.

    A v4 address or network in v6 form is the v4 one.
    """
    entered = _listed(text, "addresses")
    if len(entered) > _MOST_ADDRESSES:
        raise BadRequest(f"addresses has {len(entered)} entries, wanted at most {_MOST_ADDRESSES}", "addresses")
    return tuple(dict.fromkeys(_network(each) for each in entered)) or None


def _network(entered: str) -> str:
    """An address or network as it is kept: "::ffff:10.0.0.0/104" -> "10.0.0.0/8", "192.0.2.1/32" -> "192.0.2.1"."""
    try:
        network = ip_network(entered)
    except ValueError as error:
        of = f"; that network is {ip_network(entered, strict=False)}" if "host bits" in str(error) else ""
        raise BadRequest(
            f'addresses has "{entered[:100]}", wanted addresses and networks like 192.0.2.1 or 10.0.0.0/8{of}',
            "addresses",
        ) from None
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= _MAPPED_BITS:
        network = ip_network((mapped, network.prefixlen - _MAPPED_BITS))
    return str(network.network_address if network.prefixlen == network.max_prefixlen else network)


def _listed(text: str, what: str) -> list[str]:
    """The words between commas or blanks; none for "all" and for an empty text. Commas alone are refused: who writes
    them wanted some, and would get everything."""
    entered = text.strip().lower()
    if entered in ("", "all", "*"):
        return []
    listed = [each for each in re.split(r"[,\s]+", entered) if each]
    if not listed:
        raise BadRequest(f'{what} is "{entered[:100]}", wanted a list, or all', what)
    return listed


def read_amount(text: str, what: str = "amount") -> Decimal:
    """An exact amount of credits; a leading $ is forgiven."""
    try:
        return decimal_of(text.strip().removeprefix("$").replace("_", ""))
    except ValueError as error:
        raise BadRequest(f"{what}: {error}", what) from None


def kept_amount(amount: Decimal, what: str = "amount") -> Decimal:
    """The amount itself; refuses one with more decimal places than are kept, because the rest would be rounded away."""
    if round_cost(amount) != amount:
        given = decimal_text(amount)
        places = len(given.partition(".")[2])
        raise BadRequest(
            f"{what} is {given}, which has {places} decimal places, wanted at most the {PLACES} that are kept", what
        )
    return amount


def read_rate(text: str, what: str) -> int | None:
    """A whole number (of a minute, or of what runs at once), or no limit when empty."""
    entered = text.strip().replace("_", "")
    if not entered:
        return None
    if not entered.isascii() or not entered.isdigit() or not 0 < int(entered) <= _MOST_PER_MINUTE:
        raise BadRequest(f'{what} is "{text}", wanted a whole number from 1 to {_MOST_PER_MINUTE:,}', what)
    return int(entered)


async def create_account(
    books: Administration, id: str, name: str = "", role: str = "user", credits: str = ""
) -> Account:
    """A new account, with credits to begin with if some are named; a wrong amount leaves no account. Its id is a
    readable word, because every usage row shows it."""
    amount = kept_amount(read_amount(credits, "credits"), "credits") if credits.strip() else None
    if amount is not None and amount <= 0:
        raise BadRequest(f"credits is {decimal_text(amount)}, wanted more than 0, or nothing", "credits")
    if not _ACCOUNT_ID.match(id):
        raise BadRequest(
            f'account is "{id}", wanted lower-case letters, digits, dot, dash or underscore, at most 63', "id"
        )
    _check_role(role)
    account = await books.create_account(id, _named(name), role)
    if amount is not None:
        await books.grant(id, amount, "at creation")
    return account


async def change_account(
    books: Administration, account_id: str, name: str | None = None, role: str | None = None
) -> Account:
    """Give an account another name or role; None keeps what it has. The only operator stays one:
    somebody must see to the others."""
    if role is not None:
        _check_role(role)
    if role == "user" and [each.id for each in await books.list_accounts() if each.role == "operator"] == [account_id]:
        raise BadRequest(f'account "{account_id}" is the only operator; make another account one first', "role")
    changes = {"name": _named(name) if name is not None else None, "role": role}
    return await books.update_account(
        account_id, **{field: value for field, value in changes.items() if value is not None}
    )


async def set_password(books: Administration, account_id: str, password: str | None) -> Account:
    """The password of the dashboard from now on; None takes it away.
    Everybody signed in to the account is signed out."""
    try:
        hashed = await asyncio.to_thread(hash_password, password) if password is not None else ""
    except ValueError as error:
        raise BadRequest(str(error), "password") from None
    return await books.update_account(account_id, password_hash=hashed)


async def account_view(books: Administration, account_id: str) -> AccountView:
    """One account with its sums; raises `NotFound`."""
    account, now = await books.get_account(account_id), datetime.now(UTC)
    active = sum(state_of(key, now) == "active" for key in await books.list_keys(account_id))
    return AccountView(account, await books.sums(account_id), active)


async def account_views(books: Administration) -> list[AccountView]:
    """All accounts with their sums; asked for together, since there may be very many."""
    now = datetime.now(UTC)
    active = Counter(key.account_id for key in await books.list_keys() if state_of(key, now) == "active")
    sums = {each.account_id: each for each in await books.list_sums()}
    return [
        AccountView(account, sums[account.id], active[account.id])
        for account in await books.list_accounts()
        if account.id in sums  # else it came while we asked
    ]


async def create_key(books: Administration, account_id: str, form: KeyForm) -> tuple[KeyRecord, str]:
    """A new key and its secret, to be shown this once."""
    return await books.create_key(account_id, _named(form.name), **_key_fields(form))


async def change_key(books: Administration, key_id: str, form: KeyForm, only: Collection[str] = ()) -> KeyRecord:
    """Give an existing key what `form` says, or `only` these fields of it; the secret stays."""
    fields = {"name": _named(form.name), **_key_fields(form)}
    kept = {_FIELDS.get(name, name) for name in only} or fields.keys()
    return await books.update_key(key_id, **{name: value for name, value in fields.items() if name in kept})


async def find_key(books: Administration, hint: str, account_id: str | None = None) -> KeyRecord:
    """The key meant by an id, a name or its last four characters: of several that fit the one that is not revoked.
    Refuses when there are more."""
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
    """Keys with their state and what they spent."""
    now, spent = datetime.now(UTC), await books.keys_spent(account_id)
    return [
        KeyView(key, spent[key.id], state_of(key, now))
        for key in await books.list_keys(account_id)
        if key.id in spent  # else it came while we asked
    ]


def state_of(key: KeyRecord, now: datetime) -> Literal["active", "expired", "revoked"]:
    """Whether the key works."""
    if key.revoked:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "active"


async def grant(books: Administration, account_id: str, amount: str, note: str = "") -> Grant:
    """Give credits (or take them back, with a negative amount)."""
    credits = read_amount(amount)
    await books.get_account(account_id)
    return await books.grant(account_id, kept_amount(credits), note[:500])


def _key_fields(form: KeyForm) -> dict[str, Any]:
    if form.window not in CAP_WINDOWS:
        raise BadRequest(f'window is "{form.window}", wanted one of {", ".join(CAP_WINDOWS)}', "window")
    cap = kept_amount(read_amount(form.cap, "cap"), "cap") if form.cap.strip() else None
    if cap is not None and cap < 0:
        raise BadRequest(f"cap is {cap}, wanted 0 or more", "cap")
    return {
        "allowed_models": read_models(form.models),
        "expires_at": read_expiry(form.expires),
        "spend_cap": cap,
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
        raise BadRequest(f'role is "{role}", wanted user or operator', "role")


def _named(name: str) -> str:
    cleaned = " ".join(name.split())
    if len(cleaned) > _LONGEST_NAME:
        raise BadRequest(f"name has {len(cleaned)} characters, wanted at most {_LONGEST_NAME}", "name")
    return cleaned
