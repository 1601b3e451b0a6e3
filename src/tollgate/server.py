"""The lifecycle of the gateway process: opens the ledger and the client, serves the application, drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from tollgate import tokens
from tollgate.accounts import initial_account
from tollgate.app import App
from tollgate.config.build import load_settings
from tollgate.config.gateway import served_at
from tollgate.config.model import Gateway
from tollgate.config.settings import Server
from tollgate.dashboard import dashboard_app
from tollgate.discovery import Discoverer
from tollgate.engines import CLOSE_GRACE_SECONDS, engine_of
from tollgate.errors import ConfigErrors
from tollgate.health import Health
from tollgate.images.service import run_refresher
from tollgate.ledger import Ledger, ledger_of
from tollgate.metrics import Metrics
from tollgate.process import descriptors, memory, resident
from tollgate.reload import Reloader
from tollgate.remembered.minted import Minted
from tollgate.room import Room
from tollgate.routing import Sticky
from tollgate.runtime import Runtime, RuntimeHolder, build_runtime, load_or_report_all
from tollgate.sandbox import app as sandbox_app
from tollgate.services import Services
from tollgate.start_cache import StartCache
from tollgate.tools import ToolsApp
from tollgate.upstream import Client

log = logging.getLogger("tollgate.server")

_MIB = 1024**2
_LAST_WORDS_SECONDS = 0.5
"""The end of the drain time, in which requests that still run are answered with a shutdown error before the engine
drops their connections."""
_SETTLE_SECONDS = 10.0
"""The minimum time for writing the rows of ended requests, even if the drain time is shorter: counting tokens may
require loading an encoding first."""
_TIDY_SECONDS = 3.0
"""How long after the start `_tidy` runs. It delays concurrent requests by 20 ms (150 ms with all providers on)."""


@dataclass(slots=True)
class Opened:
    """A gateway that is ready to serve, for `close_gateway` at the end."""

    app: App
    services: Services
    reloader: Reloader
    first_key: str | None
    """The key of the default account, only when this start created it."""
    initial_account: str
    """The account to sign in to, for the printed text and `sign_in` (`accounts.initial_account`)."""
    sign_in: str | None = None
    """A one-time link to the dashboard for that account."""


Adjust = Callable[[Gateway], Gateway]
"""Applies the command line's options to the settings read, at the start and at each reload."""


def as_read(gateway: Gateway) -> Gateway:
    """The `Adjust` that changes nothing."""
    return gateway


def load(
    path: Path | None,
    environ: Mapping[str, str] | None = None,
    cache: StartCache | None = None,
    adjust: Adjust = as_read,
) -> Runtime:
    """Read and compile the configuration, reusing what `cache` has. Raises `ConfigErrors` with every problem."""
    loaded = load_or_report_all(
        path, environ=environ if environ is not None else os.environ, previous=cache.reusable if cache else None
    )
    for warning in loaded.warned():
        log.warning("%s", warning.render(source=False))
    if off := loaded.providers_off:
        log.info("%s", off)
    for note in loaded.notes:
        log.debug("%s", note)
    loaded = replace(loaded, gateway=adjust(loaded.gateway))
    runtime = build_runtime(loaded, code_cache=cache.code if cache else None)
    loaded.reusable.let_go()
    return runtime


def cache_of(path: Path | None) -> StartCache | None:
    """The start cache in this configuration's store; None if the gateway file has errors."""
    try:
        return StartCache(load_settings(path, environ=os.environ).store.directory)
    except ConfigErrors:
        return None  # `load` reports them together with the errors of all other files


async def open_gateway(
    runtime: Runtime,
    path: Path | None = None,
    *,
    bind: Callable[[], tuple[str, ...]] | None = None,
    adjust: Adjust = as_read,
) -> Opened:
    """Open the ledger, the upstream client and the background work. The caller must `close_gateway`.

    `bind` binds the addresses and returns them with their ports. It is called after the store is locked and before the
    first key is created: if binding fails, no key exists that was never shown. `adjust` is for reloads.
    """
    ledger = ledger_of(runtime.gateway.store, runtime.gateway.credits)
    await ledger.open()
    try:
        return await _opened(runtime, path, ledger, bind, adjust)
    except BaseException:
        await ledger.close()
        raise


