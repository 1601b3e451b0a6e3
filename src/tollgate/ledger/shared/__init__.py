"""The ledger of several gateways: accounts, keys, money, limits, jobs and usage in one PostgreSQL database (DESIGN
section 6).

`SharedLedger` has the methods of `Ledger`. What must be decided once for all gateways is decided in the database:
holds, limits, charges and the ends of jobs by `rounds`, changes of records by `records`. Memory has what every request
looks up: keys and accounts, which `change_listener` keeps up to date, and the balances that the database last reported.
A balance in memory may be a moment old: it refuses requests that clearly cannot be paid, and the hold decides the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from tollgate.config.settings import Credits, Store
from tollgate.errors import BadRequest, QuotaExhausted, RateLimited
from tollgate.ledger import DEFAULT_ACCOUNT, DEFAULT_CREDITS, Ledger
from tollgate.ledger.limits import MINUTE, UNLIMITED, Limits, Window
from tollgate.ledger.memory import Hold, Memory, cap_days, cap_reached
from tollgate.ledger.records import CAP_WINDOWS, Account, AccountSums, CapWindow, Grant, KeyRecord
from tollgate.ledger.shared.backend import SharedBackend
from tollgate.ledger.shared.jobs import SharedGenerations
from tollgate.ledger.shared.minted_ids import SharedRegister
from tollgate.ledger.shared.round_parts import granted_amount
from tollgate.ledger.shared.sent_forms import SharedForms
from tollgate.ledger.shared.sign_in_links import SharedLinks
from tollgate.ledger.usage_row import UsageRow

__all__ = ["SharedLedger"]

_DASHBOARD = (
    "SELECT dashboard FROM tollgate.instances i WHERE dashboard <> '' ORDER BY NOT EXISTS "
    "(SELECT 1 FROM pg_stat_activity WHERE application_name = left('tollgate ' || i.name, 63)), name LIMIT 1"
)
"""The dashboard's address of one gateway, if possible of one that is connected."""


