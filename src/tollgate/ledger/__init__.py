"""The ledger: who may spend, and what was spent, durably.

    ledger = Ledger(gateway.store, gateway.credits)
    await ledger.open()                                    # replays what a killed process left
    key = ledger.find_key(secret)                          # memory only; raises Unauthorized
    with await ledger.hold(key, upper_bound) as hold:       # raises QuotaExhausted
        ...
        await ledger.record(row, hold)                     # durable on return, charged once, hold released
    await ledger.close()

Everything on the hot path is in memory, on the event loop. Every change is an event, which must be durable before the
change counts as done; where events are kept is behind `interface.Backend`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Self

from tollgate.config.settings import Credits, Store
from tollgate.errors import Unavailable
from tollgate.ledger.admin_socket import SOCKET_NAME, AdminServer
from tollgate.ledger.administration import Administration
from tollgate.ledger.embedded import EmbeddedBackend
from tollgate.ledger.generations import Generations
from tollgate.ledger.interface import Backend, StoreInUse
from tollgate.ledger.limits import Concurrency, Limits, RateLimits, Slot
from tollgate.ledger.locks import once_free
from tollgate.ledger.memory import Hold, Memory
from tollgate.ledger.records import (
    CAP_WINDOWS,
    KEY_ENDPOINTS,
    Account,
    AccountSums,
    Generation,
    Grant,
    JobRow,
    KeyRecord,
    encode_row,
)
from tollgate.ledger.sent_forms import SentForms
from tollgate.ledger.usage_row import UsageRow
from tollgate.money import round_cost

if TYPE_CHECKING:
    from tollgate.ledger.shared.sessions import SharedSessions
    from tollgate.remembered.minted import Minted

__all__ = [
    "CAP_WINDOWS",
    "DEFAULT_ACCOUNT",
    "KEY_ENDPOINTS",
    "Account",
    "AccountSums",
    "Generation",
    "Grant",
    "Hold",
    "JobRow",
    "KeyRecord",
    "Ledger",
    "Limits",
    "Slot",
    "StoreInUse",
    "UsageRow",
    "ledger_of",
]

DEFAULT_ACCOUNT = "default"
DEFAULT_CREDITS = Decimal(100)
_MOST_COST = Decimal(10) ** 12
"""A higher cost of one request is a mistake in a price, and would not fit into its column."""
_REQUIRED = ("request_id", "account_id", "key_id", "endpoint")


def ledger_of(store: Store, credits: Credits, *, serving: bool = True) -> Ledger:
    """The ledger of a store, not opened yet: an embedded one, or, if the store has a `url`, one that several gateways
    share. With `serving` False it is for a command, beside running gateways. Raises `TollgateError` when the package
    for a shared store is missing."""
    if not store.url:
        return Ledger(store, credits)
    from tollgate.ledger.shared import SharedLedger

    return SharedLedger(store, credits, serving=serving)


class Ledger(Administration):
    """See the module; accounts, keys and grants are inherited. All methods belong to one event loop."""

    def __init__(
        self, store: Store, credits: Credits, *, memory: Memory | None = None, backend: Backend | None = None
    ) -> None:
        backend = backend or EmbeddedBackend(store)
        super().__init__(memory or Memory(credits), backend)
        self.store = store
        self.limits = RateLimits()
        self.concurrency = Concurrency()
        self.generations = Generations(backend, self)
        self.forms = SentForms()
        self.register: Minted | None = None
        """Which account got which provider's ids; set on a shared store, where all gateways must know."""
        self.sessions: SharedSessions | None = None
        """The signed-in sessions of the dashboard; set on a shared store."""
        self._state = "not open"
        self._admin: AdminServer | None = None

    # ---- life

    async def open(self, patience: float = 1.0) -> None:
        """Lock the store, replay what was not stored, read accounts, keys and balances.

        Waits up to `patience` seconds for a command that has the store for a moment; then raises `StoreInUse`.
        """
        snapshot = await once_free(lambda: self._backend.open(self.generations.forget_stored), patience)
        self._memory.load(snapshot)
        self.generations.load(snapshot.pending)
        self._state = ""

    async def close(self) -> None:
        """Refuse new work, make everything durable, stored and published, and unlock."""
        if self._state == "":
            self._state = "shutting down"
            if self._admin is not None:
                await self._admin.close()
            await self._backend.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def serve_admin(self) -> None:
        """Let `tollgate accounts|keys|credits` talk to this process over a socket in the store's folder."""
        server = AdminServer(self, self.store.directory / SOCKET_NAME)
        await server.start()
        self._admin = server

    @property
    def ready(self) -> bool:
        """Whether new work may be taken."""
        return not self._state and not self._backend.problem

    def require_ready(self) -> None:
        """Raises `Unavailable` while no new work may be taken."""
        if self._state or self._backend.problem:
            raise Unavailable(self.not_ready_reason)

    @property
    def not_ready_reason(self) -> str:
        """Why no new work is taken, for operators; empty when ready."""
        return f"the ledger is {self._state}" if self._state else self._backend.problem

    @property
    def published(self) -> bool:
        """Whether usage files are kept up to date; when not, the log says why."""
        return not self._backend.publish_problem

    def use(self, credits: Credits) -> None:
        """Use this minimum and this cap of holds from now on, as after a reload. Existing holds stay."""
        self._memory.credits = credits

    # ---- the hot path

    def find_key(self, secret: str | None) -> KeyRecord:
        """The key with this secret. Raises `Unauthorized` with reason missing, malformed, unknown, revoked or
        expired."""
        return self._memory.find_key(secret)

    def is_current(self, key: KeyRecord) -> bool:
        """Whether a key that was found is still as it was then: neither revoked nor changed."""
        return self._memory.keys.get(key.id) is key

    def balance(self, account_id: str) -> Decimal:
        """Credits granted minus the sum of recorded costs."""
        return self._memory.balance(account_id)

    def require_credits(self, key: KeyRecord) -> None:
        """Raises `QuotaExhausted` below the minimum (SPEC authentication 4: 0.01) or at the key's spend cap."""
        self._memory.require_credits(key)

    def require_balance(self, account_id: str) -> None:
        """Raises `QuotaExhausted` below the minimum; holds and the key's spend cap do not count. For calls that spend
        nothing."""
        self._memory.require_balance(account_id)

    async def hold(self, key: KeyRecord, amount: Decimal) -> Hold:
        """Reserve up to `amount`, at most `credits.hold_cap` and what is left of the balance and the key's spend cap.
        Raises `QuotaExhausted`."""
        return self._memory.hold(key, amount)

    async def admit(self, key: KeyRecord, tokens: int = 0) -> Limits:
        """Count one request of about `tokens` tokens against the key's rate limits; raises `RateLimited`."""
        return self.limits.admit(key, tokens)

    def occupy(self, key: KeyRecord) -> Slot | None:
        """A slot for one more running request of a key with `max_concurrent`, None for any other key; raises
        `RateLimited`. Each gateway counts its own, also on a shared store: a gateway that is lost leaves no slots
        taken."""
        return self.concurrency.occupy(key)

    def used_tokens(self, key: KeyRecord, tokens: int, counted: int) -> None:
        """Correct the rate limit to the tokens really used; `counted` is what `admit` was given. The key may have got
        another limit since: the old one would make the bucket smaller for a moment, and the tokens many times more."""
        if key.tpm is not None:
            self.limits.settle(self._memory.keys.get(key.id, key), counted, tokens)

    def record(self, row: UsageRow, hold: Hold | None = None) -> asyncio.Future[None]:
        """Charge one row and store it, once for each request id, however often this is called. The charge is made at
        once, so a cancelled caller loses nothing. Await the returned future to know that the row is durable.

        Raises `Unavailable` when the ledger is closed. The future fails with it when the disk refuses; then the charge
        still counts, and the row is written as soon as possible.
        """
        if self._state:
            raise Unavailable(f"the ledger is {self._state}")
        if not self.accept(row):
            if hold is not None:
                hold.release()
            return self._backend.append("mark", b"null")
        event = encode_row(row)
        self.debit(row, hold)
        return self._write(row, event)

    def _write(self, row: UsageRow, event: bytes) -> asyncio.Future[None]:
        return self._backend.append("usage", event)

    def accept(self, row: UsageRow) -> bool:
        """Round the row's cost (only here) and check what the store requires. False when its request id was charged
        before. ValueError for a row that could not be stored, so that it is not charged either."""
        if self._memory.is_known(row.request_id):
            return False
        row.cost = round_cost(row.cost)
        if not 0 <= row.cost <= _MOST_COST:
            raise ValueError(f"row {row.request_id}: cost is {row.cost}, wanted 0 to {_MOST_COST:f}")
        for value in (row.request_id, row.account_id, row.key_id, row.endpoint):
            if type(value) is not str:
                name = next(name for name in _REQUIRED if getattr(row, name) is value)
                raise ValueError(f"row {row.request_id}: {name} is {value!r}, wanted text")
        if row.time.tzinfo is not UTC:
            row.time = row.time.replace(tzinfo=UTC) if row.time.tzinfo is None else row.time.astimezone(UTC)
        return True

    def debit(self, row: UsageRow, hold: Hold | None) -> None:
        """Take an accepted row's cost from the balance and end the hold, in one step."""
        self._memory.charge(row.request_id, row.account_id, row.key_id, row.cost, row.time)
        if hold is not None:
            hold.release()

    # ---- the first start

    async def ensure_default_account(self, credits: Decimal = DEFAULT_CREDITS) -> str | None:
        """On a store without accounts: account `default` with credits and one key, whose secret is returned this
        once."""
        if self._memory.accounts:
            return None
        await self.create_account(DEFAULT_ACCOUNT, "Default account", "operator")
        await self.grant(DEFAULT_ACCOUNT, credits, "first start")
        _, secret = await self.create_key(DEFAULT_ACCOUNT, "first key")
        return secret
