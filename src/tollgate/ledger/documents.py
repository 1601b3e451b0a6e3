"""Image jobs too large for a table: one file each, beside the store.

At a checkpoint DuckDB rewrites the neighbours of a changed row in memory. Fifty jobs with inline pictures of 2 MB
exceeded its limit, and the store could no longer be written. So a large job is a file, found by its id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from tollgate.errors import TollgateError
from tollgate.ledger.durable_files import write_durably

FOLDER_NAME = "generations"
LARGE = 64 * 1024
"""The most bytes of a job (request, pictures and the provider's answer) that go into the table."""


class Documents:
    """The folder of large jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, id: str, document: bytes, answer: bytes) -> None:
        """Write a job; durable on return. Raises `TollgateError` when the disk refuses."""
        path = self._folder / f"{id}.json"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_durably(path, b'{"document":%b,"answer":%b}' % (document, answer))
        except OSError as error:
            raise TollgateError(f"{path}: the job cannot be written: {error.strerror}") from error

    def remove(self, id: str) -> None:
        """Remove a job's file, if it is there. Raises `TollgateError` when the disk refuses."""
        path = self._folder / f"{id}.json"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise TollgateError(f"{path}: the job cannot be removed: {error.strerror}") from error

    def read(self, id: str) -> tuple[dict[str, Any], Any]:
        """A job's document and the provider's answer. Raises `TollgateError` when its file is not there or not
        readable."""
        path = self._folder / f"{id}.json"
        try:
            kept = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise TollgateError(f"{path}: the job cannot be read: {error}") from error
        return kept["document"], kept["answer"]
