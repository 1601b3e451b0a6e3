"""The whole run: where its folders and its processes' bytecode are, and a collector that does not walk over thousands
of collected tests again and again."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
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

    The processes that tests start keep what Python compiles in one more such folder, whatever the environment says of
    writing it beside the sources: a hundred times the gateway would take a third of its start for that.
    """
    _leave_behind_where_this_runs()
    config.add_cleanup(gc.unfreeze)  # the last of all: what is frozen would be told of as leaked when the process ends
    if _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _WANTED_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))
    if config.getoption("dist", "no") != "no":
        return  # the processes that run the tests come here themselves; they shall not compile the libraries anew
    compiled = tempfile.mkdtemp(prefix="tollgate-compiled-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    config.add_cleanup(lambda: shutil.rmtree(compiled, ignore_errors=True))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = compiled


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
