"""A stage of `tollgate check`: fields that a provider file reads or changes, and that its format spells otherwise, or
has only in the items of a list.

Any field is possible, because a provider may have its own. So a name is only reported if it stands once in the files of
the provider, and is one letter away from a name in the mapping of a format that the provider speaks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, reduce

from tollgate.config.load import List, Map, Node, Problem, Scalar, entries_of, items_of, lookup, text_in, walk
from tollgate.config.model import Provider
from tollgate.mapping import CompiledMapping
from tollgate.mapping.edits.reading import VERBS
from tollgate.mapping.provider.compile import CompiledProvider

_WORD = re.compile(r"[A-Za-z_]\w*")
_READ = re.compile(r"\$\w*(?:\.[A-Za-z_]\w*|\[[^\]]*\])+")
_FIELD = re.compile(r"(?<=\.)[A-Za-z_]\w*")
_NAMED = re.compile(r"(?<=[.@])[A-Za-z_]\w*|[A-Za-z_]\w*(?=:)|(?<=[\[ ])[A-Za-z_]\w*(?=[,\]])")
"""The fields that a mapping names: in a path, as a key, in a list of names."""
_LIST = re.compile(r"\$\.(\w+)\[(?:-?\d+|\*|\?)|\bin \$\.(\w+)(?=[\s,\"}]|\Z)")
"""The fields of a document that a mapping reads as a list."""
_OF_ALL = re.compile(r"\$\.(\w+)(\.\w+)")
"""The beginning of a path that reads a field of a field."""
_SHORTEST = 5
"""Shorter names are near to others by chance."""
_EDITED = ("request", "response", "stream")
_READING = ("errors", "usage")


def problems(providers: Iterable[CompiledProvider], mappings: Mapping[str, CompiledMapping]) -> Iterator[Problem]:
    """Warnings about every such name."""
    names_of = cache(lambda name: _Names.of(mappings[name].document.text))
    for provider in providers:
        spoken = {endpoint.mapping for endpoint in provider.config.endpoints.values()} & mappings.keys()
        if spoken:
            names = reduce(_Names.beside, map(names_of, spoken))
            yield from _misspelt(provider.config, names.words, names.fields)
            yield from _unlisted(provider.config, names.lists)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names in a mapping file: all its words, those of fields, and of fields of a document that are lists."""

    words: frozenset[str]
    fields: frozenset[str]
    lists: frozenset[str]

    @classmethod
    def of(cls, text: str) -> _Names:
        lists = {one or two for one, two in _LIST.findall(text)} - {one for one, _ in _OF_ALL.findall(text)}
        return cls(frozenset(_WORD.findall(text)), frozenset(_NAMED.findall(text)), frozenset(lists))

    def beside(self, other: _Names) -> _Names:
        """Those of both files."""
        return _Names(self.words | other.words, self.fields | other.fields, self.lists | other.lists)


def _unlisted(provider: Provider, lists: AbstractSet[str]) -> Iterator[Problem]:
    """Paths of edits to a field of what is a list: `$.messages.name` finds nothing. Errors have many shapes."""
    for path, node in _paths(provider.document.root, _EDITED):
        found = _OF_ALL.match(path)
        if found and found[1] in lists:
            message = f"found `{found[0]}`, but `{found[1]}` is a list"
            hint = f"of each of them: $.{found[1]}[*]{found[2]}"
            yield provider.document.warning(node, message, hint=hint)


def _misspelt(provider: Provider, words: AbstractSet[str], named: AbstractSet[str]) -> Iterator[Problem]:
    document = provider.document
    count = Counter(word for each in (document, *document.shared) for word in _WORD.findall(each.text))
    for word, node in _fields(document.root):
        if len(word) >= _SHORTEST and count[word] == 1 and word not in words:
            near = sorted(name for name in named if _one_letter_apart(word, name))
            if near:
                message = f"found the field `{word}`, which is nowhere else"
                yield document.warning(node, message, hint=f"did you mean `{near[0]}`?")


def _fields(root: Node) -> Iterator[tuple[str, Node]]:
    """The names of fields in edits, in `errors:` and in `usage:`, with their nodes."""
    for path, node in _paths(root, (*_EDITED, *_READING)):
        yield from ((word, node) for word in _FIELD.findall(path))
    for edits in _below(root, _EDITED):
        for edit in edits.items if isinstance(edits, List) else ():
            for verb, value in entries_of(edit).items():
                if verb in VERBS and isinstance(value, Map):
                    yield from ((name, _key(value, name)) for name in value.entries if _WORD.fullmatch(name))
                for item in value.items if verb in VERBS and isinstance(value, List) else ():
                    if _WORD.fullmatch(text_in(item) or ""):
                        yield text_in(item) or "", item


def _paths(root: Node, keys: tuple[str, ...]) -> Iterator[tuple[str, Node]]:
    """The paths below these keys, with their nodes."""
    for top in _below(root, keys):
        for node in walk(top):
            yield from ((path, node) for path in _READ.findall(text_in(node) or ""))
            if isinstance(node, Map):
                yield from ((path, _key(node, key)) for key in node.entries for path in _READ.findall(key))


def _below(root: Node, keys: tuple[str, ...]) -> Iterator[Node]:
    """What a provider, its endpoints, its policies and its models have under these keys."""
    holders = [root, *entries_of(lookup(root, "speaks")).values(), *entries_of(lookup(root, "models")).values()]
    for holder in (*holders, *items_of(lookup(root, "policies"))):
        yield from (node for key in keys if (node := lookup(holder, key)) is not None)


def _key(node: Map, key: str) -> Node:
    return Scalar(key, key, False, node.keys[key])


def _one_letter_apart(one: str, two: str) -> bool:
    """Whether two names differ by one letter that is missing, wrong, or exchanged with the next; not by an `s` at the
    end of a word, which may be meant."""
    if abs(len(one) - len(two)) > 1 or one == two:
        return False
    short, long = sorted((one, two), key=len)
    at = next((place for place, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
    if len(short) < len(long):
        is_plural = long[at] == "s" and short[at : at + 1] in ("", "_")
        return short[at:] == long[at + 1 :] and not is_plural and long.strip("_") == long
    swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return swapped or short[at + 1 :] == long[at + 1 :] and short[at].isalpha() and long[at].isalpha()
