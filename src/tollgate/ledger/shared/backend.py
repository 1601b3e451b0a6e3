"""What a shared ledger is connected to: its rounds, its records, the changes of others, and its usage files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tollgate.config.settings import Store
from tollgate.errors import TollgateError
from tollgate.ledger.interface import EventKind, Snapshot
from tollgate.ledger.memory import Memory
from tollgate.ledger.shared.change_listener import ChangeListener
from tollgate.ledger.shared.connections import Connections, connect, driver_errors
from tollgate.ledger.shared.records import Records
from tollgate.ledger.shared.rounds import Balances, Rounds
from tollgate.ledger.shared.sessions import SharedSessions
from tollgate.ledger.shared.tables import migrate
from tollgate.ledger.shared.usage import Publishing


class SharedBackend:
    """See `interface.Backend`. One that is not `serving` (a command's) only reads and changes records."""

    def __init__(self, settings: Store, memory: Memory, *, serving: bool) -> None:
        name = f"tollgate {settings.instance}" if serving else "tollgate command"
        self._settings = settings
        self._memory = memory
        self._serving = serving
        self._name = name
        self.connections = Connections(settings.url, name)
        self.records = records = Records(self.connections)
        self.generation, self.succeeded, self.grants = records.generation, records.succeeded, records.grants
        self.sessions = SharedSessions(self.connections)
        self.rounds = Rounds(settings.url, settings.instance, name, self._balances)
        self._listener = ChangeListener(settings.url, f"{name} news", self.reread)
        self._reading = asyncio.Lock()
        """One read at a time: an older result must not overwrite a newer one in the memory."""

    @property
    def problem(self) -> str:
        return self.rounds.outage.reason or self._listener.outage.reason

    @property
    def publish_problem(self) -> str:
        return self._publishing.outage.reason if self._serving else ""

    @property
    def last_seq(self) -> int:
        return self.rounds.last_seq

    async def open(self, on_applied: Callable[[int], None]) -> Snapshot:
        """Connect, and read accounts, keys and balances into the memory: the snapshot is empty."""
        if self._serving:
            await self._serve()
        else:
            await self._open_for_command()
        return Snapshot()

    async def _open_for_command(self) -> None:
        connection = await connect(self._settings.url, self._name)
        try:
            with driver_errors():
                await migrate(connection)
        finally:
            connection.terminate()
        await self.reread("everything")

    async def _serve(self) -> None:
        await self.rounds.open()
        self._publishing = Publishing(self.connections, self._settings)
        try:
            published = await self._publishing.open()
            await self.connections.value(
                "INSERT INTO tollgate.instances (name) VALUES ($1) ON CONFLICT DO NOTHING", self._settings.instance
            )
            newest = await self.connections.value(
                "SELECT greatest(published, (SELECT max(seq) FROM tollgate.usage WHERE instance = name)) "
                "FROM tollgate.instances WHERE name = $1",
                self._settings.instance,
            )
            self.rounds.start(max(published, newest) + 1)
            await self._listener.open()
        except BaseException:
            self._publishing.let_go()
            await self.rounds.close()
            raise
        self._publishing.start()

    def append(self, kind: EventKind, row: bytes) -> asyncio.Future[None]:
        """Takes only marks: usage rows and jobs go to `rounds`, records to `records`."""
        if kind == "mark":
            return self.rounds.mark()
        raise TollgateError(f'an event of kind "{kind}" cannot be kept here')

    async def settle(self) -> None:
        if self._serving:
            await self.rounds.mark()
            await self._publishing.publish()

    async def close(self) -> None:
        if self._serving:
            await self.rounds.close()
            await self._listener.close()
            await self._publishing.close()
        self.connections.close()

    # ---- what memory knows

    def _balances(self, balances: Balances) -> None:
        for account_id, (granted, spent) in balances.items():
            self._memory.granted[account_id] = granted
            self._memory.spent[account_id] = spent

    async def reread(self, what: str, id: str = "") -> None:
        """Read again what another gateway or a command changed: `what` is the kind, or `everything`; `id` is whose it
        is, empty for all."""
        everything, only = what == "everything", id or None
        async with self._reading:
            if everything or what == "account":
                for account in await self.records.accounts(only):
                    self._memory.put_account(account)
            if everything or what == "key":
                for key, digest in await self.records.keys(only):
                    self._memory.put_key(key, digest)
            if everything or what == "balance":
                self._balances({sums.account_id: (sums.granted, sums.spent) for sums in await self.records.sums(only)})
            if everything or what == "session":
                await self.sessions.read()
