"""`tollgate catalog import`: a facts file about models on sale becomes the model files of providers,
after a look at the diff."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import click

from tollgate.catalog_import import NAMES_SCHEMA, SCHEMA, Import, Source, changes, import_models, offers_of, write
from tollgate.cli.books import fail
from tollgate.cli.whole_files import write_whole
from tollgate.config.included import read_whole
from tollgate.config.load import Map, plain, read_file
from tollgate.config.shape import check_shape

_MOST_LINES = 200
"""Lines of one file's diff; the summary above it is complete."""


@click.group(help="Import model lists and prices.")
def command() -> None:
    """The group; its only command is `import`."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """One file to write."""

    path: Path
    before: str
    after: str
    changes: list[str]
    left_out: list[str]


@command.command("import", short_help="Turn a facts file into models files, and show what changes first.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--provider",
    help="Only this provider of the facts file. Default: refresh every models file there is.",
)
@click.option("--as", "name", help="The provider's name here, when it differs.")
@click.option("--only", multiple=True, metavar="GLOB", help="Only these models (with --provider).")
@click.option("--without", multiple=True, metavar="GLOB", help="All but these models (with --provider).")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("providers/models"),
    show_default=True,
    help="The folder of models files, below the one with the providers.",
)
@click.option("--yes", is_flag=True, help="Write without asking.")
def import_command(
    file: Path,
    provider: str | None,
    name: str | None,
    only: tuple[str, ...],
    without: tuple[str, ...],
    out: Path,
    yes: bool,
) -> None:
    """Turn a facts file (JSON: `models`, one entry for each offer) into models files, and show what changes first.

    A models file says under `from` what it was made from, so that without --provider all of them are brought up to
    date. Keys that a person added to an entry are kept.
    """
    facts = _facts(file)
    try:
        listed = {offer["provider"] for offer in offers_of(facts)}
        if provider is not None:
            planned = [_one(facts, Source(provider, only, without), name or provider, out)]
        else:
            planned = [
                _one(facts, source, path.stem, out) for path, source in _present(out) if source.provider in listed
            ]
    except ValueError as error:
        fail(f"{file}: {error}")
    if provider is not None and provider not in listed:
        fail(f'{file}: found no offers of "{provider}", it has {", ".join(sorted(listed))}')
    if not planned:
        fail(f"{out}: found no models file with a `from`; name one with --provider")
    for plan in planned:
        _show(plan)
    _write([plan for plan in planned if plan.before != plan.after], yes)


def _write(changed: list[_Planned], yes: bool) -> None:
    """Write these files, unless the answer to the question is no."""
    if not changed:
        click.echo("nothing changes")
        return
    if not yes and not click.confirm(f"Write {len(changed)} file{'s' if len(changed) > 1 else ''}?", default=False):
        fail("nothing was written")
    for plan in changed:
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(plan.path, plan.after)
        click.echo(f"wrote {plan.path}")
    for plan in changed:
        if not plan.before:
            click.echo(
                f"{plan.path.parent.parent / plan.path.name} names it with: models_from: "
                f"{plan.path.parent.name}/{plan.path.name}"
            )


def _facts(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes(), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        fail(f"{file}: found no JSON: {error}")


def _present(out: Path) -> list[tuple[Path, Source]]:
    found = []
    for path in sorted(out.glob("*.yaml")):
        source = _tree(path, "models").get("from")
        if isinstance(source, dict) and source.get("provider"):
            found.append(
                (path, Source(source["provider"], tuple(source.get("only") or ()), tuple(source.get("without") or ())))
            )
    return found


def _one(facts: Any, source: Source, name: str, out: Path) -> _Planned:
    path = out / f"{name}.yaml"
    before = path.read_text("utf-8") if path.is_file() else ""
    kept = _tree(path, "models").get("models") or {} if before else {}
    speaks = _tree(out.parent / f"{name}.yaml", "provider").get("speaks") or {}
    made: Import = import_models(facts, source, speaks=[speaks] if isinstance(speaks, str) else list(speaks), kept=kept)
    after = write(made, name, _schema(path, before))
    return _Planned(path, before, after, changes(kept, made.models), made.left_out)


def _schema(path: Path, before: str) -> str:
    """The comment that names the schema for editors: the file's own, or that of the starter set which a new file
    belongs to."""
    first = before.partition("\n")[0]
    if first.startswith(NAMES_SCHEMA):
        return first
    schemas = path.parent.parent.parent / "schemas" / "models.schema.json"
    return f"{NAMES_SCHEMA}../../schemas/{schemas.name}" if schemas.is_file() else SCHEMA


def _tree(path: Path, kind: Literal["models", "provider"]) -> dict[str, Any]:
    """A YAML file as plain values; empty if there is no file. One that does not load ends the command, because its
    content would be lost."""
    if not path.is_file():
        return {}
    document = read_file(path) if kind == "models" else read_whole(path)
    misshapen = check_shape(document, kind)[0] if isinstance(document.root, Map) else []
    problems = document.problems + misshapen
    if problems:
        fail(f"not imported, because the file at hand does not load:\n{problems[0].render()}")
    tree = plain(document.root)
    return tree if isinstance(tree, dict) else {}


def _show(plan: _Planned) -> None:
    summary = f"{len(plan.changes)} models differ" if plan.changes else "the same models"
    click.secho(f"{plan.path}: {summary}", bold=True)
    for line in plan.changes:
        click.secho(f"  {line}", fg={"+": "green", "-": "red"}.get(line[0], "yellow"))
    for line in plan.left_out:
        click.echo(f"  left out: {line}")
    if plan.before and plan.before != plan.after:
        lines = list(
            difflib.unified_diff(plan.before.splitlines(), plan.after.splitlines(), "now", "then", lineterm="", n=1)
        )
        for line in lines[:_MOST_LINES]:
            click.secho(line, fg={"+": "green", "-": "red"}.get(line[0]))
        if len(lines) > _MOST_LINES:
            click.echo(f"... {len(lines) - _MOST_LINES} more lines")
