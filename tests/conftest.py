"""The whole run: where its folders are, compiled sources that its processes share, and a collector that does not walk
over thousands of collected tests again and again."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.patient import PatientLoop
from support.postgres import Server, programs, running_postgres
from support.shipped_mappings import read_once

_IN_MEMORY = Path("/dev/shm")
_WANTED_BYTES = 2 << 30
"""Folders of tests that passed are deleted at once; what is there at a time stays far below this."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

settings.register_profile("tollgate", deadline=None)  # a busy machine takes longer, which is no failure
settings.load_profile("tollgate")


def pytest_configure(config: pytest.Config) -> None:
    """Folders of tests lie in memory where there is plenty: some thousand ledgers are opened,
    and each waits for the disk some dozen times.

    What Python compiles is kept beside the sources, whatever the environment says: a hundred times the gateway would
    take a third of its start for that, and each process of the run would rewrite every test's assertions for itself.
    """
    _leave_behind_where_this_runs()
    config.add_cleanup(gc.unfreeze)  # the last of all: what is frozen would be told of as leaked when the process ends
    if _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _WANTED_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _leave_behind_where_this_runs() -> None:
    """What a shell or a container has set and tests would otherwise depend on: proxies, through which clients ask
    even this machine, the width and colours of a terminal, and who may read new files."""
    for name in _PROXIES:
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)
    for name in ("FORCE_COLOR", "NO_COLOR", "LINES"):
        os.environ.pop(name, None)
    os.environ["COLUMNS"] = "80"
    os.umask(0o022)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Processes that share a run come to the same module at once; only the first one rewrites its assertions, which is
    half of what reading the tests takes."""
    if not isinstance(collector, pytest.Module) or not hasattr(collector.config, "workerinput"):
        return (yield)
    with collector.path.open() as source:
        fcntl.flock(source, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """What was collected stays until the end; without this a tenth of the run is spent on looking at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as the gateway itself runs


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Each asynchronous test has a loop that forgives a busy machine."""
    return {"asyncio": PatientLoop}


@pytest.fixture
def shipped_mappings() -> Iterator[None]:
    """For tests of whole configurations that are not about the shipped mapping files: these are read once."""
    with read_once():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    found = programs()
    if found is None:
        pytest.skip("there is no PostgreSQL here: neither the test extra's nor the machine's")
    with running_postgres(found) as server:
        yield server


@pytest.fixture
async def address(postgres: Server) -> AsyncIterator[str]:
    """The address of an empty database."""
    async with postgres.database() as made:
        yield made
