"""Configuration of the whole test run: temporary folders, bytecode that its processes share, and a garbage collector
that does not rescan the collected tests."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import settings

from support.patient import PatientLoop
from support.postgres import Server, programs, running_postgres
from support.shipped_mappings import read_once
from support.waiting import wait_until

_IN_MEMORY = Path("/dev/shm")
_WANTED_BYTES = 2 << 30
"""Folders of tests that pass are deleted at once, so far less than this is used at any time."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

# a slow machine is not a failure, and a run does not depend on luck: `--hypothesis-profile=explore` draws new examples
settings.register_profile("explore", deadline=None)
settings.register_profile("tollgate", deadline=None, derandomize=True)
settings.load_profile("tollgate")


def pytest_configure(config: pytest.Config) -> None:
    """Places test folders in memory if there is enough: the tests open thousands of ledgers, and each syncs to disk a
    dozen times.

    Bytecode is kept beside the sources, whatever the environment sets. Compiling takes a third of a gateway's start,
    which the tests do a hundred times, and each process would rewrite every test's assertions for itself.
    """
    _reset_environment()
    gc.set_threshold(50_000, 20, 100)  # as the gateway itself runs; the default would add a third to collecting
    config.add_cleanup(gc.unfreeze)  # runs last: frozen objects would be reported as leaked when the process ends
    if _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _WANTED_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _reset_environment() -> None:
    """Removes environment settings on which tests would otherwise depend: proxies (clients use them even for
    loopback), terminal width and colours, unbuffered output (which hides what a full disk does), and the umask."""
    for name in _PROXIES:
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)
    for name in ("FORCE_COLOR", "NO_COLOR", "LINES", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)
    os.environ["COLUMNS"] = "80"
    os.umask(0o022)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Lets one process at a time collect a module: the first one rewrites its assertions, which is half the time of
    collecting, and the others reuse them."""
    if not isinstance(collector, pytest.Module) or not hasattr(collector.config, "workerinput"):
        return (yield)
    with collector.path.open() as source:
        fcntl.flock(source, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """Freezes the collected tests, which live until the end. Scanning them would take a tenth of the run."""
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Gives each asynchronous test an event loop that tolerates a busy machine."""
    return {"asyncio": PatientLoop}


@pytest.fixture
def within_one_day() -> None:
    """For tests whose results change at midnight (UTC): waits for it if it is less than half a minute away."""
    wait_until(lambda: f"{datetime.now(UTC):%H:%M:%S}" < "23:59:30")


@pytest.fixture
def shipped_mappings() -> Iterator[None]:
    """For tests that load a whole configuration but do not test the shipped mapping files: these are read once."""
    with read_once():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    executables = programs()
    if executables is None:
        pytest.skip("there is no PostgreSQL here: neither the test extra's nor the machine's")
    with running_postgres(executables) as server:
        yield server


@pytest.fixture
async def address(postgres: Server) -> AsyncIterator[str]:
    """The address of an empty database."""
    async with postgres.database() as made:
        yield made
