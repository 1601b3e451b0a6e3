"""`$refuse`: answer 400 before anything is sent, because leaving this out would change the meaning.

It acts after the node's `$when`. While an answer is converted the text becomes a loss instead.
"""

from __future__ import annotations

from tollgate.config.load import List, Map, Node, Scalar, text_in
from tollgate.mapping.directives import when
from tollgate.mapping.scalars import lower_words, warn_of_path
from tollgate.mapping.scope import Site

KEYS = ("when", "say", "param")


def emit(site: Site, node: Node) -> None:
    """One check per entry, in order."""
    if not isinstance(node, List):
        site.unit.mistake(node, "`$refuse` takes a list", "- {when: expression, say: text, param: field}")
        return
    for entry in node.items:
        emit_entry(site, entry)


def emit_entry(site: Site, entry: Node) -> None:
    """`{when, say, param}` -> raise `Refused` when it holds."""
    if not isinstance(entry, Map):
        site.unit.mistake(entry, "an entry of `$refuse` is {when: expression, say: text, param: field}")
        return
    site.unit.check_keys(entry, KEYS)
    for key in ("when", "say"):
        if key not in entry.entries:
            site.unit.mistake(entry, f"`$refuse` needs `{key}`")
            return
    condition = when.test(site, entry.entries["when"]).py
    say, param = entry.entries["say"], entry.get("param")
    if not isinstance(say, Scalar):
        site.unit.mistake(say, "`say` takes text")
        return
    if param is not None and text_in(param) is None:
        site.unit.mistake(param, "`param` takes the name of a field")
        return
    warn_of_path(site.unit, param)
    words = lower_words(site, say)
    name = repr(text_in(param))
    line = entry.mark.line
    with site.code.block(f"if {condition}", line):
        site.code.add(f"C.refuse({words.py}, {name})", line)
