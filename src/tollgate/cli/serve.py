"""`tollgate serve`: the gateway itself. Prints where it listens and, on its first start, a key and a request to try."""

from __future__ import annotations

import gc
import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tollgate.cli.address import addresses
from tollgate.cli.books import config_option
from tollgate.errors import ConfigErrors, TollgateError

if TYPE_CHECKING:
    from tollgate.config.model import EngineName
    from tollgate.server import Opened


def instance_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """The name as it is; `BadParameter` (exit code 2) for one that no file could carry."""
    from tollgate.config.schema import INSTANCE

    if value is not None and not re.match(INSTANCE, value):
        raise click.BadParameter(f"\"{value}\" is no name of a gateway; wanted letters, digits, - and _")
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
    default=None,
    help="HTTP server to use instead of the configured one.",
)
@click.option(
    "--instance", envvar="TOLLGATE_INSTANCE", callback=instance_name, show_envvar=True,
    help="Name of this gateway instead of the configured one: where several share a store, each needs its own.",
)
@click.option(
    "--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True,
    help="How much the log on standard error tells; debug has every failed attempt.",
)
def command(
    path: Path | None, bind: tuple[str, ...], engine: EngineName | None, instance: str | None, log_level: str
) -> None:
    set_logging(log_level)
    gc.disable()  # until the server starts: everything made before then stays
    from dataclasses import replace

    from tollgate import server
    from tollgate.config.model import Gateway
    from tollgate.config.server import served_at

    def adjusted(gateway: Gateway) -> Gateway:
        """What the command line says holds after a reload too."""
        store = replace(gateway.store, instance=instance) if instance else gateway.store
        return replace(gateway, server=served_at(gateway.server, bind, engine), store=store)

    try:
        cache = server.cache_of(path)
        runtime = server.load(path, cache=cache, adjust=adjusted)
    except ConfigErrors as errors:
        click.echo(str(errors), err=True)
        click.echo("\nthe gateway did not start", err=True)
        sys.exit(1)
    try:
        server.run(server.serve(runtime, path, _announce, cache, adjusted))
    except (OSError, TollgateError) as error:
        click.echo(f"the gateway could not start: {error}", err=True)
        sys.exit(1)


def set_logging(level: str) -> None:
    """Write the gateway's own lines from this level on, and warnings of the libraries: what they say below that is not
    ours to answer for. The one that reads the headers of HTTP/2 writes them down, keys and cookies included."""
    logging.basicConfig(
        level=max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("tollgate").setLevel(level.upper())


def _announce(opened: Opened) -> None:
    settings = opened.services.runtime.current.gateway.server
    base = settings.base_url
    lines = ["", f"Tollgate is listening on {', '.join(settings.bind)}", f"  base URL   {base}/v1"]
    if opened.first_key:
        model = opened.services.runtime.current.catalog.example()
        lines += [
            f"  key        {opened.first_key}   (account default; shown once)",
            "",
            "Try it:",
            "",
            f"curl {base}/v1/chat/completions \\",
            f"  -H 'Authorization: Bearer {opened.first_key}' -H 'Content-Type: application/json' \\",
            f"""  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'""",
        ]
    else:
        lines.append(f"  key        the ones made before; a new one: tollgate keys create --account {opened.starter}")
    if opened.sign_in:
        lines.insert(
            4 if opened.first_key else len(lines), f"  dashboard  {opened.sign_in}   (signs in once, within 15 minutes)"
        )
    click.echo("\n".join(lines) + "\n")
    sys.stdout.flush()
