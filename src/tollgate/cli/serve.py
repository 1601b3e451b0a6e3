"""`tollgate serve`: the gateway itself. Prints its addresses and, on the first start, a key and a request to try."""

from __future__ import annotations

import gc
import logging
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from tollgate.cli.address import addresses
from tollgate.cli.books import config_option
from tollgate.cli.standard_streams import let_go_of_output, log_handler
from tollgate.errors import ConfigErrors, TollgateError

if TYPE_CHECKING:
    from tollgate.config.settings import EngineName
    from tollgate.server import Opened


log = logging.getLogger("tollgate.cli.serve")


def instance_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """The same name; `BadParameter` (exit code 2) if a file name cannot contain it."""
    from tollgate.config.schema import INSTANCE

    if value is not None and not re.fullmatch(INSTANCE, value):
        raise click.BadParameter(f'"{value}" is no name of a gateway; wanted letters, digits, - and _')
    return value


@click.command(help="Run the gateway.")
@config_option
@click.option(
    "--bind",
    multiple=True,
    callback=addresses,
    help="Address to listen on instead of the configured ones, as host:port; may be repeated.",
)
@click.option(
    "--engine",
    type=click.Choice(["hypercorn", "uvicorn"]),
    help="HTTP server to use instead of the configured one.",
)
@click.option(
    "--instance",
    envvar="TOLLGATE_INSTANCE",
    callback=instance_name,
    show_envvar=True,
    help="Name of this gateway instead of the configured one: where several share a store, each needs its own.",
)
@click.option(
    "--log-level",
    default="info",
    type=click.Choice(["debug", "info", "warning", "error"]),
    show_default=True,
    help="How much the log on standard error tells; debug has every failed attempt.",
)
def command(
    path: Path | None, bind: tuple[str, ...], engine: EngineName | None, instance: str | None, log_level: str
) -> None:
    # until the server handles it: a reload asked for during the start would end the process, and systemd takes that for
    # a clean end, after which `Restart=on-failure` starts no new one
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    set_logging(log_level)
    gc.disable()  # until the server starts: everything made before then is kept for ever
    from dataclasses import replace

    from tollgate import server
    from tollgate.config.gateway import served_at
    from tollgate.config.model import Gateway

    def adjusted(gateway: Gateway) -> Gateway:
        """The settings with the options of the command line, which also apply after a reload."""
        store = replace(gateway.store, instance=instance) if instance else gateway.store
        return replace(gateway, server=served_at(gateway.server, bind, engine), store=store)

    try:
        cache = server.cache_of(path)
        runtime = server.load(path, cache=cache, adjust=adjusted)
    except ConfigErrors as errors:
        from tollgate.config.older_files import advice

        _fail("\n".join([str(errors), *advice(errors.problems), "", "the gateway did not start"]))
    try:
        server.run(server.serve(runtime, path, _announce, cache, adjusted))
    except (OSError, TollgateError) as error:
        _fail(f"the gateway could not start: {error}")


def _fail(message: str) -> NoReturn:
    """End with exit code 1, with a message after the lines of the log."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    click.echo(message, err=True)
    sys.exit(1)


def set_logging(level: str) -> None:
    """Log the gateway's own lines from this level on, and warnings of libraries. Lower levels of libraries are left
    out: the one that reads HTTP/2 headers logs them, with keys and cookies."""
    logging.basicConfig(
        level=max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        handlers=[log_handler()],
    )
    logging.getLogger("tollgate").setLevel(level.upper())


def _announce(opened: Opened) -> None:
    from tollgate.config.settings import Server

    settings = opened.services.runtime.current.gateway.server
    base = settings.base_url
    lines = ["", f"Tollgate is listening on {', '.join(settings.bind)}", f"  base URL   {base}/v1"]
    if base == Server().base_url and all(place.startswith("unix:") for place in settings.bind):
        lines[-1] += "   (a guess: server.base_url is to be the address of the proxy in front)"
    dashboard = [f"  dashboard  {opened.sign_in}   (signs in once, within 15 minutes)"] if opened.sign_in else []
    if opened.first_key:
        model = opened.services.runtime.current.catalog.example()
        lines += [
            f"  key        {opened.first_key}   (account default; shown once)",
            *dashboard,
            "",
            "Try it:",
            "",
            f"curl {base}/v1/chat/completions \\",
            f"  -H 'Authorization: Bearer {opened.first_key}' -H 'Content-Type: application/json' \\",
            f"""  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'""",
        ]
    else:
        lines += [
            f"  key        the ones made before; a new one: tollgate keys create --account {opened.initial_account}",
            *dashboard,
        ]
    try:
        click.echo("\n".join(lines) + "\n")
        sys.stdout.flush()
    except OSError as error:  # its reader is gone, or its disk is full: serve anyway
        let_go_of_output()
        log.warning(
            "what a start prints went nowhere (%s); another key: tollgate keys create --account %s, "
            "another sign-in link: tollgate accounts link",
            error.strerror,
            opened.initial_account,
        )
