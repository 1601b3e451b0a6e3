"""Runs the command in a folder. Returns its exit code, stdout and stderr."""

from __future__ import annotations

import asyncio
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from support.files import write_file
from support.stores import reused_duckdb
from tollgate.cli import main
from tollgate.ledger import Ledger


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str
    raw: bytes


class Tollgate:
    """Runs commands in a folder. `ledger` belongs to the running gateway, if there is one."""

    def __init__(self, folder: Path, ledger: Ledger | None = None) -> None:
        self.folder = folder
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger:
        assert self._ledger is not None
        return self._ledger

    def write(self, name: str, text: str) -> None:
        """Writes a file into the folder."""
        write_file(self.folder / name, text)

    def __call__(self, *words: str, stdin: str = "") -> Done:
        """Run `tollgate WORDS`."""
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            with reused_duckdb():
                result = CliRunner().invoke(main, list(words), input=stdin)
        finally:
            os.chdir(before)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)

    def typed(self, line: str) -> Done:
        """Run a command as it is typed into a shell."""
        return self(*shlex.split(line))

    async def in_thread(self, *words: str) -> Done:
        """Runs the command in a thread, while this event loop serves the ledger."""
        return await asyncio.to_thread(self, *words)