class SharedLedger(Ledger):
    """See the module, and `Ledger` for what each method does. With `serving` False it is a command's, which only
    changes records and reads."""

    _backend: SharedBackend

    def __init__(self, store: Store, credits: Credits, *, serving: bool = True) -> None:
        memory = Memory(credits)
        backend = SharedBackend(store, memory, serving=serving)
        super().__init__(store, credits, memory=memory, backend=backend)
        self.generations = SharedGenerations(backend, self)
        self._serving = serving
        self.links = SharedLinks(backend.connections)
        self.forms = SharedForms(backend.connections)
        self.register = SharedRegister(backend.connections)
        self.sessions = backend.sessions

    @property
    def closing(self) -> bool:
        """The ledger takes no new work."""
        return bool(self._state)

    async def serve_admin(self) -> None:
        """Nothing to do: commands use the database, and this gateway is notified of their changes."""

    async def ensure_default_account(self, credits: Decimal = DEFAULT_CREDITS) -> str | None:
        try:
            return await super().ensure_default_account(credits)
        except BadRequest:  # another gateway has its first start at the same time
            await self._backend.reread("account", DEFAULT_ACCOUNT)
            return None

    # ---- the hot path

    def require_credits(self, key: KeyRecord) -> None:
        """Checks the balance alone: what a key spent at other gateways only the database knows, and `hold` asks it."""
        self._memory.require_balance(key.account_id)

    async def hold(self, key: KeyRecord, amount: Decimal) -> Hold:
        credits = self._memory.credits
        rounds = self._backend.rounds
        answer = await rounds.hold(
            key.account_id,
            key.id,
            {
                "account": key.account_id,
                "key": key.id,
                "amount": str(min(amount, credits.hold_cap)),
                "minimum": str(credits.minimum),
                "cap": None if key.spend_cap is None else str(key.spend_cap),
                **_days(key.cap_window),
            },
        )
        if "refused" in answer:
            raise QuotaExhausted(cap_reached(key)) if answer["refused"] == "cap" else QuotaExhausted
        amount = granted_amount(answer)
        return Hold(amount, partial(rounds.release, key.account_id, key.id, amount))

    async def admit(self, key: KeyRecord, tokens: int = 0) -> Limits:
        if key.rpm is None and key.tpm is None:
            return UNLIMITED
        answer = await self._backend.rounds.admit(
            key.account_id, {"key": key.id, "rpm": key.rpm, "tpm": key.tpm, "tokens": tokens}
        )
        if "refused" in answer:
            wait, refused = answer["wait"], answer["refused"]
            raise RateLimited(wait, refused, _standing(key, tokens, refused, wait))
        return Limits(_window(key.rpm, answer["requests"]), _window(key.tpm, answer["tokens"]))

    def used_tokens(self, key: KeyRecord, tokens: int, counted: int) -> None:
        tpm = self._memory.keys.get(key.id, key).tpm
        if key.tpm is not None and tpm is not None and tokens != counted:
            self._backend.rounds.correct(key.account_id, {"key": key.id, "tpm": tpm, "more": tokens - counted})

    def _write(self, row: UsageRow, event: bytes) -> asyncio.Future[None]:
        return self._backend.rounds.row(row.account_id, event)

    # ---- administration

    async def create_link(self, account_id: str) -> str:
        """Any gateway accepts the link. A command's points to a gateway that runs with a dashboard."""
        if self._serving:
            await self._backend.connections.rows(
                "UPDATE tollgate.instances SET dashboard = $2 WHERE name = $1", self.store.instance, self.links.address
            )
        else:
            self.links.address = await self._backend.connections.value(_DASHBOARD) or ""
        return await super().create_link(account_id)

    async def sums(self, account_id: str) -> AccountSums:
        await self.get_account(account_id)
        return (await self._backend.records.sums(account_id))[0]

    async def list_sums(self) -> list[AccountSums]:
        found = {each.account_id: each for each in await self._backend.records.sums()}
        return [found[id] for id in self._memory.accounts if id in found]

    async def list_keys(self, account_id: str | None = None) -> list[KeyRecord]:
        return [key for key, _ in await self._backend.records.keys(account_id=account_id)]

    async def keys_spent(self, account_id: str | None = None) -> dict[str, Decimal]:
        return await self._backend.records.keys_spent(account_id, {window: _days(window) for window in CAP_WINDOWS})

    async def _add_account(self, account: Account) -> None:
        await self._backend.records.add_account(account)
        await self._backend.reread("account", account.id)

    async def _change_account(self, account: Account, changes: Mapping[str, Any]) -> Account:
        await self._backend.records.change("account", account.id, changes)
        await self._backend.reread("account", account.id)
        return self._memory.accounts[account.id]

    async def _add_key(self, key: KeyRecord, digest: bytes) -> None:
        await self._backend.records.add_key(key, digest)
        await self._backend.reread("key", key.id)

    async def _change_key(self, key: KeyRecord, changes: Mapping[str, Any]) -> KeyRecord:
        await self._backend.records.change("key", key.id, changes)
        await self._backend.reread("key", key.id)
        return self._memory.keys[key.id]

    async def _add_grant(self, grant: Grant) -> None:
        await self._backend.records.add_grant(grant)
        await self._backend.reread("balance", grant.account_id)


def _days(window: CapWindow) -> dict[str, str | None]:
    """The first day that counts for a spend cap, and the first after it that does not; None when every day does."""
    if window == "total":
        return {"since": None, "until": None}
    since, until = cap_days(window, datetime.now(UTC).date())
    return {"since": since.isoformat(), "until": until.isoformat()}


def _standing(key: KeyRecord, tokens: int, refused: str, wait: float) -> Limits:
    """The limit that refused a request. Its level follows from the wait, in which the missing amount comes back."""
    if refused == "requests":
        return Limits(requests=_window(key.rpm, min(1, key.rpm or 0) - wait * (key.rpm or 0) / MINUTE))
    needed = min(max(tokens, 1), key.tpm or 0)
    return Limits(tokens=_window(key.tpm, needed - wait * (key.tpm or 0) / MINUTE))


def _window(limit: int | None, level: float | None) -> Window | None:
    return None if limit is None or level is None else Window.at(limit, level)
