"""Administration of the ledger: accounts, keys, grants and sign-in links. Every change is an event, durable on return.

`admin_socket.py` offers the same methods to other processes. What people type is read by `tollgate.notations`.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

from tollgate.errors import BadRequest, NotFound, Unavailable
from tollgate.ledger import keys
from tollgate.ledger.interface import Backend, EventKind
from tollgate.ledger.memory import Memory
from tollgate.ledger.records import Account, AccountSums, Grant, KeyRecord, encode
from tollgate.ledger.sign_in_links import SignInLinks
from tollgate.money import decimal_text, round_cost
from tollgate.process.concurrency import in_turns

_MOST_CREDITS = Decimal(10) ** 12
"""A larger amount is a typing error, and sums could exceed exact arithmetic. The store holds amounts up to 10^26: one
key with a larger cap would keep it from storing anything."""
_FIXED = frozenset({"id", "account_id", "last_four", "created_at", "last_used"})


class Administration:
    """What operators do with a ledger, a `Ledger` in this process or a `RemoteLedger` that asks the running gateway."""

    def __init__(self, memory: Memory, backend: Backend) -> None:
        self._memory = memory
        self._backend = backend
        self.links = SignInLinks()

    async def create_account(self, id: str, name: str = "", role: str = "user") -> Account:
        """A new account without credits."""
        self._require_writable()
        if id in self._memory.accounts:
            raise account_exists(id)
        account = Account(id=id, name=name or id, role=role)  # type: ignore[arg-type]
        await self._add_account(account)
        return account

    async def update_account(self, account_id: str, **changes: Any) -> Account:
        """Change name, role or password_hash."""
        _check_names(changes, {"name", "role", "password_hash"})
        return await self._change_account(await self.get_account(account_id), changes)

    async def list_accounts(self) -> list[Account]:
        """All accounts, oldest first."""
        return list(self._memory.accounts.values())

    async def get_account(self, account_id: str) -> Account:
        """One account; raises `NotFound`."""
        account = self._memory.accounts.get(account_id)
        if account is None:
            raise NotFound(f'no account "{account_id}"')
        return account

    async def create_link(self, account_id: str) -> str:
        """An address that signs in to this process's dashboard as this account, once and within 15 minutes."""
        await self.get_account(account_id)
        if not self.links.address:
            raise BadRequest("this gateway has no dashboard; wanted dashboard: {enabled: true}")
        return self.links.address + await self.links.make(account_id)

    async def sums(self, account_id: str) -> AccountSums:
        """Granted, spent and held credits of an account."""
        await self.get_account(account_id)
        return self._memory.sums(account_id)

    async def list_sums(self) -> list[AccountSums]:
        """The same of all accounts, oldest first."""
        return [self._memory.sums(id) async for id in in_turns([*self._memory.accounts])]

    async def create_key(self, account_id: str, name: str = "", **changes: Any) -> tuple[KeyRecord, str]:
        """A new key and its secret, which cannot be read again. A key has no limits but those in `changes`, named as in
        `update_key`."""
        changes = _key_changes(changes)
        self._require_writable()
        await self.get_account(account_id)
        secret = keys.mint()
        id, last_four = "key_" + secrets.token_hex(6), keys.last_four(secret)
        key = KeyRecord(id=id, account_id=account_id, name=name, last_four=last_four, **changes)
        await self._add_key(key, keys.digest(secret))
        return key, secret

    async def update_key(self, key_id: str, **changes: Any) -> KeyRecord:
        """Change name, allowed_models, expires_at, spend_cap, cap_window, rpm, tpm, strict, max_concurrent, endpoints,
        allowed_addresses or revoked."""
        changes = _key_changes(changes)
        return await self._change_key(await self.get_key(key_id), changes)

    async def revoke_key(self, key_id: str) -> KeyRecord:
        """End a key for good; it stays listed."""
        return await self.update_key(key_id, revoked=True)

    async def get_key(self, key_id: str) -> KeyRecord:
        """One key by id; raises `NotFound`."""
        key = self._memory.keys.get(key_id)
        if key is None:
            raise NotFound(f'no key "{key_id}"')
        return key

    async def list_keys(self, account_id: str | None = None) -> list[KeyRecord]:
        """Keys of one account or of all, oldest first, with `last_used`."""
        used = self._memory.last_used
        return [
            replace(key, last_used=used[key.id]) if key.id in used else key
            async for key in in_turns(self._memory.keys_of(account_id))
        ]

    def known_keys(self, ids: Iterable[str]) -> list[KeyRecord]:
        """Those of these keys that exist, from memory: for pages that show a few of very many."""
        return [key for id in ids if (key := self._memory.keys.get(id)) is not None]

    def keys_of(self, account_id: str) -> list[KeyRecord]:
        """The keys of one account from memory, oldest first, without `last_used`."""
        return self._memory.keys_of(account_id)

    async def keys_spent(self, account_id: str | None = None) -> dict[str, Decimal]:
        """What each key of one account, or of all, spent in its current window (in total, where it has none), by id."""
        return {
            key.id: self._memory.spent_in_window(key.id, key.cap_window)
            async for key in in_turns(self._memory.keys_of(account_id))
        }

    async def grant(self, account_id: str, amount: Decimal, note: str = "") -> Grant:
        """Give credits, or take them back with a negative amount."""
        self._require_writable()
        await self.get_account(account_id)
        amount = grantable(amount)
        grant = Grant(id="grant_" + secrets.token_hex(6), account_id=account_id, amount=amount, note=note)
        await self._add_grant(grant)
        return grant

    async def list_grants(self, account_id: str) -> list[Grant]:
        """All grants of an account, newest first."""
        await self.get_account(account_id)
        return await self._backend.grants(account_id)

    async def settle(self) -> None:
        """Wait until everything so far is stored and published to the usage files."""
        await self._backend.settle()

    def _require_writable(self) -> None:
        """Raises `Unavailable` while nothing can be written: for what is created, which a caller who repeats the call
        would get twice. Changes are not refused: a leaked key must end at once, whatever the disk does."""
        if self._backend.problem:
            raise Unavailable(self._backend.problem)

    async def _until_written(self, kind: EventKind, event: bytes) -> None:
        """Wait until a change that memory has already is on disk. If the disk refuses, the change is not undone: the
        backend tries again."""
        written = self._backend.append(kind, event)
        try:
            await written
        except Unavailable as error:
            raise Unavailable(
                f"{error.message}; the change is made, and lost if this process ends before it can be written: look "
                "whether it is there before you repeat it"
            ) from error

    # ---- how a change is made: in memory at once, then as an event

    async def _add_account(self, account: Account) -> None:
        event = encode(account)
        self._memory.put_account(account)
        await self._until_written("account", event)

    async def _change_account(self, account: Account, changes: Mapping[str, Any]) -> Account:
        changed = replace(account, **changes)
        await self._add_account(changed)
        return changed

    async def _add_key(self, key: KeyRecord, digest: bytes) -> None:
        values = {each.name: getattr(key, each.name) for each in fields(key)}
        event = encode(values | {"digest": digest.hex()})
        self._memory.put_key(key, digest)
        await self._until_written("key", event)

    async def _change_key(self, key: KeyRecord, changes: Mapping[str, Any]) -> KeyRecord:
        changed = replace(key, **changes)
        await self._add_key(changed, self._memory.digests[key.id])
        return changed

    async def _add_grant(self, grant: Grant) -> None:
        event = encode(grant)
        granted = self._memory.granted
        granted[grant.account_id] = granted.get(grant.account_id, Decimal(0)) + grant.amount
        await self._until_written("grant", event)


def grantable(amount: Decimal, what: str = "amount") -> Decimal:
    """The amount as it is stored. Raises `BadRequest` for one that cannot be granted."""
    amount = round_cost(amount)
    if not amount or abs(amount) > _MOST_CREDITS:
        raise BadRequest(
            f"{what} is {decimal_text(amount)}, wanted a non-zero amount of at most {_MOST_CREDITS:f}, to 12 places",
            what,
        )
    return amount


def account_exists(id: str) -> BadRequest:
    """The error for a second account with this id."""
    return BadRequest(f'account "{id}" exists already', "id")


def _key_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """These changes of a key, checked, with tuples for lists."""
    _check_names(changes, {each.name for each in fields(KeyRecord)} - _FIXED)
    cap = changes.get("spend_cap")
    if cap is not None and not 0 <= cap <= _MOST_CREDITS:
        raise BadRequest(f"cap is {decimal_text(cap)}, wanted 0 to {_MOST_CREDITS:f}", "cap")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}


def _check_names(changes: Collection[str], allowed: Collection[str]) -> None:
    unknown = sorted(set(changes) - set(allowed))
    if unknown:
        raise BadRequest(f"{unknown[0]} cannot be changed, wanted one of {', '.join(sorted(allowed))}", unknown[0])
