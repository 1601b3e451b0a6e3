"""Checks the addresses of `--bind` before anything is started."""

from __future__ import annotations

import re

import click

from tollgate.config.schema import BIND


def read_address(value: str, *, unix: bool = True) -> str:
    """The same address; `BadParameter` (exit code 2) if it is invalid."""
    known = re.fullmatch(BIND, value) is not None and (unix or not value.startswith("unix:"))
    if not known or (not value.startswith("unix:") and int(value.rpartition(":")[2]) > 65535):
        raise click.BadParameter(
            f'"{value}" is no address; wanted host:port, [v6]:port{", :port or unix:/path" if unix else " or :port"}'
        )
    return value


def addresses(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of an option that may be repeated."""
    return tuple(read_address(value) for value in values)


def network_address(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Callback of an option with one address, which cannot be a unix socket."""
    return read_address(value, unix=False)
