"""The whole run: where its folders are, and a collector that does not walk over thousands of collected tests again and again."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")
_WANTED_BYTES = 4 << 30
"""A whole run writes a little over one gigabyte."""


def pytest_configure() -> None:
    """Folders of tests lie in memory where there is plenty: some thousand ledgers are opened, and each waits for the disk some dozen times."""
    if _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _WANTED_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def pytest_collection_finish() -> None:
    """What was collected stays until the end; without this a tenth of the run is spent on looking at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as the gateway itself runs


def pytest_unconfigure() -> None:
    """What is frozen would be told of as leaked when the process ends."""
    gc.unfreeze()