async def _opened(
    runtime: Runtime, path: Path | None, ledger: Ledger, bind: Callable[[], tuple[str, ...]] | None, adjust: Adjust
) -> Opened:
    """`open_gateway` on an open ledger."""
    configured = runtime.gateway.server.bind
    bound = bind() if bind is not None else configured

    def at_ports(read: Gateway) -> Gateway:
        """These settings with the bound ports in place of port 0 (any free port)."""
        if bound == configured or read.server.bind != configured:
            return read
        return replace(read, server=served_at(read.server, bound))

    first_key = await ledger.ensure_default_account()
    account = await initial_account(ledger)
    await ledger.serve_admin()
    services = _services(replace(runtime, gateway=at_ports(runtime.gateway)), ledger)
    services.runtime.on_swap = partial(_use, services)
    discoverer = Discoverer(services.runtime, services.client, services.health)
    reloader = Reloader(services.runtime, path, adjust=lambda read: at_ports(adjust(read)))
    app = App(services)
    app.mount("/v1/images/mcp", ToolsApp(services), below=False)
    dashboard = services.runtime.current.gateway.dashboard.enabled
    sign_in = await _open_dashboard(app, services, reloader, account) if dashboard else None
    services.tasks.spawn(reloader.watch())
    services.tasks.spawn(discoverer.run())
    services.tasks.spawn(run_refresher(services))
    return Opened(app, services, reloader, first_key, account, sign_in)


def _services(runtime: Runtime, ledger: Ledger) -> Services:
    gateway = runtime.gateway
    client = Client()
    client.register_app("sandbox", sandbox_app)
    return Services(
        RuntimeHolder(runtime),
        ledger,
        client,
        Health(gateway.retry),
        Sticky(),
        Metrics(),
        ledger.register or Minted(gateway.store.directory / "minted.sqlite"),
        Room(_most_held(gateway.server)),
    )


def _use(services: Services, new: Runtime) -> None:
    """Pass the settings of a new runtime to everything that outlives a reload."""
    services.health.settings = new.gateway.retry
    services.health.keep(new.route_names(), new.providers)
    services.ledger.use(new.gateway.credits)
    services.room.allow(_most_held(new.gateway.server))


