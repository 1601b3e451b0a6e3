"""The `tollgate` command. Each subcommand is a module beside this one, with a click command named `command`.

A module is imported only when its command runs: `tollgate --help` starts as fast as click alone.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from typing import Any

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("tollgate.cli.serve", "Run the gateway."),
    "check": ("tollgate.cli.check", "Check the configuration and say everything that is wrong with it."),
    "init": ("tollgate.cli.init", "Write a starter configuration into a folder."),
    "models": ("tollgate.cli.models", "List the models on offer, their routes and prices."),
    "convert": ("tollgate.cli.convert", "Convert a request, answer or stream from one protocol to another."),
    "accounts": ("tollgate.cli.accounts", "Create, show and change accounts; passwords, sign-in links."),
    "keys": ("tollgate.cli.keys", "Create, list, change and revoke keys."),
    "credits": ("tollgate.cli.credits", "Grant credits and show balances."),
    "store": ("tollgate.cli.store", "Move an embedded store into one that several gateways share."),
    "usage": ("tollgate.cli.usage", "Report on usage, with canned or free SQL."),
    "catalog": ("tollgate.cli.catalog", "Import model lists and prices."),
    "sandbox": ("tollgate.cli.sandbox", "Run the sandbox provider as a server of its own."),
}
"""Name -> module and its line of help. The order is that of `--help`."""


class _Lazy(click.Group):
    """A click group that imports a subcommand when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from tollgate.wording import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(error.format_message() + (f" ({hint})" if hint else ""), ctx) from None

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command. One that failed ends with its own exit code, even if standard output cannot be written."""
        if None in (sys.stdin, sys.stdout, sys.stderr):  # a standard stream came closed (`>&-`)
            from tollgate.cli.standard_streams import open_all

            open_all()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # for locales without UTF-8, as standard error does it
        try:
            return super().main(*args, **extra)
        except SystemExit as end:
            if end.code:
                _drop_unwritable_output()
            raise
        except OSError as error:  # of --help and --version
            click.echo(str(error), err=True)
            _drop_unwritable_output()
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        """Report an error that a command did not catch in one line, and end with exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # for click: the reader of our output has gone
        except click.UsageError as error:
            hint = _suggested_option(error)
            if not hint:
                raise
            raise click.UsageError(error.message + hint, error.ctx) from None
        except OSError as error:
            click.echo(f"{error.filename}: {error.strerror}" if error.filename else str(error), err=True)
        except Exception as error:
            from tollgate.errors import TollgateError

            if isinstance(error, TollgateError):
                click.echo(str(error), err=True)
            elif broken := next((each for each in sys.argv[1:] if not _is_text(each)), None):
                click.echo(f"an argument is not valid UTF-8: {broken}", err=True)
            else:
                raise
        sys.exit(1)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help lines come from the table: asking each command for its help would import it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


def _is_text(argument: str) -> bool:
    """Whether an argument of the command line could be decoded, as all but the names of files must be."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _drop_unwritable_output() -> None:
    from tollgate.cli.standard_streams import drop_unwritable_output

    drop_unwritable_output()


def _suggested_option(error: click.UsageError) -> str:
    """The option that an unexpected argument was probably meant for; "" for any other mistake."""
    extra = re.fullmatch(r"Got unexpected extra arguments? \((\S+)\)", error.message)
    if extra is None or error.ctx is None:
        return ""
    text = extra[1]
    known = {name for option in error.ctx.command.params for name in option.opts}
    if text.startswith("req_"):
        fits = "--text"
    elif text.endswith((".yaml", ".yml")) or os.path.exists(text):
        fits = "--config"
    else:
        fits = "--account"
    return f" (did you mean {fits} {text}?)" if fits in known else ""


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"tollgate {version('tollgate')}")
        except PackageNotFoundError:
            click.echo("tollgate, from a checkout")
        ctx.exit()


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say the version.")
def main() -> None:
    """Tollgate: one address, one key and one balance in front of every model provider."""
