"""A stage of `tollgate check`: warnings about mappings, every example of every mapping and provider file, and coverage.

Examples need their whole file: in a file with an error elsewhere, or with a mapping that does not compile, they would
fail for that reason, so they are left for the next check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import nullcontext

from tollgate.config.build import Loaded
from tollgate.config.load import Problem, Scalar, items_of, lookup
from tollgate.mapping import CompiledMapping
from tollgate.mapping.coverage import Watch, covered
from tollgate.mapping.examples import run_examples
from tollgate.mapping.provider.examples import run_provider_examples
from tollgate.runtime import CompiledFiles


def run(
    loaded: Loaded, compiled: CompiledFiles, wrong: Collection[str], *, coverage: bool
) -> tuple[list[Problem], list[str]]:
    """The warnings about what compiles, and the examples that fail; with `coverage`, also the lines of mappings that
    no example reaches. Examples of the files in `wrong` are not run."""
    mappings, providers = list(compiled.mappings.values()), compiled.providers.values()
    found = [warning for mapping in mappings for warning in mapping.warnings]
    # a shared part is compiled with each file that uses it, and so are its warnings
    found += dict.fromkeys(warning for provider in providers for warning in provider.warnings)
    watch = Watch(mapping.file for mapping in mappings)
    with watch.watching() if coverage else nullcontext():
        found += _failures(loaded, compiled, wrong)
    return found, [lines.text() for lines in covered(mappings, watch)] if coverage else []


def _failures(loaded: Loaded, compiled: CompiledFiles, wrong: Collection[str]) -> Iterator[Problem]:
    broken = loaded.gateway.mappings.keys() - compiled.mappings.keys()
    for mapping in compiled.mappings.values():
        if mapping.file not in wrong and broken.isdisjoint(_others(mapping)):
            yield from run_examples(mapping, compiled.mappings)
    for provider in compiled.providers.values():
        document = provider.config.document
        files = {document.file, *(other.file for other in document.included)}
        spoken = {endpoint.mapping for endpoint in provider.config.endpoints.values()}
        if files.isdisjoint(wrong) and not spoken & broken:
            yield from run_provider_examples(provider)


def _others(mapping: CompiledMapping) -> Iterator[str]:
    """The mappings that the examples of a mapping name with `other:`."""
    for node in items_of(mapping.examples):
        other = lookup(node, "other")
        if isinstance(other, Scalar):
            yield other.text
