"""Connections to the database that several gateways share.

asyncpg is an optional package, imported at the first connection. Error messages leave out the address, which holds a
password.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from tollgate.errors import TollgateError, Unavailable
from tollgate.wording import first_line

if TYPE_CHECKING:
    from asyncpg import Connection, Pool

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
"""A database that takes longer for one call is as good as gone."""
_MOST_CONNECTIONS = 4
KEEPALIVE = {
    scope: " ".join(
        f"SET {scope} {name} = {value};"
        for name, value in (("tcp_keepalives_idle", 10), ("tcp_keepalives_interval", 5), ("tcp_keepalives_count", 3))
    )
    for scope in ("SESSION", "LOCAL")
}
"""Makes the database notice within half a minute that a gateway's machine is gone, so that what it held is released.
Sent as a statement, because a pooler refuses a connection that begins with settings it does not know."""

POOLED = (
    "something before the database gives its sessions to others in between; a pooler has to pool sessions, not "
    "transactions"
)


class DatabaseLost(Unavailable):
    """The database cannot be reached, or did not answer: whether it did the work is not known."""


class DatabaseRefused(TollgateError):
    """The database understood the statement and refuses its values."""


async def connect(address: str, name: str) -> Connection:
    """A new connection, shown in the database as the program `name`. Raises `DatabaseLost`, and `TollgateError` for an
    address that cannot be used."""
    with driver_errors():
        connection: Connection = await driver().connect(address, **_options(name))
        try:
            await connection.execute(KEEPALIVE["SESSION"])
        except BaseException:
            connection.terminate()
            raise
        return connection


def driver() -> Any:
    """The module asyncpg. Raises `TollgateError` where it is not installed."""
    try:
        import asyncpg
    except ImportError as error:
        raise TollgateError("store.url: a PostgreSQL store needs one package more: pip install asyncpg") from error
    return asyncpg


def _options(name: str) -> dict[str, Any]:
    return {
        "timeout": CONNECT_SECONDS,
        "command_timeout": CALL_SECONDS,
        "server_settings": {"application_name": name, "timezone": "UTC"},
    }


@contextlib.contextmanager
def driver_errors() -> Iterator[None]:
    """Turn the driver's errors into `DatabaseLost`, `DatabaseRefused` or, where the address is wrong,
    `TollgateError`."""
    asyncpg = driver()
    kinds = asyncpg.exceptions
    try:
        yield
    except TimeoutError as error:
        raise DatabaseLost("the database does not answer") from error
    except OSError as error:  # before ValueError, which a certificate that does not fit is, too
        raise DatabaseLost(f"the database cannot be used: {first_line(error)}") from error
    except (kinds.ClientConfigurationError, ValueError) as error:
        is_option = isinstance(error, kinds.ClientConfigurationError) and not str(error).startswith("invalid")
        if is_option:  # every other message may quote a part of the address, with the password
            raise TollgateError(f"store.url: {first_line(error)}") from error
        raise TollgateError(
            "store.url: not the address of a PostgreSQL database, wanted postgresql://user:password@host:5432/database"
        ) from error
    except (kinds.InvalidSQLStatementNameError, kinds.DuplicatePreparedStatementError) as error:
        raise DatabaseLost(POOLED) from error
    except (kinds.DataError, kinds.IntegrityConstraintViolationError) as error:
        raise DatabaseRefused(f"the database refused: {first_line(error)}") from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError) as error:
        raise DatabaseLost(f"the database cannot be used: {first_line(error)}") from error


def storable(value: Any) -> Any:
    """The value as the database can hold it: PostgreSQL refuses NUL in text."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


class Connections:
    """A small pool for everything but rounds: reading, administration."""

    def __init__(self, address: str, name: str) -> None:
        with driver_errors():
            self._pool: Pool = driver().create_pool(address, min_size=0, max_size=_MOST_CONNECTIONS, **_options(name))

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for the length of a `with`. Raises `DatabaseLost` and `DatabaseRefused`, also for statements
        within it."""
        with driver_errors():
            await self._pool  # its first use: connects to nothing yet
            async with self._pool.acquire() as taken:
                yield taken

    async def rows(self, statement: str, *values: object) -> list[Any]:
        """The rows of one statement."""
        async with self.connection() as connection:
            return list(await connection.fetch(statement, *values))

    async def value(self, statement: str, *values: object) -> Any:
        """The first value of the first row; None without rows."""
        async with self.connection() as connection:
            return await connection.fetchval(statement, *values)

    def close(self) -> None:
        """Drop the connections."""
        self._pool.terminate()
