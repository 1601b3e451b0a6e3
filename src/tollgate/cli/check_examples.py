"""A stage of `tollgate check`: warnings of the mappings, every example of every mapping and provider file,
and coverage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tollgate.mapping.coverage import Watch, covered
from tollgate.mapping.examples import run_examples
from tollgate.mapping.provider.examples import run_provider_examples

if TYPE_CHECKING:
    from tollgate.cli.check import Options, Report
    from tollgate.config.load import Problem
    from tollgate.runtime import Runtime


def run(report: Report, options: Options) -> None:
    """Add what is wrong with the examples; with `--coverage`, say which lines of the mappings none of them reaches."""
    runtime = report.runtime
    assert runtime is not None, "stages run on what compiles"
    mappings = list(runtime.mappings.values())
    for mapping in mappings:
        report.problems += mapping.warnings
    # what several files share is compiled, and warned of, with each of them
    report.problems += dict.fromkeys(warning for each in runtime.providers.values() for warning in each.warnings)
    if not options.coverage:
        report.problems += _all(runtime)
        return
    watch = Watch(mapping.file for mapping in mappings)
    with watch.watching():
        report.problems += _all(runtime)
    report.said += [found.text() for found in covered(mappings, watch)]


def _all(runtime: Runtime) -> Iterable[Problem]:
    found: list[Problem] = []
    for mapping in runtime.mappings.values():
        found += run_examples(mapping, runtime.mappings)
    for provider in runtime.providers.values():
        found += run_provider_examples(provider)
    return found