def _most_held(server: Server) -> int:
    """How many bytes of request bodies to hold at once: as configured, else a share of the memory, but always enough
    for the largest body. Logs a warning if the memory is too small for that."""
    allowed = memory.allowed()
    share = memory.for_bodies(allowed)
    most = server.max_bodies_bytes or max(share, server.max_body_bytes)
    if memory.needed(most) > allowed:
        log.warning(
            "%d MiB of memory may not be enough: up to %d MiB of request bodies are held at once, and processing them "
            "can take %d MiB; lower server.%s%s, or provide more memory",
            *(size // _MIB for size in (allowed, most, memory.needed(most))),
            "max_bodies_bytes" if server.max_bodies_bytes > server.max_body_bytes else "max_body_bytes",
            f" to {share // _MIB} MiB" if share >= _MIB else "",
        )
    return most


async def _open_dashboard(app: App, services: Services, reloader: Reloader, account: str) -> str:
    """Serve the web pages. Returns a sign-in link for `account`, and logs a warning if it is not an operator."""
    app.mount("/dashboard", dashboard_app(services, reloader))
    if (await services.ledger.get_account(account)).role != "operator":
        # all accounts were created by commands before the first start, or the last operator's role was changed
        log.warning(
            "no account is an operator, so nobody can see the operator's pages; "
            "to make one: tollgate accounts change %s --role operator",
            account,
        )
    return await services.ledger.create_link(account)


async def close_gateway(opened: Opened, waited: float = 0.0) -> None:
    """Wait for running requests, their usage rows and calls for image jobs, then close the client and the ledger.
    `waited` seconds of the drain time are over."""
    services = opened.services
    services.draining = True
    services.tasks.cancel()
    seconds = max(services.runtime.current.gateway.server.drain_seconds - waited, _SETTLE_SECONDS)
    # the engine does not wait for cancelled requests, which write their rows as they end
    await opened.app.wait_idle(seconds)
    await services.settlements.drain(seconds)
    if tokens.in_threads():  # a row with an estimate is better than none
        log.warning("counting tokens takes longer than a stop may: they are estimated from characters")
        with tokens.only_estimates():
            await services.settlements.drain(seconds)
    await services.client.close()
    services.minted.close()
    await services.ledger.close()


async def serve(
    runtime: Runtime,
    path: Path | None,
    announce: Callable[[Opened], None],
    cache: StartCache | None = None,
    adjust: Adjust = as_read,
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends requests that still run. `announce` is called once the
    gateway listens. `cache` is written for the next start; `adjust` changes the settings of reloads."""
    engine = engine_of(runtime.gateway.server)
    opened = await open_gateway(runtime, path, bind=engine.bind, adjust=adjust)
    stop = _stop_on_signals(opened)
    loop, stopped_at = asyncio.get_running_loop(), math.inf

    async def stopped() -> None:
        nonlocal stopped_at
        await stop.wait()
        stopped_at = loop.time()
        engine.drain_seconds = opened.services.runtime.current.gateway.server.drain_seconds
        # no new connections from now on, but requests that arrive soon on existing ones are still answered
        loop.call_later(2 * CLOSE_GRACE_SECONDS, setattr, opened.services, "draining", True)

    opened.services.tasks.spawn(_tidy(runtime, cache))
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # requests make few cycles; the default threshold spends 5 % of the hot path here
    gc.enable()
    try:
        await engine.serve(opened.app, stopped, lambda: announce(opened))
    finally:
        gc.unfreeze()  # else DuckDB's module reports its own types as leaks when the process ends
        await close_gateway(opened, max(0.0, loop.time() - stopped_at))


def _stop_on_signals(opened: Opened) -> asyncio.Event:
    """Install the signal handlers. The returned event is set by the first SIGTERM or SIGINT.

    Requests that still run are ended when the drain time is over, or by a second such signal. SIGHUP reloads.
    """
    services = opened.services
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def drain_seconds() -> float:
        return services.runtime.current.gateway.server.drain_seconds

    def end() -> None:
        if stop.is_set():
            hurry.set()
            return
        stop.set()
        if services.metrics.running:
            message = "stopping: %d running requests have %g seconds to finish; the same signal again ends them now"
            log.info(message, services.metrics.running, drain_seconds())

    async def cut() -> None:
        await stop.wait()
        seconds = drain_seconds()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hurry.wait(), max(seconds - _LAST_WORDS_SECONDS, seconds / 2))
        opened.app.cut()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, lambda: services.tasks.spawn(opened.reloader.reload()))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that arrived during the start is handled now
    services.tasks.spawn(cut())
    return stop


async def _tidy(runtime: Runtime, cache: StartCache | None) -> None:
    """Work that can wait until after the start: free memory that only the start needed, write the start cache, and have
    the rest of the memory in large pages."""
    await asyncio.sleep(_TIDY_SECONDS)
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    if cache is not None:
        await asyncio.to_thread(cache.write, runtime.loaded)
    await asyncio.to_thread(resident.trim)
    await asyncio.to_thread(resident.drop_code)
    await asyncio.to_thread(resident.use_large_pages)


def run(gateway: Coroutine[Any, Any, None]) -> None:
    """Run `serve` until it ends, on uvloop."""
    resident.use_one_heap()
    descriptors.raise_limit()
    uvloop.run(gateway)
