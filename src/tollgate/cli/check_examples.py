"""A stage of `tollgate check`: warnings about mappings, every example of every mapping and provider file, and coverage.

Examples need their whole file: in a file with an error elsewhere, or with a mapping that does not compile, they would
fail for that reason, so they are left for the next check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tollgate.config.load import Scalar, items_of, lookup
from tollgate.mapping.coverage import Watch, covered
from tollgate.mapping.examples import run_examples
from tollgate.mapping.provider.examples import run_provider_examples

if TYPE_CHECKING:
    from tollgate.cli.check import Report
    from tollgate.config.load import Problem
    from tollgate.mapping import Mapping
    from tollgate.runtime import CompiledFiles


def run(report: Report, *, coverage: bool) -> None:
    """Add the examples that fail; with `coverage`, list the lines of mappings that no example reaches."""
    files = report.compiled
    assert files is not None, "stages run on what compiles"
    for mapping in files.mappings.values():
        report.problems += mapping.warnings
    # a shared part is compiled with each file that uses it, and so are its warnings
    report.problems += dict.fromkeys(warning for each in files.providers.values() for warning in each.warnings)
    if not coverage:
        report.problems += _all(report, files)
        return
    watch = Watch(mapping.file for mapping in files.mappings.values())
    with watch.watching():
        report.problems += _all(report, files)
    report.said += [found.text() for found in covered(list(files.mappings.values()), watch)]


def _all(report: Report, files: CompiledFiles) -> Iterable[Problem]:
    assert report.loaded is not None, "stages run on what loads"
    wrong, broken = report.wrong_files, report.loaded.gateway.mappings.keys() - files.mappings.keys()
    found: list[Problem] = []
    for mapping in files.mappings.values():
        if mapping.file not in wrong and broken.isdisjoint(_others(mapping)):
            found += run_examples(mapping, files.mappings)
    for provider in files.providers.values():
        document = provider.config.document
        spoken = {endpoint.mapping for endpoint in provider.config.endpoints.values()}
        if wrong.isdisjoint((document.file, *(other.file for other in document.included))) and not spoken & broken:
            found += run_provider_examples(provider)
    return found


def _others(mapping: Mapping) -> Iterator[str]:
    """The mappings that the examples of a mapping name with `other:`."""
    for node in items_of(mapping.examples):
        other = lookup(node, "other")
        if isinstance(other, Scalar):
            yield other.text
