"""Administration from another process: the running gateway answers on a socket, because only it can write the store.

One JSON object a line, over a unix-domain socket in the store's folder that only its owner may open (mode 0600):

    {"call": "create_key", "with": {"account_id": "alice", "name": "laptop"}}
    {"result": [{"id": "key_...", ...}, "sk-tg-..."]}          or {"error": {"kind": "NotFound", "message": "..."}}

`RemoteLedger` has the same methods as `Ledger`, so commands do not care which of the two they were given.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson

from tollgate.config.settings import Credits, Store
from tollgate.errors import BadRequest, NotFound, TollgateError, Unavailable
from tollgate.ledger.administration import Administration
from tollgate.ledger.locks import once_free
from tollgate.ledger.records import Account, AccountSums, Grant, KeyRecord, decode, encode, read_value
from tollgate.process.concurrency import in_turns
from tollgate.wording import first_line

if TYPE_CHECKING:
    from tollgate.ledger import Ledger

log = logging.getLogger("tollgate.ledger")

SOCKET_NAME = "admin.sock"
_LONGEST_PATH = 100
"""A socket's path can have 107 bytes; longer ones are reached through a descriptor of their directory."""
_CALL_LIMIT = 64 * 1024 * 1024
_ANSWER_LIMIT = 4 * 1024 * 1024 * 1024
"""The bytes of one line. An answer lists all keys of the gateway, 400 bytes each, and comes from a program that we
trust."""
_ERRORS = {each.__name__: each for each in (BadRequest, NotFound, Unavailable, TollgateError)}


def _one(kind: type[Any]) -> Callable[[Any], Any]:
    return partial(decode, kind)


def _many(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda values: [decode(kind, value) for value in values]


METHODS: dict[str, Callable[[Any], Any]] = {
    "create_account": _one(Account),
    "update_account": _one(Account),
    "get_account": _one(Account),
    "list_accounts": _many(Account),
    "sums": _one(AccountSums),
    "create_key": lambda value: (decode(KeyRecord, value[0]), value[1]),
    "update_key": _one(KeyRecord),
    "revoke_key": _one(KeyRecord),
    "get_key": _one(KeyRecord),
    "list_keys": _many(KeyRecord),
    "list_sums": _many(AccountSums),
    "keys_spent": lambda value: {key: Decimal(spent) for key, spent in value.items()},
    "grant": _one(Grant),
    "list_grants": _many(Grant),
    "settle": lambda value: value,
    "create_link": str,
}
"""What may be called, and how its result is read back."""


class AdminServer:
    """The answering side, inside the gateway."""

    def __init__(self, ledger: Ledger, path: Path) -> None:
        self._ledger = ledger
        self._path = path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen. The socket file of a killed process is replaced: the store's lock shows that it is dead. Where no
        socket can be made (FAT, some network shares and container volumes, a full disk) there is a warning, and
        everything else works without it."""
        try:
            listening = self._bound()
        except OSError as error:
            log.warning(
                "%s: no socket can be made here (%s): while this gateway runs, accounts, keys and credits are changed "
                "on its dashboard only, not by commands",
                self._path,
                error.strerror,
            )
            return
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=_CALL_LIMIT)

    def _bound(self) -> socket.socket:
        """The socket, whose file only its owner may open from its first moment: on Linux the file gets the mode of the
        socket, less the umask. A umask for the moment would be that of all threads, and of the folders they make."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(OSError):  # elsewhere the file gets its mode below
                os.fchmod(listening.fileno(), 0o600)
            self._path.unlink(missing_ok=True)
            with _short(self._path) as address:
                listening.bind(address)
            self._path.chmod(0o600)
        except OSError:
            listening.close()
            raise
        return listening

    async def close(self) -> None:
        """Stop answering."""
        if self._server is None:
            return
        self._server.close()
        for writer in tuple(self._writers):
            writer.close()
        with contextlib.suppress(OSError):  # the disk has become read-only: the next start replaces the file
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(await self._answer(line) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            log.info("an administration connection ended: %s", error)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        name = ""
        try:
            call = orjson.loads(line)
            name, arguments = call["call"], call.get("with", {})
            if name not in METHODS:
                raise BadRequest(f'no method "{name}"')
            read = {key: read_value(key, value) for key, value in arguments.items()}
            return b'{"result":%b}' % await _encoded(await getattr(self._ledger, name)(**read))
        except TollgateError as error:
            kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS)
            return _failure(kind, error.message)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            return _failure("BadRequest", f"not understood: {type(error).__name__}: {error}")
        except Exception as error:  # without an answer the command would say that the gateway ended
            log.exception("the administration call %s failed", name)
            message = f"the gateway failed, {type(error).__name__}: {first_line(error)}; its log has more"
            return _failure("TollgateError", message)


async def _encoded(result: Any) -> bytes:
    """The JSON of a result; other tasks run while a long list, or an object with many fields, is written."""
    if isinstance(result, list):
        return b"[%b]" % b",".join([encode(each) async for each in in_turns(result)])
    if isinstance(result, dict):
        return b"{%b}" % b",".join([encode({key: each})[1:-1] async for key, each in in_turns(result.items())])
    return encode(result)


def _failure(kind: str, message: str) -> bytes:
    return encode({"error": {"kind": kind, "message": message}})


class RemoteLedger:
    """The administrative methods of the `Ledger` in another process; errors arrive as the same exceptions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in METHODS:
            raise AttributeError(name)
        return partial(self._call, name)

    async def _call(self, name: str, /, *values: Any, **named: Any) -> Any:
        bound = inspect.signature(getattr(Administration, name)).bind(None, *values, **named)
        arguments = dict(list(bound.arguments.items())[1:])
        arguments |= arguments.pop("changes", {})
        line = b""
        async with self._turn:
            with contextlib.suppress(ConnectionError):
                self._writer.write(encode({"call": name, "with": arguments}) + b"\n")
                await self._writer.drain()
                line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise Unavailable("the gateway ended before it answered; whether the change was made is not known")
        answer = orjson.loads(line)
        if "error" in answer:
            raise _ERRORS[answer["error"]["kind"]](answer["error"]["message"])
        return METHODS[name](answer["result"])

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()


@contextlib.asynccontextmanager
async def open_books(store: Store, credits: Credits, *, patience: float = 5.0) -> AsyncIterator[Administration]:
    """The ledger of this store: that of the running gateway, over its socket, or else opened here. A shared store is
    opened beside its gateways.

    A gateway that is just starting or stopping has the store locked and does not answer; this waits for it up to
    `patience` seconds.
    """
    from tollgate.ledger import ledger_of

    async def opened() -> Ledger | RemoteLedger:
        if not store.url and (remote := await _connect(store.directory / SOCKET_NAME)) is not None:
            return remote
        ledger = ledger_of(store, credits, serving=False)
        await ledger.open(patience=0)
        return ledger

    books = await once_free(opened, patience)
    try:
        yield cast(Administration, books)
    finally:
        await books.close()


async def _connect(path: Path) -> RemoteLedger | None:
    try:
        with _short(path) as address:
            return RemoteLedger(*await asyncio.open_unix_connection(address, limit=_ANSWER_LIMIT))
    except (ConnectionError, FileNotFoundError, NotADirectoryError):
        return None


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A way to name `path` that fits a socket address."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
