"""A stage of `tollgate check`: mappings that take any JSON for an answer.

Many services report errors with status 200. A body in which a mapping finds neither content nor a stop reason is a
failure, after which another route is tried; a stop reason that does not depend on the body makes it an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tollgate.config.load import Problem, find, lookup
from tollgate.mapping import CompiledMapping, Context, MappingFailure, response_to_hub


def problems(mappings: Iterable[CompiledMapping]) -> Iterator[Problem]:
    """A warning about every mapping that finds an answer in an empty object."""
    for mapping in mappings:
        if mapping.hub or "response.to_hub" not in mapping.sections:
            continue
        try:
            hub = response_to_hub(mapping, {}, Context({"upstream": "model"}))
        except MappingFailure:
            continue
        if hub.get("stop") and not hub["parts"]:
            section = find(mapping.document.root, ["response", "to_hub"])
            yield mapping.document.warning(
                lookup(section, "stop") or section,
                "takes any JSON without content, such as an error with status 200, for an empty answer, and bills it",
                hint="let it depend on the answer: `stop: {$when: $.output is present, $value: end}`, or "
                "`$absent: $nothing` beside `$match`",
            )
