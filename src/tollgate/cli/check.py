"""`tollgate check`: finds all mistakes of a configuration at once, offline.

The configuration is loaded and compiled; then each stage, a module beside this one, returns its findings. A mistake in
one file or place does not hide those in others, so that an operator can fix all of them in one go. Exit code 0: it
loads and runs; 1: it does not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click

from tollgate.cli import check_answers, check_content, check_examples, check_fields, check_running, check_texts
from tollgate.cli.books import config_option
from tollgate.cli.whole_files import write_whole
from tollgate.config.build import Loaded, examine_gateway, in_order
from tollgate.config.load import Problem
from tollgate.config.model import Rank, rank_of
from tollgate.config.older_files import advice
from tollgate.config.schema_export import export
from tollgate.errors import ConfigErrors
from tollgate.process.garbage_collector import collector_paused
from tollgate.runtime import CompiledFiles, compile_files


@dataclass(slots=True)
class Report:
    """The findings. `loaded` is the configuration without its wrong parts, `compiled` the part of it that compiles;
    each is None if nothing is left."""

    problems: list[Problem] = field(default_factory=list)
    loaded: Loaded | None = None
    compiled: CompiledFiles | None = None
    uncovered: list[str] = field(default_factory=list)
    """With `--coverage`: the lines of mappings that no example reaches."""
    loads: bool = False
    """Whether all files load."""

    @property
    def errors(self) -> list[Problem]:
        """The errors, which keep the configuration from running."""
        return [problem for problem in self.problems if problem.level == "error"]

    @property
    def wrong_files(self) -> frozenset[str]:
        """The files with an error, by their names in messages."""
        return frozenset(problem.mark.file for problem in self.errors)


@click.command(help="Check the configuration and say everything that is wrong with it.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--routes", is_flag=True, help="Print every model with its routes, in the order they are tried.")
@click.option("--coverage", is_flag=True, help="Print which lines of the mappings no example reaches.")
@click.option(
    "--write-schema",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the JSON Schemas for editors into a folder, and stop.",
)
def command(path: Path | None, as_json: bool, routes: bool, coverage: bool, write_schema: Path | None) -> None:
    if write_schema:
        for written in write_schemas(write_schema):
            click.echo(written)
        return
    report = check(path, coverage=coverage)
    if as_json:
        click.echo(json.dumps(_as_json(report, routes), indent=2))
    else:
        _print(report, routes)
    sys.exit(1 if report.errors else 0)


@collector_paused()
def check(path: Path | None, *, coverage: bool = False) -> Report:
    """Load, compile and run every stage; each stage works on what is left after earlier errors. With `coverage` the
    report lists the lines of mappings that no example reaches."""
    report = Report()
    try:
        report.loaded, problems = examine_gateway(path, environ=os.environ, everything=True)
        report.problems += problems
        report.loads = not report.errors
        if report.loaded is not None:
            report.compiled = compile_files(report.loaded, everything=True)
            report.problems += report.compiled.problems
            _add(report, check_running.problems(report.loaded.gateway))
            _add(report, check_content.problems(report.compiled.mappings.values()))
            _add(report, check_texts.problems(report.compiled.mappings.values()))
            _add(report, check_answers.problems(report.compiled.mappings.values()))
            _add(report, check_fields.problems(report.compiled.providers.values(), report.compiled.mappings))
            found, report.uncovered = check_examples.run(
                report.loaded, report.compiled, report.wrong_files, coverage=coverage
            )
            _add(report, found)
    except ConfigErrors as errors:
        report.problems += errors.problems
    report.problems = in_order(report.problems)
    return report


def _add(report: Report, found: Iterable[Problem]) -> None:
    """Add the findings of a stage; a warning is left out if it only follows from an error in the same file."""
    wrong = report.wrong_files
    report.problems += [each for each in found if each.level == "error" or each.mark.file not in wrong]


def write_schemas(folder: Path) -> list[Path]:
    """Write the JSON Schemas of all kinds of files into a folder, with those of other parts of the package."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        file.name: file.read_text("utf-8") for file in (Path(__file__).parent.parent / "schemas").glob("*.schema.json")
    }
    texts |= {name: json.dumps(schema, indent=1) + "\n" for name, schema in export().items()}
    for name, text in sorted(texts.items()):
        write_whole(folder / name, text)
    return [folder / name for name in sorted(texts)]


def _print(report: Report, routes: bool) -> None:
    """Errors come last, above the summary: hundreds of warnings or notes do not push them off the screen."""
    for line in report.uncovered:
        click.echo(line)
    if report.loaded and report.loads:
        if routes:
            for model, found in _routes(report.loaded).items():
                click.echo(f"{model} <- {'; '.join(found)}")
        for note in report.loaded.notes:
            click.echo(note)
    for problem in sorted(report.problems, key=lambda each: each.level == "error"):
        colour = "red" if problem.level == "error" else "yellow"
        head, _, source = problem.render().partition("\n")
        click.echo(click.style(head, fg=colour) + ("\n" + source if source else ""), err=True)
    for line in advice(report.problems):
        click.echo(line, err=True)
    click.echo(_summary(report))


def _routes(loaded: Loaded) -> dict[str, list[str]]:
    """Each model's routes in the order they are tried, as `provider:upstream (endpoints)`."""
    by_model: dict[str, list[Rank]] = {}
    for provider in loaded.gateway.providers.values():
        for model in provider.models if not provider.off else ():
            spoken = [endpoint.name for endpoint in provider.serving(model)]
            route = f"{provider.name}:{model.upstream} ({', '.join(spoken or ['images'])})"
            by_model.setdefault(model.id, []).append(rank_of(model.priority, model.weight, route))
    return {name: [route for _, _, route in sorted(by_model[name])] for name in sorted(by_model)}


def _counts(report: Report) -> dict[str, int]:
    errors = len(report.errors)
    counts = {"errors": errors, "warnings": len(report.problems) - errors}
    if report.loaded and report.loads:
        providers = report.loaded.gateway.providers.values()
        on = [provider for provider in providers if not provider.off]
        counts |= {
            "files": len(report.loaded.gateway.files),
            "providers_on": len(on),
            "providers_off": len(providers) - len(on),
            "models": len({model.id for provider in on for model in provider.models}),
            "routes": sum(len(provider.models) for provider in on),
        }
    return counts


def _summary(report: Report) -> str:
    counts = _counts(report)
    verdict = f"{_many(counts['errors'], 'error')}, {_many(counts['warnings'], 'warning')}"
    if not report.loads:
        return (
            f"{verdict} in {_many(len({problem.mark.file for problem in report.problems}), 'file')}; nothing was loaded"
        )
    return (
        f"{_many(counts['files'], 'file')}, {_many(counts['providers_on'], 'provider')} on, {counts['providers_off']} "
        f"off, {_many(counts['models'], 'model')}, {_many(counts['routes'], 'route')}: {verdict}"
    )


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _as_json(report: Report, routes: bool) -> dict[str, object]:
    return {
        "ok": not report.errors,
        **_counts(report),
        "problems": [
            problem.mark._asdict() | {name: getattr(problem, name) for name in ("level", "path", "message", "hint")}
            for problem in report.problems
        ],
        "providers": [
            {"name": provider.name, "on": not provider.off, "why_off": provider.off, "models": len(provider.models)}
            for provider in (report.loaded.gateway.providers.values() if report.loaded and report.loads else ())
        ],
        **({"routes": _routes(report.loaded)} if routes and report.loaded and report.loads else {}),
        "said": report.uncovered,
    }
