"""`tollgate init`: a starter set to edit - the built-in gateway.yaml, providers and mappings,
with schemas for the editor."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tollgate.cli.check import write_schemas
from tollgate.cli.whole_files import write_whole
from tollgate.config.files import GATEWAY_FILE, defaults_root

_REPOSITORY = "src/tollgate/schemas/"
"""The path of the schemas in the shipped files, which are the repository's own."""
_MOST_NAMED = 5
"""Existing files that are listed by name; if there are more, they are counted."""


@click.command(
    help="Write a starter configuration into FOLDER (default: this one). Nothing that exists is overwritten."
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("."))
def command(folder: Path) -> None:
    files = starter_files(folder)
    existing = [target for target in files if target.exists()]
    if existing:
        click.echo("nothing was written, for these exist already:", err=True)
        for target in existing[:_MOST_NAMED]:
            click.echo(f"  {target}", err=True)
        if len(existing) > _MOST_NAMED:
            click.echo(f"  and {len(existing) - _MOST_NAMED} more", err=True)
        click.echo("tollgate init FOLDER writes all of them into a new folder, to copy from", err=True)
        sys.exit(1)
    written: list[Path] = []
    try:
        for target, text in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, text)
            written.append(target)
        write_schemas(folder / "schemas")
    except OSError:  # a part of the files would prevent the next try
        for target in written:
            target.unlink()
        raise
    click.echo(
        f"wrote {len(files)} files to {folder}: gateway.yaml, providers/, mappings/, and schemas/ for the editor"
    )
    click.echo(
        f"next: tollgate check --config {folder / 'gateway.yaml'} names the providers' secrets; set one, and run "
        "tollgate serve"
    )


def starter_files(folder: Path) -> dict[Path, str]:
    """The files of the starter set: the path to write each to, and its text."""
    root = defaults_root()
    found = [root / GATEWAY_FILE, *sorted(root.glob("providers/**/*.yaml")), *sorted(root.glob("mappings/*.yaml"))]
    return {
        folder / source.relative_to(root): source.read_text("utf-8").replace(_REPOSITORY, "schemas/")
        for source in found
    }
