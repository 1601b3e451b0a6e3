"""The ledger's memory: what the hot path reads and changes, in exact decimals, without waiting for anything.

All of it runs on the event loop, so a check and the change after it are one step: no request can spend in between.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Self

from tollgate.config.settings import Credits
from tollgate.errors import NO_QUOTA, QuotaExhausted, Unauthorized
from tollgate.ledger import keys
from tollgate.ledger.interface import Snapshot
from tollgate.ledger.records import Account, AccountSums, CapWindow, KeyRecord
from tollgate.ledger.store import RECENT_IDS

_ZERO = Decimal(0)
_KEPT_DAYS = 62
"""How many days with a sum are kept for each key: twice as many as the longest window that resets. The days are counted
and not compared with today: when the clock was changed, the days of this month must not look old."""
_FORGOTTEN_AT_ONCE = 1024
"""Old ids are deleted in batches: to find the oldest key of a dictionary, Python steps over all deleted ones before
it."""


class Hold:
    """Credits reserved for a running request. Release it on every way out; a second release does nothing."""

    __slots__ = ("_give_back", "amount")

    def __init__(self, amount: Decimal, give_back: Callable[[], None]) -> None:
        self.amount = amount
        self._give_back: Callable[[], None] | None = give_back

    def release(self) -> None:
        """Give the reservation back."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Memory:
    """Accounts, keys, balances, holds and spend counters."""

    def __init__(self, credits: Credits) -> None:
        self.credits = credits
        self.accounts: dict[str, Account] = {}
        self.keys: dict[str, KeyRecord] = {}
        self.digests: dict[str, bytes] = {}
        self._by_digest: dict[bytes, KeyRecord] = {}
        self._of_account: dict[str, dict[str, None]] = {}
        """Ids of each account's keys, oldest first."""
        self.granted: dict[str, Decimal] = {}
        self.spent: dict[str, Decimal] = {}
        self.held: dict[str, Decimal] = {}
        self.held_by_key: dict[str, Decimal] = {}
        self.spent_by_key: dict[str, Decimal] = {}
        self._days: dict[str, dict[date, Decimal]] = {}
        self.last_used: dict[str, datetime] = {}
        self._recent: dict[str, None] = {}
        """Request ids, oldest first. A plain dictionary takes half the memory of an `OrderedDict`."""

    def load(self, snapshot: Snapshot) -> None:
        """Start with what the store has."""
        for account in snapshot.accounts:
            self.put_account(account)
        for key, digest in snapshot.keys:
            self.put_key(key, digest)
        self.granted.update(snapshot.granted)
        self.spent.update(snapshot.spent)
        self.spent_by_key.update(snapshot.spent_by_key)
        self._days.update(snapshot.spent_by_day)
        self.last_used.update(snapshot.last_used)
        self._recent = dict.fromkeys(snapshot.recent_ids)

    # ---- accounts and keys

    def put_account(self, account: Account) -> None:
        """A new account, or one that has changed."""
        self.accounts[account.id] = account

    def put_key(self, key: KeyRecord, digest: bytes) -> None:
        """A new key, or one that has changed; `digest` is that of its secret."""
        self.keys[key.id] = key
        self.digests[key.id] = digest
        self._by_digest[digest] = key
        self._of_account.setdefault(key.account_id, {})[key.id] = None

    def keys_of(self, account_id: str | None) -> list[KeyRecord]:
        """Keys of one account or of all, oldest first."""
        return (
            [*self.keys.values()]
            if account_id is None
            else [self.keys[id] for id in self._of_account.get(account_id, ())]
        )

    def find_key(self, secret: str | None, now: datetime | None = None) -> KeyRecord:
        """The key with this secret. Raises `Unauthorized`: missing, malformed, unknown, revoked or expired."""
        if not secret:
            raise Unauthorized("missing")
        key = self._by_digest.get(keys.digest(secret))
        if key is None:
            raise Unauthorized("unknown" if keys.is_well_formed(secret) else "malformed", keys.mask(secret))
        if key.revoked:
            raise Unauthorized("revoked", keys.mask(secret))
        if key.expires_at is not None and key.expires_at <= (now or datetime.now(UTC)):
            raise Unauthorized("expired", keys.mask(secret))
        return key

    # ---- balances

    def balance(self, account_id: str) -> Decimal:
        """Credits granted minus the sum of recorded costs."""
        return self.granted.get(account_id, _ZERO) - self.spent.get(account_id, _ZERO)

    def sums(self, account_id: str) -> AccountSums:
        """The account's arithmetic."""
        return AccountSums(
            account_id,
            self.granted.get(account_id, _ZERO),
            self.spent.get(account_id, _ZERO),
            self.held.get(account_id, _ZERO),
        )

    def require_balance(self, account_id: str) -> None:
        """Raises `QuotaExhausted` below the minimum (SPEC: 0.01); holds do not count. For calls that spend nothing,
        such as polling the job for which there is a hold."""
        if self.balance(account_id) < self.credits.minimum:
            raise QuotaExhausted

    def require_credits(self, key: KeyRecord) -> Decimal:
        """The credits of the account that no request holds. Raises `QuotaExhausted` below the minimum (SPEC: 0.01) or
        at the key's spend cap."""
        available = self.balance(key.account_id) - self.held.get(key.account_id, _ZERO)
        if available < self.credits.minimum:
            raise QuotaExhausted
        if key.spend_cap is not None:
            self._left_of_cap(key, key.spend_cap)
        return available

    def _left_of_cap(self, key: KeyRecord, cap: Decimal) -> Decimal:
        left = cap - self.spent_in_window(key.id, key.cap_window) - self.held_by_key.get(key.id, _ZERO)
        if left <= 0:
            raise QuotaExhausted(cap_reached(key))
        return left

    def hold(self, key: KeyRecord, amount: Decimal) -> Hold:
        """Reserve an amount, at most `credits.hold_cap`. When the balance or the key's spend cap does not cover it, a
        request that runs alone gets what there is. Beside others of the account, or of the key, it is refused: N
        parallel requests must not spend what is left once (PITFALLS 4). Raises `QuotaExhausted`."""
        account_id = key.account_id
        available, held = self.require_credits(key), self.held.get(account_id, _ZERO)
        if amount > self.credits.hold_cap:
            amount = self.credits.hold_cap
        if key.spend_cap is not None:
            left = self._left_of_cap(key, key.spend_cap)
            if amount > left:
                if self.held_by_key.get(key.id, _ZERO) > 0:
                    raise QuotaExhausted
                amount = left
        if amount > available:
            if held > 0:
                raise QuotaExhausted
            amount = available
        if amount < _ZERO:
            amount = _ZERO
        self.held[account_id] = held + amount
        self.held_by_key[key.id] = self.held_by_key.get(key.id, _ZERO) + amount
        return Hold(amount, partial(self._release, account_id, key.id, amount))

    def _release(self, account_id: str, key_id: str, amount: Decimal) -> None:
        self.held[account_id] -= amount
        self.held_by_key[key_id] -= amount

    # ---- spending

    def is_known(self, request_id: str) -> bool:
        """Whether a row with this id was taken already (the newest 8,192 are remembered, over restarts too)."""
        return request_id in self._recent

    def charge(self, request_id: str, account_id: str, key_id: str, cost: Decimal, when: datetime) -> None:
        """Take the cost of one row from the account and count it for the key."""
        self._recent[request_id] = None
        if len(self._recent) >= RECENT_IDS + _FORGOTTEN_AT_ONCE:
            for old in tuple(islice(self._recent, _FORGOTTEN_AT_ONCE)):
                del self._recent[old]
        self.spent[account_id] = self.spent.get(account_id, _ZERO) + cost
        self.spent_by_key[key_id] = self.spent_by_key.get(key_id, _ZERO) + cost
        last = self.last_used.get(key_id)
        # the row of an image job comes at its end, with the time of its request
        if last is None or when > last:
            self.last_used[key_id] = when
        day = when.date()
        days = self._days.get(key_id)
        if days is None:
            days = self._days[key_id] = {}
        if day not in days:
            for past in sorted(days)[: 1 - _KEPT_DAYS]:
                del days[past]
        days[day] = days.get(day, _ZERO) + cost

    def spent_in_window(self, key_id: str, window: CapWindow) -> Decimal:
        """What the key spent in the current UTC day, week (from Monday) or month, or in total. Days after it, from a
        time when the clock was set ahead, do not count until they come."""
        if window == "total":
            return self.spent_by_key.get(key_id, _ZERO)
        first, after = cap_days(window, datetime.now(UTC).date())
        return sum((cost for day, cost in self._days.get(key_id, {}).items() if first <= day < after), _ZERO)


def cap_days(window: CapWindow, today: date) -> tuple[date, date]:
    """The first day of the current day, week (from Monday) or month, and the first day of the next one."""
    if window == "month":
        first = today.replace(day=1)
        return first, (first + timedelta(days=31)).replace(day=1)
    first = today - timedelta(days=today.weekday() if window == "week" else 0)
    return first, first + timedelta(days=7 if window == "week" else 1)


def cap_reached(key: KeyRecord) -> str:
    """The message when a key has reached its spend cap: SPEC's words, and then the reason."""
    message = f"{NO_QUOTA}: the key's spend cap is reached"
    if key.cap_window == "total":
        return message
    return f"{message}; it starts anew on {cap_days(key.cap_window, datetime.now(UTC).date())[1]} (UTC)"
